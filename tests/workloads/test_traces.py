"""Workloads drawn from a trace: what decides them, when they arrive, which sessions they come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rllib_scale.config import EnvConfig, TrialConfig, digest, identity
from rllib_scale.config.plan import SweepConfig, expand
from rllib_scale.config.yaml_files import build_model, load_model
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
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
    return build_model(EnvConfig, data, "test")


def content(workload: Workload) -> list[tuple[float, ...]]:
    """What each workflow consists of, arrivals apart."""
    first = workload.task_offsets
    return [tuple(workload.compute_gflop[first[w] : first[w + 1]].tolist()) for w in range(workload.num_workflows)]


# ---------------------------------------------------------------------- what decides a workload


@pytest.mark.parametrize("trace", [{}, {"sample": "session"}, {"arrivals": "recorded"}], ids=str)
def test_seed_and_episode_decide_the_workload(file: Path, trace: dict[str, Any]) -> None:
    config = problem(file, None if "arrivals" in trace else 0.7, **trace)
    pairs = [(0, 0), (0, 1), (1, 0), (2**62, 2**62)]
    drawn = [generate(config, *pair) for pair in pairs]
    assert all(w.equals(generate(config, *pair)) for w, pair in zip(drawn, pairs, strict=True))
    assert all(drawn[i].num_workflows > 0 for i in range(4))
    assert not any(drawn[i].equals(drawn[j]) for i in range(4) for j in range(i))


def test_neighbouring_pairs_share_no_draws(file: Path) -> None:
    """Neither arrivals nor choices of one pair are those of another, shifted or not."""
    config = problem(file, 2.0)
    gaps, chosen = [], []
    for pair in [(seed, episode) for seed in range(4) for episode in range(4)]:
        drawn = generate(config, *pair)
        gaps.append(set(np.diff(drawn.arrival_s).round(9).tolist()))
        chosen.append(content(drawn))
    for i in range(16):
        for j in range(i):
            assert not gaps[i] & gaps[j]
            runs = {tuple(chosen[i][k : k + 3]) for k in range(len(chosen[i]) - 2)}
            assert not runs & {tuple(chosen[j][k : k + 3]) for k in range(len(chosen[j]) - 2)}


def test_the_rate_decides_when_workflows_come_and_not_which(file: Path) -> None:
    slow, fast = (content(generate(problem(file, load), 3, 5)) for load in (0.4, 0.8))
    assert len(fast) > 1.5 * len(slow)
    assert fast[: len(slow)] == slow
    assert content(generate(problem(file, 0.4, servers=32), 3, 5))[: len(slow)] == slow


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
    task = {"compute_gflop": 1.0, "memory_gb": 1.0, "output_gb": 0.0}
    workflows = [
        {"arrival_s": float(t), "tasks": [task | {"compute_gflop": 1.0 + i}], "edges": []}
        for i, t in enumerate((0, 10, 20, 60))
    ]
    Workload.from_dict({"format": "rllib-scale-workload", "version": 1, "workflows": workflows}, "test").save(
        tmp_path / "recorded.json"
    )
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


def test_the_rate_goes_up_and_down_in_a_wave(file: Path) -> None:
    wave = {"period_s": UNTIL, "amplitude": 0.8}
    config = problem(file, 1.0)
    data = config.model_dump() | {"workload": config.workload.model_dump() | {"rate_wave": wave}}
    waved = EnvConfig.model_validate(data)
    synthetic = EnvConfig.model_validate(data | {"workload": {"offered_load": 1.0, "rate_wave": wave}})
    for env in (waved, synthetic):
        arrivals = np.concatenate([generate(env, 1, episode).arrival_s for episode in range(60)])
        phase = arrivals / UNTIL
        high, low = ((phase > 0.125) & (phase < 0.375)).sum(), ((phase > 0.625) & (phase < 0.875)).sum()
        mean = np.sqrt(8) / np.pi  # of the sine over that quarter of its period
        assert high / low == pytest.approx((1 + 0.8 * mean) / (1 - 0.8 * mean), rel=0.15)
        constant = env.model_copy(update={"workload": env.workload.model_copy(update={"rate_wave": None})})
        without = sum(generate(constant, 1, episode).num_workflows for episode in range(60))
        assert len(arrivals) == pytest.approx(without, rel=0.06)


def test_the_rate_goes_in_steps(file: Path) -> None:
    wave = {"period_s": UNTIL / 2, "levels": [2.0, 5.0, 0.0]}
    config = problem(file, 1.0)
    data = config.model_dump() | {"workload": config.workload.model_dump() | {"rate_wave": wave}}
    traced = EnvConfig.model_validate(data)
    synthetic = EnvConfig.model_validate(data | {"workload": {"offered_load": 1.0, "rate_wave": wave}})
    for env in (traced, synthetic):
        arrivals = np.concatenate([generate(env, 1, episode).arrival_s for episode in range(60)])
        counts = np.bincount((arrivals / (UNTIL / 6)).astype(int), minlength=6)
        constant = env.model_copy(update={"workload": env.workload.model_copy(update={"rate_wave": None})})
        expected = sum(generate(constant, 1, episode).num_workflows for episode in range(60)) / 6
        assert counts[[2, 5]].tolist() == [0, 0]
        assert counts[[0, 3]] == pytest.approx(2 * 3 / 7 * expected, rel=0.15)
        assert counts[[1, 4]] == pytest.approx(5 * 3 / 7 * expected, rel=0.15)


# ---------------------------------------------------------------------- parts


def test_parts_are_disjoint_and_cover_the_trace(file: Path) -> None:
    found = {}
    for part in ("train", "test", "all"):
        config = problem(file, 2.0, part=part)
        found[part] = set.union(*(sessions_of(generate(config, 0, episode)) for episode in range(20)))
    assert found["all"] == found["train"] | found["test"] == set(range(60))
    assert not found["train"] & found["test"]
    assert 15 < len(found["train"]) < 45


def test_share_and_seed_of_the_split_decide_the_parts(file: Path) -> None:
    def train(**split: Any) -> set[int]:
        config = problem(file, 2.0, part="train", split=split)
        return set.union(*(sessions_of(generate(config, 0, episode)) for episode in range(20)))

    assert len(train(train_share=0.1)) < 15 < 45 < len(train(train_share=0.9))
    assert train(train_share=0.1) < train(train_share=0.5) < train(train_share=0.9)
    assert train(seed=1) != train(seed=2)


def test_a_part_without_sessions_is_refused(tmp_path: Path) -> None:
    made_trace(1).save(tmp_path / "one.json")
    config = problem(tmp_path / "one.json", part="train", split={"train_share": 1e-9})
    with pytest.raises(UserError, match=r"one\.json: none of its 1 sessions is in the train part.*train_share 1e-09"):
        generate(config, 0, 0)


def test_an_evaluation_on_sessions_of_the_training_is_refused(file: Path) -> None:
    for part in ("train", "all"):
        config = problem(file, part=part)
        scheduler = make_scheduler("fastest-idle", config.observation, "none")
        with pytest.raises(UserError, match=rf"workload.trace.part {part}: .*valid: test"):
            evaluate(scheduler, config, 0, 1)
    plain, test = ([*evaluate(scheduler, problem(file, part=part), 0, 1)] for part in (None, "test"))
    assert plain == test
    assert plain[0]["arrived"] == generate(problem(file, part="test"), 0, 0).num_tasks


@pytest.mark.parametrize("part", ["test", "all"])
def test_a_training_on_sessions_of_the_evaluation_is_refused(file: Path, part: str) -> None:
    env = problem(file, part=part).model_dump()
    with pytest.raises(UserError, match=rf"env.workload.trace.part {part}.*leave it out"):
        build_model(TrialConfig, {"env": env}, "test")
    sweep = build_model(SweepConfig, {"name": "x", "methods": ["scale"], "env": env}, "test")
    with pytest.raises(UserError, match=rf"env.workload.trace.part {part}"):
        expand(sweep, "test")


# ---------------------------------------------------------------------- files


def test_hashes_hold_the_content_of_the_file_and_not_its_place(tmp_path: Path) -> None:
    def hashes(path: Path) -> tuple[str, str]:
        config = problem(path)
        return digest(identity(config)), TrialConfig(env=config).cell

    made_trace(5).save(tmp_path / "a.json")
    first = hashes(tmp_path / "a.json")
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert hashes(tmp_path / "b.json") == first
    made_trace(5, seed=1).save(tmp_path / "b.json")
    assert all(new != old for new, old in zip(hashes(tmp_path / "b.json"), first, strict=True))


def test_a_file_that_changes_or_goes_under_a_config_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    made_trace(5).save(path)
    config = problem(path)
    again = EnvConfig.model_validate(config.model_dump(mode="json"))
    assert again == config
    made_trace(5, seed=1).save(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(UserError, match=r"workload.trace.file: .*trace\.json has changed since the config was read"):
        generate(again, 0, 0)
    path.unlink()
    with pytest.raises(UserError, match=r"trace\.json cannot be read.*at this path on every node"):
        generate(again, 0, 0)
    assert EnvConfig.model_validate(config.model_dump(mode="json")) == config  # results are read without it


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
        config = load_model(EnvConfig, tmp_path / "yaml" / "env.yaml")
        assert config.workload.trace is not None
        assert config.workload.trace.place == str(tmp_path / folder / f"{name}.json")
    (tmp_path / "yaml" / "env.yaml").write_text("workload: {trace: nowhere.json}")
    with pytest.raises(UserError) as caught:
        load_model(EnvConfig, tmp_path / "yaml" / "env.yaml")
    for part in ("workload.trace.file", str(tmp_path / "yaml" / "nowhere.json"), str(tmp_path / "work")):
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


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"trace": {"file": "FILE", "arrivals": "never"}}, ["workload.trace.arrivals", "'never'", "poisson", "recorded"]),
    ({"trace": {"file": "FILE", "part": "tests"}}, ["workload.trace.part", "'train'", "'test'", "'all'"]),
    ({"trace": {"file": "FILE", "split": {"train_share": 1}}}, ["workload.trace.split.train_share", "less than 1"]),
    ({"trace": {"fil": "FILE"}}, ["'workload.trace.fil'", "'file'"]),
    ({"trace": "FILE", "fitted": "coding-agents"}, ["trace, fitted and generator", "null"]),
    ({"trace": {"file": "FILE", "arrivals": "recorded"}, "offered_load": 0.5}, ["offered_load", "poisson"]),
    ({"fitted": "coding-agent"}, ["workload.fitted.table", "valid: coding-agents"]),
    ({"rate_wave": {"period_s": 10, "amplitude": 1.5}}, ["workload.rate_wave.amplitude", "1.5"]),
    ({"rate_wave": {"period_s": 10, "amplitude": 0.5, "levels": [1, 2]}}, ["workload.rate_wave", "one of the two"]),
    ({"rate_wave": {"period_s": 10}}, ["workload.rate_wave", "one of the two"]),
    ({"rate_wave": {"period_s": 10, "levels": [0, 0]}}, ["workload.rate_wave", "above 0"]),
]


@pytest.mark.parametrize(("workload", "parts"), BAD, ids=[str(parts) for _, parts in BAD])
def test_a_mistake_names_its_key_and_what_is_valid(file: Path, workload: dict[str, Any], parts: list[str]) -> None:
    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(inner) for key, inner in value.items()}
        return str(file) if value == "FILE" else value

    with pytest.raises(UserError) as caught:
        build_model(EnvConfig, {"workload": named(workload)}, "test")
    assert all(part in str(caught.value) for part in parts), str(caught.value)
