"""Fitted tables: what they draw has the quantiles that they hold, and the structure of what they were fitted to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rllib_scale.cli import main
from rllib_scale.config import scenario
from rllib_scale.config.workload import TABLES
from rllib_scale.errors import UserError
from rllib_scale.loading import env_from
from rllib_scale.workloads.fit import PROBABILITIES, compare, fit, halves, join, sample
from rllib_scale.workloads.fitted import FittedTable, load_table
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from workloads.made_trace import made_trace

AGENTS = load_table(TABLES["coding-agents"])
SCENARIO = scenario("coding-agents-0.7")


@pytest.fixture(scope="module")
def drawn() -> Workload:
    return sample(AGENTS, 20_000)


def chains(workload: Workload, w: int) -> list[list[int]]:
    """Successors of each task of a workflow."""
    first, last = workload.task_offsets[w : w + 2]
    following: list[list[int]] = [[] for _ in range(last - first)]
    for before, after in workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]].tolist():
        following[before].append(after)
    return following


# ---------------------------------------------------------------------- what is drawn


def test_the_work_of_an_episode_is_the_offered_load() -> None:
    work = [generate(SCENARIO, 0, episode).compute_gflop.sum() for episode in range(40)]
    wanted = 0.7 * SCENARIO.cluster.total_gflops * 3600
    assert abs(np.mean(work) - wanted) < 4 * np.std(work) / np.sqrt(40)


def test_workflows_are_chains_with_a_few_forks_that_join(drawn: Workload) -> None:
    forks = 0
    for w in range(2000):
        following = chains(drawn, w)
        n = len(following)
        needs = np.bincount([task for row in following for task in row], minlength=n)
        assert needs[0] == 0
        assert (needs[1:] > 0).all()
        ends = [task for task in range(n) if not following[task]]
        assert len(ends) == 1  # every branch joins
        main = ends[0] + 1  # tasks of branches are numbered behind
        assert all(k + 1 in following[k] for k in range(main - 1))
        forks += sum(len(row) > 1 for row in following)
    np.testing.assert_allclose(drawn.output_gb, drawn.memory_gb, rtol=0.01, atol=0.01)  # weights apart, the cache
    calls = int(np.diff(drawn.task_offsets[:2001]).sum())
    assert 0.3 < forks / (AGENTS.fork_probability * calls) < 3


# ---------------------------------------------------------------------- fitting


def known_table() -> FittedTable:
    """A table whose dependences are strong, to be found again."""
    chain = np.eye(6)
    for i, j, r in ((0, 1, 0.5), (1, 3, -0.6), (3, 5, 0.4)):
        chain[i, j] = chain[j, i] = r
    call = np.eye(3)
    call[0, 1] = call[1, 0] = 0.7
    return AGENTS.model_copy(
        update={
            "chain_correlation": tuple(map(tuple, chain.tolist())),
            "call_correlation": tuple(map(tuple, call.tolist())),
            "persistent_share": (0.5, 0.2, 0.3),
            "shrink_probability": 0.0,
        }
    )


def test_a_fit_finds_the_table_again_that_a_trace_was_drawn_by() -> None:
    known = known_table()
    found = fit(sample(known, 20_000, seed=3))
    assert found.persistent_share == pytest.approx(known.persistent_share, abs=0.05)
    np.testing.assert_allclose(found.call_correlation, known.call_correlation, atol=0.06)
    np.testing.assert_allclose(found.chain_correlation, known.chain_correlation, atol=0.13)
    assert found.fork_probability == pytest.approx(known.fork_probability, rel=0.25)
    for p in (0.25, 0.5, 0.75, 0.95):
        k = PROBABILITIES.index(p)
        for name in ("calls", "first_memory_gb", "first_compute_gflop", "compute_gflop", "growth_gb", "delay_s"):
            assert found.quantiles[name][k] == pytest.approx(known.quantiles[name][k], rel=0.1, abs=0.05), (name, p)


def test_a_fit_draws_what_it_was_fitted_to() -> None:
    """Every distance to another sample of the same law is small; without a fit it is not."""
    trace = sample(AGENTS, 6000, seed=5)
    for distance in compare(trace, sample(fit(trace), 6000, seed=6)):
        assert distance.kolmogorov_smirnov < 0.06, distance.name
    other = {d.name: d.kolmogorov_smirnov for d in compare(trace, made_trace(300))}
    assert min(other.values()) > 0.1


def test_forks_and_their_branches_are_counted() -> None:
    """Literal: 0 -> 1 -> 2 -> 3 with the branches 4 -> 5 and 6 beside 1 -> 2, and a plain chain of two calls."""
    task = {"compute_gflop": 1.0, "memory_gb": 2.0, "output_gb": 1.0, "delay_s": 0.5}
    forked = {
        "arrival_s": 0.0,
        "tasks": [task] * 4 + [task | {"memory_gb": 0.25}] * 3,
        "edges": [[0, 1], [1, 2], [2, 3], [1, 4], [4, 5], [5, 2], [1, 6], [6, 2]],
    }
    chain = {"arrival_s": 0.0, "tasks": [task] * 2, "edges": [[0, 1]]}
    workflows = [forked] * 10 + [chain] * 10
    found = fit(Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": workflows}, "test"))
    assert found.fork_probability == 0.25  # one of four calls that another one follows
    assert set(found.quantiles["branches"]) == {2}
    assert set(found.quantiles["branch_calls"]) == {1, 2}
    assert set(found.quantiles["branch_memory_gb"]) == {0.25}
    assert set(found.quantiles["calls"]) == {2, 4}
    assert found.shrink_probability == 0


def test_halves_have_different_sessions_and_joined_traces_keep_theirs_apart() -> None:
    trace = made_trace(40)
    first, second = halves(trace)
    assert set(first.session) | set(second.session) == set(trace.session)
    assert not set(first.session) & set(second.session)
    both = join([trace, trace])
    assert both.num_tasks == 2 * trace.num_tasks
    assert len(np.unique(both.session)) == 80
    assert len(both.edges) == 2 * len(trace.edges)


def test_the_command_writes_a_table_that_a_config_draws_from(tmp_path: Path) -> None:
    made_trace(100).save(tmp_path / "trace.json")
    done = CliRunner().invoke(
        main, ["fit-workload", str(tmp_path / "trace.json"), "--output", str(tmp_path / "t.json")]
    )
    assert done.exit_code == 0, done.output
    assert "KS" in done.output
    assert "100 sessions" in done.output
    env = env_from({"workload": {"fitted": str(tmp_path / "t.json"), "offered_load": 0.5}}, "test")
    found, trace = generate(env.model_copy(update={"episode": SCENARIO.episode}), 0, 0), made_trace(100)
    assert found.num_workflows > 200
    assert np.median(found.compute_gflop) == pytest.approx(np.median(trace.compute_gflop), rel=0.2)


def test_a_trace_of_single_tasks_is_fitted(tmp_path: Path) -> None:
    workflow = {"tasks": [{"compute_gflop": 9.0, "memory_gb": 12.0, "output_gb": 0.4}], "edges": []}
    workflows = [{"arrival_s": w} | workflow for w in range(40)]
    trace = {"format": "rllib-scale-workload", "version": 1, "workflows": workflows}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    done = CliRunner().invoke(
        main, ["fit-workload", str(tmp_path / "trace.json"), "--output", str(tmp_path / "t.json")]
    )
    assert done.exit_code == 0, done.output
    assert "work of a call" in done.output
    assert "delay of a later call" not in done.output
    assert load_table(tmp_path / "t.json").fork_probability == 0


FALLING = AGENTS.model_dump(mode="json")["quantiles"]
FALLING["delay_s"].reverse()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probabilities": [0.5]}, "probabilities"),
        ({"persistent_share": [0.1, 0.2]}, "persistent_share: must hold 3 values"),
        ({"call_correlation": [[1, 2], [2, 1]]}, "call_correlation"),
        ({"call_correlation": [[1, 0.9, 0.9], [0.9, 1, -0.9], [0.9, -0.9, 1]]}, "call_correlation: must be positive"),
        ({"quantiles": {}}, "quantiles: must hold calls"),
        ({"quantiles": FALLING}, r"delay_s: must hold .* values that do not decrease"),
        ({"unknown": 1}, "unknown key 'unknown'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(AGENTS.model_dump(mode="json") | change))
    with pytest.raises(UserError, match=message) as caught:
        load_table(path)
    assert str(path) in str(caught.value)


def test_a_table_whose_tasks_fit_no_server_is_refused() -> None:
    env = env_from({"workload": {"fitted": "coding-agents"}}, "test")
    with pytest.raises(UserError, match=r"workload.fitted coding-agents: has tasks of up to .* GB.*80"):
        generate(env, 0, 0)


def test_too_few_workflows_are_refused() -> None:
    with pytest.raises(UserError, match="too few to fit"):
        fit(made_trace(3))
