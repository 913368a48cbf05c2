"""What decides a drawn workload, whatever it is drawn from: a generator, a trace or a fitted table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference.cases import TOPOLOGIES
from rllib_scale.config import EnvConfig, scenario
from rllib_scale.loading import env_from
from rllib_scale.workloads.generators import generate
from workloads.made_trace import made_trace

UNTIL = 200.0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    made_trace(60).save(path)
    return str(path)


def problem(file: str, **workload: Any) -> EnvConfig:
    """Of 16 servers; a trace is the made one in the file."""
    if "trace" in workload:
        workload["trace"] = {"file": file} | workload["trace"]
    episode = {"horizon_s": 2 * UNTIL, "arrivals_until_s": UNTIL}
    return env_from({"workload": workload, "episode": episode}, "test")


TRACE = {"trace": {"part": None}, "offered_load": 0.7}
DRAWN = {
    **{topology: {"topology": topology} for topology in TOPOLOGIES},
    "trace": TRACE,
    "sessions": {"trace": {"sample": "session"}, "offered_load": 0.7},
    "recorded": {"trace": {"arrivals": "recorded"}},
    "fitted": None,
}


@pytest.mark.parametrize("name", DRAWN)
def test_seed_and_episode_decide_the_workload(file: str, name: str) -> None:
    """Neither arrivals nor demands of one pair are those of another, shifted or not."""
    env = scenario("coding-agents-0.7") if name == "fitted" else problem(file, **DRAWN[name])
    pairs = [(0, 0), (0, 1), (1, 0), (2**62, 1000)]
    drawn = [generate(env, *pair) for pair in pairs]
    assert all(w.equals(generate(env, *pair)) for w, pair in zip(drawn, pairs, strict=True))
    gaps = [set(np.diff(w.arrival_s).round(9).tolist()) - {0.0} for w in drawn]
    starts = [{tuple(w.compute_gflop[k : k + 20].tolist()) for k in range(w.num_tasks - 20)} for w in drawn]
    for i in range(4):
        assert drawn[i].num_workflows > 5
        for j in range(i):
            assert not drawn[i].equals(drawn[j])
            if name not in ("recorded", "sessions"):  # these repeat what was recorded
                assert not gaps[i] & gaps[j]
                assert not starts[i] & starts[j]


@pytest.mark.parametrize("name", ["trace", "fitted"])
def test_the_rate_decides_when_workflows_come_and_not_which(file: str, name: str) -> None:
    """So that loads, and numbers of servers, are compared on the same work."""
    if name == "fitted":
        slow, fast, own = (scenario(f"coding-agents-{load}") for load in (0.5, 0.9, 0.7))
    else:
        slow, fast, own = (problem(file, **TRACE | {"offered_load": load}) for load in (0.5, 0.9, 0.7))
    few = generate(slow, 3, 5)
    for env in (fast, own.at_scale(32)):
        many = generate(env, 3, 5)
        assert many.num_workflows > 1.2 * few.num_workflows
        assert many.compute_gflop[: few.num_tasks].tolist() == few.compute_gflop.tolist()
        assert many.delay_s[: few.num_tasks].tolist() == few.delay_s.tolist()
        assert many.arrival_s[: few.num_workflows].tolist() != few.arrival_s.tolist()


def test_what_does_not_concern_the_workload_leaves_it_alone(file: str) -> None:
    env = problem(file)
    changes = {
        "cluster": env.cluster.model_copy(update={"empty_slots": 5, "bandwidth_gb_s": 1.0}),
        "episode": env.episode.model_copy(update={"mask": "feasible", "clock_step_s": 1.0}),
        "reward": env.reward.model_copy(update={"name": "tasks-in-system"}),
    }
    assert generate(env.model_copy(update=changes), 1, 2).equals(generate(env, 1, 2))


MEAN = np.sqrt(8) / np.pi
"""Of the sine over a quarter of its period, about its highest point."""


@pytest.mark.parametrize("drawn", ["trace", "synthetic"])
@pytest.mark.parametrize(
    ("wave", "eighths"),
    [
        ({"period_s": UNTIL, "amplitude": 0.8}, {(1, 3): 1 + 0.8 * MEAN, (5, 7): 1 - 0.8 * MEAN}),
        ({"period_s": UNTIL, "levels": [2.0, 5.0, 0.0, 1.0]}, {(0, 2): 1.0, (2, 4): 2.5, (4, 6): 0.0, (6, 8): 0.5}),
        ({"period_s": UNTIL / 2, "levels": [3.0, 1.0]}, {(0, 2): 1.5, (2, 4): 0.5, (4, 6): 1.5, (6, 8): 0.5}),
    ],
)
def test_the_rate_goes_up_and_down(file: str, drawn: str, wave: dict[str, Any], eighths: dict[Any, float]) -> None:
    """So many times the mean rate in parts of the time in which workflows arrive, in eighths of it."""
    workload = {"offered_load": 1.0} | ({"trace": TRACE["trace"]} if drawn == "trace" else {})
    plain, waved = problem(file, **workload), problem(file, **workload, rate_wave=wave)
    arrivals = np.concatenate([generate(waved, 1, episode).arrival_s for episode in range(60)])
    mean = sum(generate(plain, 1, episode).num_workflows for episode in range(60)) / 8
    assert len(arrivals) == pytest.approx(8 * mean, rel=0.06)
    for (begin, end), factor in eighths.items():
        found = np.sum((arrivals >= begin * UNTIL / 8) & (arrivals < end * UNTIL / 8))
        assert found == pytest.approx((end - begin) * factor * mean, rel=0.15)
