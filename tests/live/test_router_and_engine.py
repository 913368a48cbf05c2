"""A router plays the gate of an episode: the same asks and ends, the same decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("ray.serve", exc_type=ImportError)

from rllib_scale.config.replicas import Replica as Kind
from rllib_scale.config.schedulers import RuleSpec, parse_scheduler
from rllib_scale.live.holding import HoldingRouter
from rllib_scale.live.requests import Demand, Replica, RouterSettings
from rllib_scale.schedulers.replicas import REPLICA_RULES
from rllib_scale.simulator.replicas.rules import run
from rllib_scale.simulator.replicas.scripts import joined
from rllib_scale.simulator.replicas.state import NONE, START, TASK, TREE, new_fleet
from rllib_scale.workloads.random_numbers import new_generator

RULES = (
    "least-outstanding:gate=1,offers=1000",
    "session-affinity:gate=0.8,offers=1000",
    "two-choices:gate=1,offers=1000",
)
UNIT, KV_TOKENS, ACTIVE_FOR_S, SEED = 100_000, 1_199_999, 30.0, 7
"""Prompts are whole units, and the answers of all that count at a replica, which a router does not know, below one."""
PREFIXES = np.array([0, 1, 2]) * UNIT


class Router(HoldingRouter):
    """On a clock of the test."""

    now_s = 0.0

    def clock(self) -> float:
        return self.now_s


def script(rng: np.random.Generator) -> tuple[Any, list[list[int]]]:
    """A session: each call continues the one before it."""
    tasks = np.zeros(6, TASK)
    prefix = int(rng.integers(3))
    tasks["prefix"], tasks["prefix_tokens"] = prefix - 1, PREFIXES[prefix]
    tasks["prompt"] = np.minimum(np.cumsum(rng.integers(0, 3, 6)) + 1 + prefix, 9) * UNIT
    tasks["output"], tasks["needs"] = rng.integers(20, 8000, 6), np.arange(6) > 0
    tasks["gap_s"] = rng.exponential(12.0, 6)
    return tasks, [[number + 1] for number in range(5)] + [[]]


def episode(rule: str, seed: int) -> np.ndarray:
    """All calls of an episode under a rule."""
    rng, kind = np.random.default_rng(seed), Kind(kv_tokens=KV_TOKENS, request_s=0.0)
    tree = np.array([(NONE, 0), (NONE, 0)], TREE)
    starts = np.zeros(60, START)
    starts["script"], starts["at_s"] = np.arange(60), np.cumsum(rng.exponential(4.0, 60))
    scripts = joined([script(rng) for _ in range(60)], tree)
    fleet = new_fleet([kind] * 3, scripts.arrays, starts, 4, False, ACTIVE_FOR_S)
    parts = list[np.ndarray]()
    spec = parse_scheduler(rule)
    assert isinstance(spec, RuleSpec)
    made: Any = REPLICA_RULES[spec.name](spec.parameters)
    run(fleet, 1e6, made.values, new_generator(SEED, 0), parts)
    calls = np.concatenate(parts)
    assert len(calls) == 60 * 6
    prefix = scripts.arrays[1]["prefix"].reshape(60, 6)
    return np.array(
        [(each, 1 + prefix[each["script"], each["call"]]) for each in calls], [("call", calls.dtype), ("prefix", int)]
    )


@pytest.mark.slow
@settings(max_examples=5)
@given(st.sampled_from(RULES), st.integers(0, 2**32))
def test_1000_events_have_the_decisions_of_an_episode(rule: str, seed: int) -> None:
    played = episode(rule, seed)
    assume(len(np.unique(played["call"]["end_s"])) == len(played))  # as on a real clock
    router = Router(
        RouterSettings(scheduler=rule, replica={"kv_tokens": KV_TOKENS}, active_for_s=ACTIVE_FOR_S, seed=SEED)
    )
    replicas = [Replica(f"r{at}", 1000, 1.0, 1.0) for at in range(3)]
    router.round(replicas, {})
    events = [(float(each["call"]["asked_s"]), 1, key) for key, each in enumerate(played)]
    events += [(float(each["call"]["end_s"]), 0, key) for key, each in enumerate(played)]
    events += [(float(each["call"]["end_s"]) + ACTIVE_FOR_S, 2, key) for key, each in enumerate(played)]
    decided, at = dict[Any, tuple[float, str]](), 0
    events.sort()
    while at < len(events):
        router.now_s = events[at][0]
        while at < len(events) and events[at][0] == router.now_s:
            _, what, key = events[at]
            call, prefix = played[key]["call"], int(played[key]["prefix"])
            if what == 0:
                router.leave(key)
            elif what == 1:
                shared = {"prefix": str(prefix), "prefix_tokens": int(PREFIXES[prefix])} if prefix else {}
                demand = Demand(session=str(call["session"]), prompt_tokens=int(call["prompt"]), **shared)
                router.arrive(key, demand, router.now_s)
            at += 1
        for started, name in router.round(replicas, {}):
            decided[started] = router.now_s, name
    expected = {
        key: (float(each["call"]["placed_s"]), f"r{each['call']['replica']}") for key, each in enumerate(played)
    }
    assert decided == expected
    assert any(each["call"]["placed_s"] > each["call"]["asked_s"] for each in played), "the gate holds some"
