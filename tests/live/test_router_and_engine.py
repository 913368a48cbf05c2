"""A router has the memory and the gate of an episode under `observation.caches: own`: the same asks and ends, the same
decisions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("ray.serve", exc_type=ImportError)

from rllib_scale.config import TrialConfig
from rllib_scale.config.replicas import Replica as Kind
from rllib_scale.config.schedulers import RuleSpec, parse_scheduler
from rllib_scale.live.holding import HoldingRouter, check_used
from rllib_scale.live.requests import Demand, Replica, RouterSettings
from rllib_scale.policies.policy import save_weights
from rllib_scale.schedulers.release import ReleaseIndex
from rllib_scale.schedulers.replicas import REPLICA_RULES
from rllib_scale.simulator.replicas.gate import GATE_TERMS, PLACE_TERMS
from rllib_scale.simulator.replicas.rules import run
from rllib_scale.simulator.replicas.scripts import joined
from rllib_scale.simulator.replicas.state import NONE, START, TASK, TREE, new_fleet
from rllib_scale.workloads.random_numbers import new_generator
from rllib_scale.zoo import folder_of
from simulator.replicas.fleets import TRAINED

RULES = (
    "least-outstanding:gate=1",
    "session-affinity:gate=0.8,order=200,head_after_s=60",
    "two-choices:gate=1,offers=2",
    "round-robin-replica:gate=1",
    "bounded-affinity:gate=1,order=3",
    "lmetric:gate=0.9,order=300,active_for_s=9",
    "lmetric",
    "cache-aware:gate=0.8,order=200,balance_abs_threshold=2,head_after_s=20",
    "weighted-scores:gate=1,running_requests=1,offers=1",
)
TOKENS, ACTIVE_FOR_S, SEED = 10_000, 30.0, 7
"""Prompts are multiples of TOKENS, so that a replica has room for one without its answer only if it has for both."""
MEMORY = [119 * TOKENS + 9_999, 76 * TOKENS + 9_999, 95 * TOKENS + 9_999]
PREFIXES = np.array([0, 8, 17]) * TOKENS


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
    tasks["prompt"] = np.minimum(np.cumsum(rng.integers(0, 25, 6)) + 1 + PREFIXES[prefix] // TOKENS, 90) * TOKENS
    tasks["output"], tasks["needs"] = rng.integers(20, 8000, 6), np.arange(6) > 0
    tasks["reusable"][1:] = tasks["prompt"][:-1]
    tasks["gap_s"] = rng.exponential(12.0, 6)
    return tasks, [[number + 1] for number in range(5)] + [[]]


def episode(values: np.ndarray, seed: int, sessions: int) -> np.ndarray:
    """All calls of an episode under a rule's values, and the prefix of each."""
    rng = np.random.default_rng(seed)
    starts = np.zeros(sessions, START)
    starts["script"], starts["at_s"] = np.arange(sessions), np.cumsum(rng.exponential(4.0, sessions))
    scripts = joined([script(rng) for _ in range(sessions)], np.array([(NONE, 0), (NONE, 0)], TREE))
    kinds = [Kind(kv_tokens=tokens, request_s=0.0) for tokens in MEMORY]
    fleet = new_fleet(kinds, scripts.arrays, starts, 4, False, ACTIVE_FOR_S)
    parts = list[np.ndarray]()
    run(fleet, 1e6, values, new_generator(SEED, 0), parts, "own")
    calls = np.concatenate(parts)
    assert len(calls) == sessions * 6
    prefix = scripts.arrays[1]["prefix"].reshape(sessions, 6)
    return np.array(
        [(each, 1 + prefix[each["script"], each["call"]]) for each in calls], [("call", calls.dtype), ("prefix", int)]
    )


def agree(rule: str, seed: int, sessions: int) -> None:
    """A router is told of the asks and ends of an episode, and decides what was decided there."""
    spec = parse_scheduler(rule)
    assert isinstance(spec, RuleSpec)
    made: Any = REPLICA_RULES[spec.name](spec.parameters)
    same_decisions(made, made.values, rule, seed, sessions)


def agree_on_release(seed: int, sessions: int, folder: Path) -> None:
    """The same, where an index of drawn weights says which held call goes."""
    rng = np.random.default_rng(seed)
    base = f"lmetric:gate=0.9,order={rng.choice([0, 30, 300])},head_after_s={rng.choice([9, 40, 1e6])}"
    index = ReleaseIndex(rng.normal(size=ReleaseIndex.size()) * (rng.random(ReleaseIndex.size()) < 0.5), base)
    index.weights[: len(GATE_TERMS) + len(PLACE_TERMS)] *= 0.1 * (rng.random() < 0.7)
    trial = TrialConfig.of("release", env=TRAINED, algorithm={"base": base})
    save_weights(folder, {"weights": index.weights[:, None]}, trial, 1)
    same_decisions(index.rule, index.values, str(folder), seed, sessions)


