"""Rules that decide for a whole batch from its moments do what they do from snapshots, environment by environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_scale.config import EnvConfig, scenario
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine

RULES = (
    "non-blocking",
    "non-blocking:order=first-arrival",
    "non-blocking:order=shortest-task",
    "reserve",
    "reserve:order=descendants-per-work",
    "price",
    "price:prices=0.3/2,penalty=0.5,age=1,alpha=1,a=1.5",
)
STEADY = {
    "cluster": {"servers": 8},
    "workload": {"offered_load": 0.9},
    "episode": {"horizon_s": 300, "arrivals_until_s": 30},
}
SLOTS = {
    "cluster": {
        "tiers": [
            {"name": "slow", "count": 3, "compute_gflops": 1, "memory_gb": 40, "slots": 3, "slot_slowdown": 0.1},
            {"name": "fast", "count": 2, "compute_gflops": 3, "memory_gb": 60, "slots": 2},
        ],
        "empty_slots": 2,
    },
    "communication": {"mode": "transfer", "predecessors": "all"},
    "workload": {
        "offered_load": 0.7,
        "memory_gb": {"mean": 12, "std": 8, "low": 1, "high": 60},
        "delay_s": {"mean": 2, "std": 2, "low": 0.01},
    },
    "episode": {"horizon_s": 500, "arrivals_until_s": 40},
}
CHANGES = [
    {"time_s": 9, "event": "fail", "servers": [0, 3]},
    {"time_s": 12, "event": "drain", "servers": [4]},
    {"time_s": 20, "event": "join", "servers": [0, 4]},
]
PROBLEMS: dict[str, dict[str, Any]] = {
    "steady": STEADY,
    "slots": SLOTS,
    "changes": SLOTS | {"cluster": SLOTS["cluster"] | {"changes": {"schedule": CHANGES}}},
    "estimates": SLOTS | {"information": {"estimate_error": 0.5}},
    "revealed": SLOTS | {"information": {"estimate_error": 0.5, "workflows": "revealed"}},
    "rounds": SLOTS | {"decision": {"on_busy": "reserve", "order": "open", "candidates": 3}},
}


def play_snapshots(rule: Dispatcher, env: EnvConfig, seed: int, episodes: list[int]) -> Engine:
    engine = Engine(env, len(episodes))
    engine.reset([seed] * len(episodes), episodes)
    rule.reset([(seed, episode) for episode in episodes])
    while not engine.done.all():
        engine.dispatch(rule([engine.snapshot(b) for b in np.flatnonzero(~engine.done).tolist()]))
    return engine


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_batch_is_decided_as_snapshots_are(problem: str) -> None:
    env = EnvConfig.model_validate(PROBLEMS[problem])
    for name in RULES:
        rule = make_scheduler(name, env.observation)
        assert isinstance(rule, Dispatcher)
        assert rule.sees_moments
        batch, single = play(rule, env, 11, [0, 1, 2]), play_snapshots(rule, env, 11, [0, 1, 2])
        for b in range(3):
            assert batch.schedule(b).tobytes() == single.schedule(b).tobytes(), name
            assert len(batch.schedule(b)) > 20


def test_a_batch_goes_on_where_buffers_grow_and_episodes_end_at_other_times() -> None:
    env = scenario("steady-0.9").at_scale(32)
    rule = make_scheduler("price", env.observation)
    batch = play(rule, env, 3, [0, 1])  # more workflows in the system than the buffers are made for
    for b in range(2):
        assert batch.schedule(b).tobytes() == play(rule, env, 3, [b]).schedule().tobytes()


def test_moments_tell_what_snapshots_do() -> None:
    """Of tasks that wait, what has not ended and who is new, at every event of an episode of slots and changes."""
    for problem in ("steady", "changes", "revealed"):
        env = EnvConfig.model_validate(PROBLEMS[problem])
        engine, rule = Engine(env), make_scheduler("price", env.observation)
        assert isinstance(rule, Dispatcher)
        for episode in range(2):  # the second one in the same engine
            engine.reset([5], [episode])
            rule.reset([(5, episode)])
            known = 0
            while not engine.done[0]:
                now, moments = engine.snapshot(), engine.moments()
                moment, live = moments.env[0], list(now.workflows.values())
                names = ["workflow", "task", "compute_gflop", "memory_gb", "arrival_s", "ready_s", "hop"]
                told = np.sort(moments.waiting[0, : moment["num_waiting"]][names])
                assert told.tolist() == np.sort(now.ready[names].astype(told.dtype)).tolist()
                left = [w.compute_gflop[~w.completed] for w in live]
                assert moment["tasks_in_system"] == sum(map(len, left))
                assert moment["work_in_system_gflop"] == pytest.approx(np.concatenate(left).sum())
                new = [(w.arrival_s, w.compute_gflop.sum()) for w in live if w.index >= known]
                told = np.sort(moments.new[0, : moment["num_new"]])
                assert told["arrival_s"].tolist() == sorted(arrival for arrival, _ in new)
                assert told["work_gflop"].tolist() == pytest.approx([work for _, work in sorted(new)])
                known = now.num_arrived
                assert (moments.wait[0] == np.where(now.status <= 1, now.available_at_s - now.clock_s, np.inf)).all()
                engine.dispatch(rule([now]))
            assert known > 3
