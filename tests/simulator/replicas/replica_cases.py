"""Random small fleets: memory is short, prompts are chunked, calls are preempted, contexts are found and evicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from reference.gate import Gate, GateSettings
from reference.replica import Call
from rllib_scale.compiled import compiled
from rllib_scale.config.replicas import Replica
from rllib_scale.simulator.replicas.gate import open_to
from rllib_scale.simulator.replicas.handles import fleet_handles, fleet_of
from rllib_scale.simulator.replicas.known import EXACT
from rllib_scale.simulator.replicas.loop import answer, next_offer
from rllib_scale.simulator.replicas.scripts import Scripts, joined
from rllib_scale.simulator.replicas.state import DONE, NONE, START, TASK, TREE, Fleet, grown, new_fleet

TREES = np.array([(NONE, 0), (NONE, 0), (0, 5), (2, 11), (2, 11)], TREE)
"""Two prefixes, and others that go on from the first."""
ENDS = np.array([5, 12, 11, 16, 20])


@compiled
def advance(until_s, ended, table):  # type: ignore[no-untyped-def]
    """As `next_offer`, called from Python; `ended` is room for the calls of a replica."""
    fleet = fleet_of(table)
    return next_offer(fleet, fleet, EXACT, until_s, ended)


@compiled
def send(index, replica, table):  # type: ignore[no-untyped-def]
    """As `answer`, called from Python."""
    fleet = fleet_of(table)
    answer(fleet, fleet, index, replica)


@dataclass
class Case:
    replicas: list[Replica]
    scripts: Scripts
    starts: Any
    live: int
    closed_loop: bool
    until_s: float
    gate: GateSettings

    def prefers(self, session: int, call: int) -> list[int]:
        """Mostly where the session is, now and then elsewhere; then the next ones."""
        first = session + (call % 5 == 4)
        return [(first + more) % len(self.replicas) for more in range(len(self.replicas))]

    def preferred(self, gate: Gate, call: Call, openings: list[int]) -> list[int]:
        """The same for the independent model."""
        return [at for at in self.prefers(call.session, call.number) if at in openings]


def _script(rng: np.random.Generator, room: int) -> tuple[Any, list[list[int]]]:
    calls = int(rng.integers(1, 9))
    tasks, following = np.zeros(calls, TASK), [list[int]() for _ in range(calls)]
    agents = int(rng.integers(1, 3))
    prefix = rng.integers(NONE, len(TREES), agents)
    context = [0] * agents
    for number, task in enumerate(tasks):
        agent = int(rng.integers(agents))
        if rng.random() < 0.1:
            prefix[agent] = rng.integers(NONE, len(TREES))
        shared = 0 if prefix[agent] == NONE else int(ENDS[prefix[agent]])
        task["agent"], task["prefix"], task["prefix_tokens"] = agent, prefix[agent], shared
        task["output"] = int(rng.integers(1, 12 if rng.random() < 0.5 else min(60, room - shared)))
        goes_on = max(shared + rng.integers(0, 3), context[agent] * rng.random() * 1.2, 1)
        task["prompt"] = int(min(room - task["output"], goes_on + rng.integers(0, 25)))
        task["reusable"] = int(min(context[agent], task["prompt"]) * (rng.random() < 0.8))
        context[agent] = int(task["prompt"] + task["output"])
        before = [n for n in range(number) if rng.random() < 0.5][-2:]
        task["needs"], task["gap_s"] = len(before), rng.exponential(0.5 if rng.random() < 0.8 else 1e-5)
        task["release_s"] = rng.exponential(5.0) if not before or rng.random() < 0.2 else -1.0
        task["turn"] = number // 3
        for need in before:
            following[need].append(number)
    return tasks, following


def random_case(seed: int) -> Case:
    rng, of_steps = np.random.default_rng(seed), np.random.default_rng([seed, 2])
    room = int(rng.integers(60, 200))
    replicas = [
        Replica(
            step_s=rng.uniform(0.01, 0.1),
            call_s=rng.uniform(0, 0.01),
            context_s=rng.uniform(0, 1e-3) * (rng.random() < 0.9),
            prefill_s=rng.uniform(0, 5e-3),
            attention_s=rng.uniform(0, 1e-4),
            request_s=rng.uniform(0, 0.05) * (rng.random() < 0.5),
            kv_tokens=room + int(rng.integers(0, 100)),
            token_budget=int(rng.integers(6, 40)),
            max_calls=int(rng.integers(1, 10)),
            keep_s=rng.uniform(0, 2) * (rng.random() < 0.3),
            overlap=of_steps.uniform(0, 1) * (of_steps.random() < 0.3),
        )
        for _ in range(int(rng.integers(1, 4)))
    ]
    # Each has a script of its own: calls of two sessions that are asked at the same time have no order in the models.
    scripts = joined([_script(rng, room) for _ in range(60)], TREES)
    closed, live = bool(rng.random() < 0.6), int(rng.integers(2, 13))
    starts = np.zeros(60, START)
    starts["script"] = np.arange(60)
    starts["at_s"] = np.cumsum(rng.exponential(0.3, 60))
    if closed:
        starts["skipped"][:live] = rng.random(live) * scripts.lengths[starts["script"][:live]]
    gate = GateSettings(
        gate=rng.uniform(0.2, 1.2) * (rng.random() < 0.8),
        active_for_s=rng.exponential(3.0) * (rng.random() < 0.9),
        ends_told=bool(rng.random() < 0.3),
        k=rng.uniform(0, 400) * (rng.random() < 0.7),
        head_after_s=rng.uniform(0.2, 4.0) if rng.random() < 0.5 else None,
        offers=int(rng.integers(1, 6)),
    )
    for number, replica in enumerate(replicas[1:], start=1):
        if rng.random() < 0.3:  # too small for some calls
            replicas[number] = replica.model_copy(update={"kv_tokens": int(room * rng.uniform(0.4, 1.0))})
    return Case(replicas, scripts, starts, live, closed, 15.0, gate)


@compiled
def _is_open(index, replica, weights, table):  # type: ignore[no-untyped-def]
    fleet = fleet_of(table)
    return open_to(fleet, fleet, index, replica, weights)


def played(case: Case, check: Any = None) -> Fleet:
    """The compiled model, where a call goes to the first replica that the case prefers, of those that are open."""
    of = case.gate
    gate = of.active_for_s, of.ends_told
    fleet = new_fleet(case.replicas, case.scripts.arrays, case.starts, case.live, case.closed_loop, *gate)
    fleet.now["gate"], fleet.now["order"], fleet.now["most_offers"] = of.gate, of.k, of.offers
    if of.head_after_s is not None:
        fleet.now["head_after_s"] = of.head_after_s
    ended = np.zeros(fleet.batch.shape[1], np.int64)
    while (index := advance(case.until_s, ended, fleet_handles(fleet))) != DONE:
        if index < 0:
            fleet = grown(fleet)
            continue
        call = fleet.calls[index]
        session = fleet.sessions[call["session"]]
        table = fleet_handles(fleet)
        prefers = case.prefers(int(session["number"]), int(call["call"]))
        send(index, next((to for to in prefers if _is_open(index, to, np.zeros(0), table)), NONE), table)
        if check is not None:
            check(fleet)
    return fleet


def assert_same(records: np.ndarray, calls: list[Call]) -> None:
    """The completed calls of both models are the same."""
    by_call = {(int(row["session"]), int(row["call"])): row for row in records}
    assert len(by_call) == len(records) == len(calls)
    for call in calls:
        row = by_call[call.session, call.number]
        facts = (call.replica, call.hit, call.prefilled, call.preemptions)
        assert tuple(int(row[key]) for key in ("replica", "hit", "prefilled", "preemptions")) == facts
        times = (call.asked, call.placed, call.admitted, call.first, call.end)
        names = ("asked_s", "placed_s", "admitted_s", "first_s", "end_s")
        assert [row[name] for name in names] == pytest.approx(times, rel=1e-9, abs=1e-9)