def same_decisions(made: Any, values: np.ndarray, rule: str, seed: int, sessions: int) -> None:
    """A router and an engine make the same decisions by a rule, which `made` them and has these values."""
    played = episode(values, seed, sessions)
    assume(len(np.unique(played["call"]["end_s"])) == len(played))  # as on a real clock
    router = Router(
        RouterSettings(scheduler=rule, replica={"kv_tokens": MEMORY[0]}, active_for_s=ACTIVE_FOR_S, seed=SEED)
    )
    replicas = [Replica(f"r{at}", 1000, 1.0, 1.0, kv_tokens=tokens) for at, tokens in enumerate(MEMORY)]
    router.round(replicas, {})
    events = [(float(each["call"]["asked_s"]), 1, key) for key, each in enumerate(played)]
    events += [(float(each["call"]["end_s"]), 0, key) for key, each in enumerate(played)]
    active_for_s = dict(made.parameters)["active_for_s"] or ACTIVE_FOR_S
    events += [(float(each["call"]["end_s"]) + active_for_s, 2, key) for key, each in enumerate(played)]
    decided = dict[Any, tuple[float, str]]()
    for router.now_s, what, key in sorted(events):  # an end is acted on before the next call is asked, as in an episode
        call, prefix = played[key]["call"], int(played[key]["prefix"])
        if what == 0:
            router.leave(key)
        elif what == 1:
            shared = {"prefix": str(prefix), "prefix_tokens": int(PREFIXES[prefix])} if prefix else {}
            demand = Demand(session=str(call["session"]), prompt_tokens=int(call["prompt"]), **shared)
            router.arrive(key, demand, router.now_s)
        for started, name in router.round(replicas, {}):
            decided[started] = router.now_s, name
    expected = {
        key: (float(each["call"]["placed_s"]), f"r{each['call']['replica']}") for key, each in enumerate(played)
    }
    assert decided == expected
    if made.parameters.gate and sessions > 20:
        assert any(each["call"]["placed_s"] > each["call"]["asked_s"] for each in played), "the gate holds some"


@settings(max_examples=4, phases=[Phase.generate])
@given(st.sampled_from(RULES), st.integers(0, 2**32))
def test_a_router_decides_as_an_episode_by_its_own_memory(rule: str, seed: int) -> None:
    agree(rule, seed, 12)


@pytest.mark.slow
@settings(max_examples=18, phases=[Phase.generate])
@given(st.sampled_from(RULES), st.integers(0, 2**32))
def test_1000_events_have_the_decisions_of_an_episode(rule: str, seed: int) -> None:
    agree(rule, seed, 60)


@settings(max_examples=3, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_a_router_releases_as_an_episode(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    agree_on_release(seed, 12, tmp_path_factory.mktemp("release"))


@pytest.mark.slow
@settings(max_examples=30, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_1000_events_are_released_as_in_an_episode(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    agree_on_release(seed, 60, tmp_path_factory.mktemp("release"))


def test_no_request_reads_the_files_of_a_policy(tmp_path: Path) -> None:
    folder = shutil.copytree(folder_of("zoo:release"), tmp_path / "policy")
    settings = RouterSettings(scheduler=str(folder), replica={"kv_tokens": MEMORY[0]})
    check_used(settings, settings)
    router = Router(settings)
    shutil.rmtree(folder)
    demand = Demand(prompt_tokens=1000)
    check_used(demand, settings)
    router.arrive("a", demand, 0.0)
    assert router.round([Replica("r", 1000, 1.0, 1.0)], {}) == [("a", "r")]


def test_a_session_is_hashed_to_the_same_replica_by_any_router() -> None:
    """By its name, in whatever order sessions are heard of."""
    replicas, homes = [Replica(name, 1000, 1.0, 1.0) for name in "abc"], list[dict[Any, str]]()
    for order in (range(30), range(29, -1, -1)):
        router = Router(RouterSettings(scheduler="bounded-consistent-hashing:max_load_skew=100", replica="h100/8b"))
        for number in order:
            router.arrive(number, Demand(session=f"s{number}"), 0.0)
        homes.append(dict(router.round(replicas, {})))
    assert homes[0] == homes[1]
    assert len({*homes[0].values()}) == 3


def test_what_replicas_remember_stays_while_others_come_and_go() -> None:
    """A context, and the prefix that it begins with, is found by its replica's name; of one that is gone nothing is."""
    a, b, c = (Replica(name, 1000, 1.0, 1.0) for name in "abc")
    router = Router(RouterSettings(scheduler="cache-aware:balance_abs_threshold=1e6", replica={"kv_tokens": 10_000}))

    def asks(session: str, tokens: int, replicas: list[Replica], prefix: str = "p") -> str:
        demand = Demand(session=session, prompt_tokens=tokens, prefix=prefix, prefix_tokens=100)
        router.arrive(session, demand, router.now_s)
        ((_, name),) = router.round(replicas, {})
        router.leave(session)
        return name

    router.arrive("load", Demand(), 0.0)
    assert router.round([a, b], {}) == [("load", "a")]
    assert asks("k", 2000, [a, b]) == "b", "the fewest calls"
    assert asks("k", 2100, [c, b, a]) == "b"
    assert asks("l", 150, [c, b, a]) == "b", "by the prefix"
    for number in range(20):
        asks(f"other{number}", 150, [c, b, a], f"q{number}")
    assert asks("k", 2200, [b, c]) == "b"
    router.lost("b")
    router.arrive("more", Demand(), 0.0)
    assert router.round([b, c], {}) == [("more", "b")]
    assert asks("k", 2300, [b, c]) == "c", "nothing of it is known"
