"""Workloads drawn from a trace: when they arrive, which sessions they come from, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate
from rllib_scale.loading import env_from, read_mapping
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from small_moments import workload
from workloads.made_trace import made_trace, sessions_of

UNTIL = 200.0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    made_trace(60).save(path)
    return path


def problem(file: Path, load: float | None = 0.7, servers: int = 16, **trace: Any) -> EnvConfig:
    data = {
        "cluster": {"servers": servers},
        "workload": {"trace": {"file": str(file), **trace}, "offered_load": load},
        "episode": {"horizon_s": 2 * UNTIL, "arrivals_until_s": UNTIL},
    }
    return env_from(data, "test")


def test_workflows_are_those_of_the_trace_whole(file: Path) -> None:
    """Demands, edges and delays of whatever is drawn stand in the trace side by side."""
    trace, drawn = made_trace(60), generate(problem(file), 0, 0)

    def workflows(workload: Workload) -> list[str]:
        data = workload.to_dict()["workflows"]
        return [str({key: item[key] for key in ("tasks", "edges")}) for item in data]

    known, found = workflows(trace), workflows(drawn)
    assert set(found) <= set(known)
    assert len(set(found)) > 20


# ---------------------------------------------------------------------- arrivals


def test_workflows_arrive_by_a_poisson_process_at_the_offered_load(file: Path) -> None:
    config, trace = problem(file, 0.6), made_trace(60)
    rate = 0.6 * config.cluster.total_gflops / (trace.compute_gflop.sum() / trace.num_workflows)
    drawn = [generate(config, 0, episode) for episode in range(40)]
    count = sum(w.num_workflows for w in drawn)
    assert abs(count - 40 * UNTIL * rate) < 4 * np.sqrt(40 * UNTIL * rate)
    gaps = np.concatenate([np.diff(w.arrival_s, prepend=0) for w in drawn])
    assert stats.kstest(gaps, "expon", args=(0, 1 / rate)).pvalue > 1e-3


def test_sessions_follow_their_recording_at_the_same_rate(file: Path) -> None:
    """Also right at the beginning: sessions that began before it are under way."""
    config, trace = problem(file, 0.6, sample="session"), made_trace(60)
    rate = 0.6 * config.cluster.total_gflops / (trace.compute_gflop.sum() / trace.num_workflows)
    drawn = [generate(config, 0, episode) for episode in range(100)]
    arrivals = np.concatenate([w.arrival_s for w in drawn])
    for begin, end in ((0, 20), (UNTIL - 20, UNTIL)):
        expected = 100 * 20 * rate
        # Workflows of a session come together: the count scatters more than a Poisson one.
        assert abs(((arrivals >= begin) & (arrivals < end)).sum() - expected) < 4 * np.sqrt(4 * expected)
    recorded = {s: set(np.diff(trace.arrival_s[trace.session == s]).round(6)) for s in np.unique(trace.session)}
    gaps = [
        gap
        for w in drawn[:5]
        for s in np.unique(w.session)
        for gap in np.diff(w.arrival_s[w.session == s]).round(6)
        if gap in recorded[s]
    ]
    assert len(gaps) > 20


def test_recorded_arrivals_are_a_rotation_of_the_recording(tmp_path: Path) -> None:
    """Literal: arrivals at 0, 10, 20, 60; the mean gap of 20 joins the end to the beginning."""
    given = workload(*((t, [(1.0 + i, 1.0)], []) for i, t in enumerate((0, 10, 20, 60))))
    given.save(tmp_path / "recorded.json")
    config = problem(tmp_path / "recorded.json", None, arrivals="recorded")
    starts = set()
    for episode in range(20):
        drawn = generate(config, 0, episode)
        assert drawn.num_workflows == 4
        order = [int(x) - 1 for x in drawn.compute_gflop]
        assert order == [(order[0] + k) % 4 for k in range(4)]
        gaps = [(10, 10, 40, 20)[order[k]] for k in range(3)]
        assert np.diff(drawn.arrival_s).tolist() == pytest.approx(gaps)
        assert 0 <= drawn.arrival_s[0] < (20, 10, 10, 40)[order[0]]
        starts.add(order[0])
    assert len(starts) > 2


# ---------------------------------------------------------------------- parts


def test_the_split_decides_the_parts(file: Path) -> None:
    def sessions(part: str, **split: Any) -> set[int]:
        config = problem(file, 2.0, part=part, split=split)
        return set.union(*(sessions_of(generate(config, 0, episode)) for episode in range(20)))

    train, test = sessions("train"), sessions("test")
    assert sessions("all") == train | test == set(range(60))
    assert not train & test
    small, large = (sessions("train", train_share=share) for share in (0.1, 0.9))
    assert len(small) < 15 < len(train) < 45 < len(large)
    assert small < train < large
    assert sessions("train", seed=1) != sessions("train", seed=2)


def test_a_part_without_sessions_is_refused(tmp_path: Path) -> None:
    made_trace(1).save(tmp_path / "one.json")
    config = problem(tmp_path / "one.json", part="train", split={"train_share": 1e-9})
    with pytest.raises(UserError, match=r"one\.json: none of its 1 sessions is in the train part.*train_share 1e-09"):
        generate(config, 0, 0)


def test_an_evaluation_is_on_the_sessions_of_its_part_and_else_on_all(file: Path) -> None:
    scheduler = make_scheduler("fastest-idle", problem(file).observation, "none")
    for part in (None, "all", "test", "train"):
        (row,) = evaluate(scheduler, problem(file, part=part), 0, 1)
        assert row["arrived"] == generate(problem(file, part=part or "all"), 0, 0).num_tasks


# ---------------------------------------------------------------------- files


def test_a_path_is_looked_for_beside_the_yaml_file_and_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("yaml", "work"):
        (tmp_path / name).mkdir()
    made_trace(5).save(tmp_path / "yaml" / "beside.json")
    made_trace(5).save(tmp_path / "work" / "here.json")
    monkeypatch.chdir(tmp_path / "work")
    for name, folder in (("beside", "yaml"), ("here", "work")):
        (tmp_path / "yaml" / "env.yaml").write_text(f"workload: {{trace: {name}.json}}")
        config = env_from(read_mapping(tmp_path / "yaml" / "env.yaml"), "env.yaml", tmp_path / "yaml")
        assert config.workload.trace is not None
        assert config.workload.trace.location == str(tmp_path / folder / f"{name}.json")
    (tmp_path / "yaml" / "env.yaml").write_text("workload: {trace: nowhere.json}")
    with pytest.raises(UserError) as caught:
        env_from(read_mapping(tmp_path / "yaml" / "env.yaml"), "env.yaml", tmp_path / "yaml")
    for part in ("workload.trace: no file", str(tmp_path / "yaml" / "nowhere.json"), str(tmp_path / "work")):
        assert part in str(caught.value)


def test_what_fits_no_server_or_is_too_much_is_refused(tmp_path: Path) -> None:
    made_trace(5, memory_gb=5).save(tmp_path / "trace.json")
    data = problem(tmp_path / "trace.json").model_dump()
    small = {"name": "small", "count": 4, "compute_gflops": 1.0, "memory_gb": 0.5}
    with pytest.raises(UserError, match=r"trace\.json: workflow .* fits no server"):
        generate(EnvConfig.model_validate(data | {"cluster": {"tiers": [small]}}), 0, 0)
    endless = {"horizon_s": 1e12, "arrivals_until_s": None}
    with pytest.raises(UserError, match=r"workflows would arrive.*arrivals_until_s"):
        generate(EnvConfig.model_validate(data | {"episode": endless}), 0, 0)


def test_a_mistake_names_its_key_and_what_is_valid(file: Path) -> None:
    for content, message in (
        ({"trace": {"file": str(file), "arrivals": "never"}}, r"workload\.trace\.arrivals.*poisson.*'never'"),
        ({"trace": str(file), "fitted": "coding-agents"}, "trace, fitted and generator"),
        ({"rate_wave": {"period_s": 10, "amplitude": 1.5}}, r"workload\.rate_wave\.amplitude.*1\.5"),
        ({"rate_wave": {"period_s": 10}}, r"workload\.rate_wave.*one of the two"),
    ):
        with pytest.raises(UserError, match=message):
            env_from({"workload": content}, "test")
