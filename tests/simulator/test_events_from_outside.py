"""Events in any order, with numbers of nobody: each acts as a literal account says, or is one error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from live.problems import problem, set_fields, task, work
from rllib_scale.config import EnvConfig, TierConfig, scenario
from rllib_scale.errors import UserError
from rllib_scale.observation.answers import OUTCOMES
from rllib_scale.observation.snapshot import AWAY, UP
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.model import TASK_DEMAND
from seeds import each_of
from simulator.account import ENDED, RUNS, STOPS, WAITS, Account, NotPossibleError

EVENTS = 100
"""In a play."""
NOBODY = (-1, -2, -7, 99, 10**6, 2**40, 2**62, 2**63, 10**30)
TIERS = (
    TierConfig(name="slow", count=1, compute_gflops=1.0, memory_gb=8.0),
    TierConfig(name="fast", count=1, compute_gflops=4.0, memory_gb=16.0, max_concurrent=2, slowdown=0.5),
    TierConfig(name="wide", count=1, compute_gflops=2.0, memory_gb=32.0, max_concurrent=4, labels=("eu", "gpu")),
)


class Play:
    """An engine and the account of it, to which the same is told."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        tiers = tuple(tier for tier in TIERS if self.rng.random() < 0.8) or TIERS[:1]
        env = set_fields(problem(tiers), "decision", on_busy=str(self.rng.choice(["reserve", "step"])))
        predecessors = str(self.rng.choice(["first", "all"]))
        self.env: EnvConfig = set_fields(env, "communication", mode="transfer", predecessors=predecessors)
        self.started: list[Attempt] = []  # all that ever did
        self.engine = EventEngine(self.env, self.started.append, keeps_ended=bool(self.rng.random() < 0.5))
        self.account = Account(self.env)
        self.happened = Counter[str]()

    # ---------------------------------------------------------------- numbers, of somebody and of nobody

    def one_of(self, known: Any, nobody: Any = NOBODY) -> Any:
        known = list(known)
        if not known or self.rng.random() < 0.15:
            return nobody[self.rng.integers(len(nobody))]
        return known[self.rng.integers(len(known))]

    def server(self) -> int:
        return int(self.one_of(range(len(self.account.servers))))

    def a_task(self, *statuses: str) -> tuple[int, int]:
        """Often one of these statuses."""
        every = [(f.number, k, t) for f in self.account.flows.values() for k, t in enumerate(f.tasks)]
        liked = [(number, k) for number, k, t in every if t.status in statuses]
        number, k = self.one_of(liked or [each[:2] for each in every], [(n, 0) for n in NOBODY])
        return (number, k) if self.rng.random() < 0.9 else (number, int(self.one_of(range(5))))

    def attempt(self, status: str) -> Attempt | None:
        """Often one whose task is in that state; None: there was never any."""
        every = self.account.held.values()
        held = [attempt for attempt, task in every if task.status == status] or [attempt for attempt, _ in every]
        if not self.started:
            return None
        stale: Any = [*self.started[-20:], self.started[-1]._replace(place=10**6)]
        return self.one_of(held, stale)

    def time(self) -> float:
        return float(self.one_of([self.account.now, self.account.now - 0.5], [np.nan, np.inf, self.account.now + 9.0]))

    # ---------------------------------------------------------------- events

    def both(self, name: str, *about: Any, ours: tuple | None = None) -> Any:
        """Tell both; the account's answer, or None where both refuse."""
        before = shown(self.engine)
        try:
            expected = getattr(self.account, name)(*(about if ours is None else ours))
        except NotPossibleError:
            with pytest.raises(ValueError, match=r"^[^\n]+$"):
                getattr(self.engine, name)(*about)
            assert shown(self.engine) == before, name
            self.happened[f"{name} refused"] += 1
            return None
        found = getattr(self.engine, name)(*about)
        self.happened[name] += 1
        if name == "give_up":
            assert {(a.workflow, a.task) for a in found} == expected
        return expected

    def advance(self) -> None:
        now = self.account.now
        self.both("advance", float(self.one_of([now, now - 1.0, now + self.rng.exponential()], [np.nan, np.inf])))

    def arrive(self) -> None:
        count = int(self.rng.integers(1, 6))
        draw = self.rng.integers
        demands: list[tuple] = [
            (float(draw(0, 4)), float(draw(0, 9)), float(draw(0, 3)), float(draw(0, 3) // 2), int(draw(1, 4)), 0)
            for _ in range(count)
        ]
        demands = [(*d[:5], int(self.rng.choice([0, 0, 0, 1, 2, 3]))) for d in demands]
        edges = [(a, b) for a in range(count) for b in range(a + 1, count) if self.rng.random() < 0.4]
        moved = [float(draw(0, 5)) for _ in edges] if self.rng.random() < 0.5 else None
        home = int(self.one_of([-1, -1, *range(len(self.account.servers))], [7, -2, 10**6]))
        if home >= 0:
            edges = [edge for edge in edges if edge[1] != 0]
        number = self.one_of([self.account.next_number, self.account.next_number + 3], [0, -1, 2**62, 10**30])
        demands, edges, moved = self._spoiled(demands, edges, moved)
        needs = np.array(demands, dtype=TASK_DEMAND)
        links = np.array(edges, dtype=np.int64).reshape(-1, 2)
        told = number, self.time(), needs, links, None if moved is None else np.array(moved), home
        self.both("arrive", *told, ours=(number, told[1], demands, edges, moved, home))

    def _spoiled(self, demands: list, edges: list, moved: list | None) -> tuple[list, list, list | None]:
        """Sometimes one thing of a workflow is wrong."""
        spoil, at = int(self.rng.integers(20)), int(self.rng.integers(len(demands)))
        if spoil == 0:
            demands[at] = (*demands[at][:1], float(self.rng.choice([-1.0, np.nan, np.inf])), *demands[at][2:])
        elif spoil == 1:
            demands[at] = (*demands[at][:4], 0, 0)
        elif spoil == 2:
            edges.append((at, int(self.one_of(range(len(demands)), [9, -1, 10**6]))))
        elif spoil == 3:
            edges = sorted([*edges, (0, 1), (1, 0)])
        elif spoil == 4:
            demands, edges, moved = [], [], None
        elif spoil == 5:
            moved = [*(moved or []), -1.0]
        return demands, edges, moved

    def ended(self) -> None:
        if (attempt := self.attempt(RUNS)) is not None:
            self.both("ended", attempt)

    def failed(self) -> None:
        if (attempt := self.attempt(RUNS)) is not None:
            self.both("failed", attempt)

    def stopped(self) -> None:
        if (attempt := self.attempt(STOPS)) is not None:
            self.both("stopped", attempt)

    def lost(self) -> None:
        self.both("lost", *self.a_task(ENDED))

    def give_up(self) -> None:
        self.both("give_up", self.one_of(self.account.flows))

    def join(self) -> None:
        self.both("join", self.server())

    def leave(self) -> None:
        self.both("leave", self.server())

    def resume(self) -> None:
        about = (*self.a_task(WAITS), self.server(), self.time())
        before = shown(self.engine)
        try:
            is_room = self.account.resume(*about)
        except NotPossibleError:
            with pytest.raises(ValueError, match=r"^[^\n]+$"):
                self.engine.resume(*about)
            assert shown(self.engine) == before
            return
        found = self.engine.resume(*about)
        assert (found is not None) == is_room
        if found is not None:
            assert found.start_s == about[3]
            self.started.append(found)
            self.account.start(found, is_resumed=True)
            self.happened["resume"] += 1

    def answers(self) -> None:
        """A round: several answers for tasks and servers, of which there may be none."""
        for _ in range(int(self.rng.integers(1, 5))):
            self._answer(*self.a_task(WAITS), self.server())
        self._end_round()

    def _answer(self, number: int, at: int, server: int) -> None:
        try:
            expected = self.account.answer(number, at, server)
        except NotPossibleError:
            with pytest.raises(ValueError, match=r"^[^\n]+$"):
                self.engine.answer(0, number, at, server)
            return
        self._compare_start(expected, number, at, server, lambda: self.engine.answer(0, number, at, server))

    def _compare_start(self, expected: str, number: int, at: int, server: int, ask: Callable[[], int]) -> None:
        flow, count = self.account.flows[number], len(self.started)
        lasts = self.account.lasts_s(flow, flow.tasks[at], server) if expected == "started" else 0.0
        assert OUTCOMES[ask()] == expected
        assert len(self.started) - count == (expected == "started")
        if expected == "started":
            attempt = self.started[-1]
            assert (attempt.workflow, attempt.task, attempt.server) == (number, at, server)
            assert attempt.start_s == self.account.now
            assert attempt.expected_s == pytest.approx(lasts)
            self.account.start(attempt)
        self.happened[expected] += 1

    def step(self) -> None:
        """An action for the task on offer, if there is any; else, or with one of nobody, an error."""
        asks, rows = iter([self.rng.random() < 0.8]), len(self.account.servers)
        self.engine.begin(True, lambda: next(asks, False))
        offers = [] if self.engine.done[0] else self.engine.offers()
        action = int(self.one_of(range(rows), [-1, rows, rows + 1, -(10**6), 10**6, 2**62]))
        if offers and 0 <= action < rows:
            expected = self.account.answer(*offers[0], action)

            def ask() -> int:
                self.engine.step([action])
                return int(self.engine.outcome[0])

            self._compare_start(expected, *offers[0], action, ask)
        elif not (offers and action == rows):  # it passes
            with pytest.raises(ValueError, match=r"^[^\n]+$"):
                self.engine.step([action])
        self._end_round()

    def start_any(self) -> None:
        first, count, answered = self.account.any_start(), len(self.started), self.engine.outcomes.tolist()
        self.engine.start_any()
        assert self.engine.outcomes.tolist() == answered, "it is no decision"
        if first is not None:
            attempt = self.started[-1]
            assert (attempt.workflow, attempt.task, attempt.server) == first
            self.account.start(attempt)
            self.happened["start_any"] += 1
        assert len(self.started) - count == (first is not None)

    def _end_round(self) -> None:
        self.engine.dispatch(np.zeros((0, 4), dtype=np.int64))
        self.account.end_round()

    # ---------------------------------------------------------------- what both show

    def compare(self) -> None:
        engine, account = self.engine, self.account
        now, servers = engine.snapshot(), range(len(account.servers))
        is_there = [server.is_there for server in account.servers]
        assert now.clock_s == account.now
        assert now.status.tolist() == [UP if there else AWAY for there in is_there]
        assert [engine.is_there(j) for j in servers] == is_there
        free, places = zip(*(account.free(j) for j in servers), strict=True)
        assert now.num_running.tolist() == [s.places - p for s, p in zip(account.servers, places, strict=True)]
        expected = [gb if there else 0.0 for gb, there in zip(free, is_there, strict=True)]
        assert now.free_memory_gb.tolist() == pytest.approx(expected)
        every = [(f.number, k, t) for f in account.flows.values() for k, t in enumerate(f.tasks)]
        waits = {(number, k, t.ready_s, t.places, t.labels) for number, k, t in every if t.status == WAITS}
        assert {tuple(row) for row in now.ready[["workflow", "task", "ready_s", "places", "labels"]].tolist()} == waits
        assert engine.num_waiting == len(waits)
        runs = sorted((t.server, number, k) for number, k, t in every if t.status == RUNS)
        assert [tuple(row) for row in now.running[["server", "workflow", "task"]].tolist()] == runs
        assert sorted((a.server, a.workflow, a.task) for a in engine.running()) == runs
        assert {id(a) for a in engine.attempts.values()} == {id(a) for a, _ in account.held.values()}
        assert sorted(now.workflows) == sorted(account.flows)
        for number, flow in account.flows.items():
            ended = [t.status == ENDED for t in flow.tasks]
            assert now.workflow(number).completed.tolist() == ended
            assert [engine.has_ended(number, k) for k in range(len(ended))] == ended
        assert engine.next_release_s == min((t.due_s for _, _, t in every), default=np.inf)
        assert (engine.num_started, engine.num_ended) == (account.num_started, account.num_ended)
        spent = account.stayed_s + sum(account.now - flow.arrival_s for flow in account.flows.values())
        assert engine.spent_s() == pytest.approx(spent, abs=1e-6)


def shown(engine: EventEngine) -> Any:
    """All that one can see of an engine."""
    now = engine.snapshot()
    rows = (now.clock_s, now.num_arrived, now.free_memory_gb, now.num_running, now.status, now.running, now.ready)
    flows = [(n, now.workflow(n).completed, now.workflow(n).server) for n in now.workflows]
    counts = engine.num_started, engine.num_ended, engine.next_number, sorted(engine.stopping), engine.spent_s()
    return [np.asarray(row).tolist() for row in rows], [(n, c.tolist(), s.tolist()) for n, c, s in flows], counts


EACH = (
    ("answers",) * 8 + ("advance", "arrive", "ended") * 4 + ("lost", "resume", "join") * 3 + ("failed", "stopped") * 2
)
EACH += ("give_up", "leave", "step", "start_any")


@each_of(range(100), by_default=6)
def test_each_event_acts_or_is_one_error_and_nothing_has_changed(case: int) -> None:
    """10,000 events in all."""
    play = Play(case)
    for _ in range(EVENTS):
        getattr(play, EACH[play.rng.integers(len(EACH))])()
        play.compare()


def test_all_kinds_of_events_happen_in_such_plays() -> None:
    happened = Counter[str]()
    for case in range(6):
        play = Play(case)
        for _ in range(EVENTS):
            getattr(play, EACH[play.rng.integers(len(EACH))])()
        happened += play.happened
    assert {*EACH, "started", "no_fit", "passed"} - {"answers", "step"} <= {name for name in happened}
    assert {f"{name} refused" for name in ("arrive", "ended", "lost", "give_up", "join", "leave")} <= {*happened}


def test_what_no_event_says_is_refused() -> None:
    for name in ("estimates-30", "stragglers"):
        with pytest.raises(UserError, match=r"information\.\w+: is not supported on a live cluster or by a router"):
            EventEngine(scenario(name))
    revealed = set_fields(scenario("steady-0.7"), "information", workflows="revealed")
    with pytest.raises(UserError, match=r"information\.workflows: .*; valid: whole"):
        EventEngine(revealed)


def test_the_servers_that_a_new_policy_sees_are_in_its_units() -> None:
    """Also those that leave and join after it has taken over."""
    env, engine = problem(TIERS), EventEngine(problem(TIERS))
    other = set_fields(env, "observation", server_compute_max_gflops=32.0, memory_max_gb=64.0, feature_set="rounds")
    engine.change_problem(other)
    engine.leave(1)
    engine.join(1)
    asks, given = iter([True]), work((0.0, [task(1)], []))
    engine.arrive(0, 0.0, *given.demands_and_edges(0, env.cluster))
    engine.begin(True, lambda: next(asks, False))
    fresh, asks = EventEngine(other), iter([True])
    fresh.arrive(0, 0.0, *given.demands_and_edges(0, env.cluster))
    fresh.begin(True, lambda: next(asks, False))
    assert engine.observation[0].tolist() == fresh.observation[0].tolist()
