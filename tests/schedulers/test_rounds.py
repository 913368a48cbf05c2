"""Rules that decide for a whole batch from its moments do what they do from snapshots, environment by environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_scale.config import EnvConfig, scenario
from rllib_scale.evaluation.play import play
from rllib_scale.observation.moments import INPUT, MOMENT, NEW, WAITING, Moments
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.rounds import Rounds
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.schedulers.visiting import EARLIEST_FINISH, FASTEST_OPEN
from rllib_scale.simulator.engine import Engine

RULES = (
    "non-blocking",
    "non-blocking:order=first-arrival",
    "non-blocking:order=shortest-task",
    "reserve",
    "reserve:order=descendants-per-work",
    "price",
    "price:prices=0.3/2,penalty=0.5,age=1,alpha=1,a=1.5",
    "dual-price",
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
    "kinds": {
        "cluster": {"servers": 64, "changes": {"schedule": CHANGES}},
        "communication": {"mode": "transfer", "predecessors": "all"},
        "information": {"estimate_error": 0.5},
        "workload": {"offered_load": 1.0},
        "episode": {"horizon_s": 300, "arrivals_until_s": 15},
    },
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


def made_up_moments(generator: np.random.Generator) -> Moments:
    """Of 2 environments and 9 servers of three kinds, with many ties, also of what is not quite the same."""
    b, n, r = 2, 9, 6
    env, waiting = np.zeros(b, dtype=MOMENT), np.zeros((b, r), dtype=WAITING)
    env["num_waiting"], env["clock_s"] = r, 5.0
    waiting["workflow"], waiting["task"] = generator.permutation(r), generator.integers(0, 3, (b, r))
    waiting["compute_gflop"] = generator.choice([1.0, 3.0, 1e6], (b, r))
    waiting["memory_gb"], waiting["descendants"] = generator.choice([1.0, 4.0, 20.0], (b, r)), 1
    waiting["first_input"], waiting["num_inputs"] = np.arange(r), generator.integers(0, 2, (b, r))
    inputs = np.zeros((b, r), dtype=INPUT)
    inputs["host"], inputs["transfer_s"] = generator.integers(0, n, (b, r)), generator.choice([0.0, 1e-9, 2.0], (b, r))
    limit = np.where(generator.random((b, n)) < 0.1, -1.0, np.repeat([4.0, 8.0, 8.0], 3))
    is_open = (generator.random((b, n)) < 0.3) & (limit >= 0)
    wait = np.where(is_open, 0.0, generator.choice([0.0, 1.0, 1.0 + 1e-12, 1.0 - 1e-12, 2.0], (b, n)))
    return Moments(
        env=env,
        waiting=waiting,
        inputs=inputs,
        new=np.zeros((b, 0), dtype=NEW),
        capacity=np.repeat([1.0, 2.0, 4.0], 3),
        host=np.arange(n),
        limit=limit,
        wait=np.where(limit >= 0, wait, np.inf),
        is_open=is_open,
        free=np.where(is_open, limit, 0.0),
        next_end=np.where(is_open | (limit < 0), np.inf, wait),
    )


@pytest.mark.parametrize("waiting", [0.0, 0.5, 1.0, 2.0])
def test_rows_are_chosen_by_kind_as_among_all(waiting: float) -> None:
    """At equal costs the lowest one, also where costs are the same but for their rounding."""
    numbers, prices = np.array([[1, -1, 0.1, 2, waiting, 0.5]] * 2), np.repeat([[0.0, 0.5, 3.0]] * 2, 3, axis=1)
    started = 0
    for seed in range(300):
        decided = []
        for by_kind_from in (1, 1000):
            rounds, answers = Rounds(by_kind_from), []
            for decide in (
                lambda now, r=rounds: r.by_price(now, numbers, prices),
                lambda now, r=rounds: r.by_name(now, "first-ready", EARLIEST_FINISH, waiting),
                lambda now, r=rounds: r.by_name(now, "shortest-task", FASTEST_OPEN),
            ):
                moments = made_up_moments(np.random.default_rng(seed))
                answers.append((decide(moments).tolist(), moments.wait.tolist()))
            decided.append(answers)
            started += len(answers[0][0])
        assert decided[0] == decided[1], seed
    assert started > 600


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
