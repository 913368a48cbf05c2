"""The engine of a live cluster: the recorded events of an episode, told from outside, give the same decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from live.problems import DIAMOND, set_fields, task, work
from live.problems import problem as small
from reference.cases import labelled, random_mode_config, random_mode_workload
from reference.changes import change_events
from rllib_scale.config import EnvConfig, TierConfig, scenario
from rllib_scale.observation.answers import OUTCOMES
from rllib_scale.observation.policy import Batch, Policy
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.observation.starting import Starting
from rllib_scale.schedulers.base import BasePolicy
from rllib_scale.schedulers.rules import RULES, make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.simulator.virtual_time import VirtualTime
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import TASK_DEMAND, Workload
from seeds import each_of

FIELDS = [name for name in Snapshot.__dataclass_fields__ if name not in ("workflows", "candidates", "index")]


class Recorded:
    """The events of an episode that was played, told to an engine at their times."""

    def __init__(self, engine: EventEngine, played: Engine, workload: Workload) -> None:
        self.engine, self.workload, env = engine, workload, played.config
        schedule = played.schedule()
        self.ends = {(int(r["workflow"]), int(r["task"]), float(r["start_s"])): r for r in schedule}
        changes = change_events(env.cluster, 0, 0, env.episode.horizon_s)
        self.changes, self.told = changes, -1.0
        self.certain = {*workload.arrival_s.tolist(), *(time for time, *_ in changes)}  # whatever is decided
        until = float(played.clock[0])  # servers may come and go after the last task
        self.times = sorted(t for t in {*self.certain, *schedule["finish_s"].tolist()} if t <= until)

    def __call__(self) -> bool:
        engine = self.engine
        if not engine.attempts and min([engine.next_release_s, *(t for t in self.certain if t > self.told)]) == np.inf:
            engine.start_any()
        self.told = min([engine.next_release_s, *(t for t in self.times if t > self.told)], default=np.inf)
        if not self.told < np.inf:
            return False
        engine.advance(self.told)
        for attempt in engine.running():
            row = self.ends[attempt.workflow, attempt.task, attempt.start_s]
            if row["finish_s"] == engine.now and row["outcome"] == "finished":
                engine.ended(attempt)
        while (number := engine.next_number) < self.workload.num_workflows:
            if self.workload.arrival_s[number] > engine.now:
                break
            engine.arrive(
                number,
                float(self.workload.arrival_s[number]),
                *self.workload.demands_and_edges(number, engine.config.cluster),
            )
        for time, event, server in self.changes:
            if time == engine.now:
                {"fail": engine.leave, "join": engine.join}[event](server)
        return True


def random_problem(rng: np.random.Generator) -> tuple[EnvConfig, Workload]:
    """Any mode that a live cluster plays."""
    env = random_mode_config(rng)
    content = random_mode_workload(rng, env, False)
    if rng.random() < 0.5:
        env, content = labelled(env, content, int(rng.integers(1000)))
    workload = Workload.from_dict(content, "random")
    env = set_fields(env, "episode", max_decisions=None, idle_advance="event", horizon_s=1e6)
    env = set_fields(env, "decision", on_busy="reserve")
    env = set_fields(env, "information", estimate_error=0.0, straggler_share=0.0, workflows="whole")
    fails = [{"time_s": 2.5, "event": "fail", "servers": [0]}, {"time_s": 6.25, "event": "join", "servers": [0]}]
    return set_fields(env, "cluster", changes={"schedule": fails}), workload


class AnyAnswers(BasePolicy):
    """Names any server for each task that waits, and compares what both engines show."""

    name = "any"

    def __init__(self, per_task: bool) -> None:
        super().__init__()
        self.per_task, self.runs = per_task, []

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        super().reset(seeds)
        self.runs.append([])

    def advance(self, batch: Batch) -> None:
        now, rng = batch.snapshot(), self.generators[0]
        if not self.runs[-1] and not Starting(now).can_start.any():
            # An episode begins once a task can start: until then nothing is drawn, nor has anybody seen what is new.
            batch.dispatch(np.zeros((0, 4), dtype=np.int64))
            return
        env = batch.view().env.copy()
        observed = (batch.observation.copy(), batch.fit.copy()) if self.per_task else ()
        self.runs[-1].append((now, {n: now.workflow(n) for n in now.workflows}, env, *observed))
        if self.per_task:
            assert isinstance(batch, Engine)
            batch.step([int(rng.choice(np.flatnonzero(batch.mask[0])))])
            return
        starts = []
        free, places = now.free_memory_gb.copy(), now.max_concurrent - now.num_running
        for row in now.ready:
            for server in rng.permutation(np.flatnonzero(now.idle)).tolist():
                lacks = row["labels"] & ~now.properties["labels"][server]
                has_room = places[server] >= row["places"] and row["memory_gb"] <= free[server]
                if has_room and not lacks and rng.random() < 0.7:
                    starts.append((0, row["workflow"], row["task"], server))
                    free[server] -= row["memory_gb"]
                    places[server] -= row["places"]
                    break
        batch.dispatch(np.array(starts, dtype=np.int64).reshape(-1, 4))


def check_same(ours: list[tuple], theirs: list[tuple]) -> None:
    assert len(ours) == len(theirs)
    for (live, flows, *observed), (simulated, others, *expected) in zip(ours, theirs, strict=True):
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(live, name), getattr(simulated, name), name)
        assert list(flows) == list(others)
        for number in flows:
            for name in flows[number].__dataclass_fields__:
                np.testing.assert_array_equal(getattr(flows[number], name), getattr(others[number], name), name)
        for one, other in zip(observed, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def play_both(policy: Policy, env: EnvConfig, workload: Workload) -> tuple[EventEngine, Engine]:
    """In the simulator, and with the events of that from outside."""
    env = policy.problem(env)
    simulated = Engine(env)
    simulated.reset([0], [0], workload=workload)
    policy.reset([(0, 0)])
    while not simulated.done[0]:
        policy.advance(simulated)
    live = EventEngine(env)
    policy.reset([(0, 0)])
    live.play(policy, Recorded(live, simulated, workload))
    return live, simulated


def check_same_end(live: EventEngine, simulated: Engine) -> None:
    ours, theirs = live.schedule(), simulated.schedule()
    for column in theirs.dtype.names:
        np.testing.assert_array_equal(ours[column], theirs[column], column)
    found, expected = live.metrics(), simulated.metrics()
    for name in set(expected) - {"episode_return"}:
        assert found[name] == pytest.approx(expected[name], rel=1e-9, nan_ok=True), name


@each_of(range(400), by_default=30)
def test_any_recorded_episode_is_played_again(case: int) -> None:
    """Every state that is shown, every decision and every attempt, whoever decides; servers fail and join."""
    rng = np.random.default_rng([case, 49])
    env, workload = random_problem(rng)
    policy = AnyAnswers(per_task=case % 2 == 0)
    live, simulated = play_both(policy, env, workload)
    episode, told = policy.runs
    # The first decision of an episode is for a task on offer, whoever decides: no sooner than some server is open.
    check_same([moment for moment in told if moment[0].clock_s >= episode[0][0].clock_s], episode)
    check_same_end(live, simulated)


@each_of(range(440), by_default=22)
def test_a_rule_that_answers_a_whole_round_decides_as_if_it_were_asked_task_by_task(case: int) -> None:
    """The simulator asks it for one task after another; random numbers are the same, too."""
    rng = np.random.default_rng([case, 8])
    env, workload = random_problem(rng)
    name = list(RULES)[case % len(RULES)]
    check_same_end(*play_both(make_scheduler(name, env.observation, env.episode.mask), env, workload))


def served(*workflows: tuple[float, list[dict[str, float]], list[list[int]]], **options: Any) -> EventEngine:
    """Workflows that have arrived at 0, and nothing decided; servers of 8 GB, and of 16 GB with two places."""
    engine = EventEngine(small(), **options)
    given = work(*workflows)
    for number in range(given.num_workflows):
        engine.arrive(number, 0.0, *given.demands_and_edges(number, engine.config.cluster))
    return engine


def outcome(engine: EventEngine, workflow: int, task: int, server: int) -> str:
    return OUTCOMES[engine.answer(0, workflow, task, server)]


def test_a_task_that_is_stopped_keeps_its_place_and_memory_until_it_has_ended() -> None:
    """Of three tasks on the fast server's two places; the first workflow is given up."""
    engine = served((0.0, [task(8)], []), (0.0, [task(4), task(4)], []))
    assert [outcome(engine, *answer, 1) for answer in ((0, 0), (1, 0))] == ["started", "started"]
    engine.advance(0.5)
    (stopped,) = engine.give_up(0)
    now = engine.snapshot()
    assert (now.num_running.tolist(), now.free_memory_gb.tolist()) == ([0, 2], [8.0, 8.0])
    assert now.running[["workflow", "task", "server"]].tolist() == [(1, 0, 1)]
    assert list(now.workflows) == [1]
    assert outcome(engine, 1, 1, 1) == "busy"
    engine.stopped(stopped)
    now = engine.snapshot()
    assert (now.num_running.tolist(), now.free_memory_gb.tolist()) == ([0, 1], [8.0, 12.0])
    assert outcome(engine, 1, 1, 1) == "started"
    assert engine.schedule()["outcome"].tolist() == ["failed", "running", "running"]
    assert engine.metrics()["unfinished"] == 3


def test_a_task_outlives_its_expected_end_and_ends_when_it_is_said_to() -> None:
    engine = served((0.0, [task(4), task(4)], [[0, 1]]))
    assert outcome(engine, 0, 0, 0) == "started"
    (attempt,) = engine.running()
    assert attempt.expected_end_s == 4.0
    assert not engine.advance(9.0)
    assert engine.is_running(attempt)
    assert engine.snapshot().running["expected_end_s"].tolist() == [4.0]
    assert (engine.num_waiting, engine.metrics()["completed"]) == (0, 0)
    assert engine.metrics()["utilisation"] == pytest.approx(9 / 27)
    engine.ended(attempt)
    assert engine.schedule()[["start_s", "finish_s"]].tolist() == [(0.0, 9.0)]
    assert engine.snapshot().ready[["task", "ready_s"]].tolist() == [(1, 9.0)]


def test_a_lost_output_is_made_again_and_what_needs_it_waits() -> None:
    """Of a diamond: one of the two in the middle waits, the other runs."""
    engine = served((0.0, [task(1)] * 4, DIAMOND))
    assert outcome(engine, 0, 0, 0) == "started"
    engine.advance(1.0)
    engine.ended(*engine.running())
    assert outcome(engine, 0, 1, 1) == "started"
    (runs,) = engine.running()
    engine.advance(2.0)
    engine.lost(0, 0)
    assert engine.snapshot().ready["task"].tolist() == [0]
    assert engine.metrics()["completed"] == 0
    engine.failed(runs)  # its input was lost
    assert engine.snapshot().ready["task"].tolist() == [0], "it waits for what it had before"
    assert outcome(engine, 0, 0, 0) == "started"
    engine.advance(3.0)
    engine.ended(*engine.running())
    assert engine.snapshot().ready["task"].tolist() == [1, 2]
    assert engine.metrics()["response_mean_s"] == 3.0


@pytest.mark.parametrize("name", ["heft", "cpop"])
def test_a_planner_runs_a_failed_task_again_and_forgets_a_workflow_that_is_given_up(name: str) -> None:
    """On one server: a chain, and two workflows behind it, of which the first is given up."""
    one = TierConfig(name="one", count=1, compute_gflops=1.0, memory_gb=8.0)
    given = work((0.0, [task(2), task(2)], [[0, 1]]), (1.0, [task(4)], []), (1.5, [task(1)], []))
    engine = EventEngine(small((one,)))
    time, planner = VirtualTime(engine, given), make_scheduler(name, engine.config.observation)
    planner.reset([(0, 0)])
    engine.begin(planner.per_task, time)
    planner.advance(engine)  # task 0 of the chain starts, and workflow 1 arrives
    engine.failed(*engine.running())
    planner.advance(engine)  # it starts again, ahead of its follower, which is planned before it
    engine.give_up(1)
    while not engine.done[0]:
        planner.advance(engine)
    schedule = engine.schedule()
    finished = schedule[schedule["outcome"] == "finished"]
    assert finished[["workflow", "task", "start_s"]].tolist() == [(0, 0, 1.0), (0, 1, 3.0), (2, 0, 5.0)]


@pytest.mark.parametrize("name", ["adaptive-price", "earliest-finish"])
def test_rows_of_what_has_ended_are_used_again_and_decide_the_same(name: str) -> None:
    """Workflows that stay long hold nobody up; inputs, waiting tasks and what a view has counted move with them."""
    env = set_fields(scenario("steady-0.7"), "episode", horizon_s=3000.0, arrivals_until_s=2000.0)
    given = generate(env, 3, 0)
    rule = make_scheduler(name, env.observation, "feasible")

    def slow_tenth(attempt: Attempt) -> float:
        return attempt.start_s + attempt.expected_s * (200 if attempt.number == 9 else 1)

    kept, sizes = [], []
    for keeps_ended in (True, False):
        starts: list[Attempt] = []
        engine = EventEngine(rule.problem(env), starts.append, keeps_ended)
        rule.reset([(0, 0)])
        engine.play(rule, VirtualTime(engine, given, end_s=slow_tenth))
        kept.append([attempt._replace(place=0) for attempt in starts])
        sizes.append(sum(engine.memory()))
    assert kept[0] == kept[1]
    assert len(kept[0]) == given.num_tasks
    assert sizes[1] < 0.2 * sizes[0]


def test_what_waits_for_servers_that_are_gone_is_hopeless() -> None:
    tiers = [TierConfig(name=n, count=1, compute_gflops=1, memory_gb=g, labels=[n]) for n, g in (("a", 8), ("b", 16))]
    engine = EventEngine(small(tuple(tiers)))
    needs = [(1.0, 4.0, 0.0, 0.0, 1, 0), (1.0, 12.0, 0.0, 0.0, 1, 0), (1.0, 4.0, 0.0, 0.0, 1, 0b01)]
    for number, need in enumerate(needs):
        engine.arrive(number, 0.0, np.array([need], dtype=TASK_DEMAND), np.zeros((0, 2)))
    assert engine.hopeless([0, 1]) is None
    assert engine.hopeless([0]) == (1, 0)
    assert engine.hopeless([1]) == (2, 0)
    assert engine.hopeless([]) is not None


def test_whatever_is_forgotten_between_two_views_each_workflow_is_new_once() -> None:
    """Two of three end before anybody looks; the third ones wait."""
    engine, one = EventEngine(small(), keeps_ended=False), np.array([(1.0, 1.0, 0.0, 0.0, 1, 0)], dtype=TASK_DEMAND)
    wait: set[int] = set()
    shown: set[int] = set()
    for number in range(300):
        engine.advance(float(number))
        engine.arrive(number, float(number), one, np.zeros((0, 2)))
        wait.add(number)
        if number % 50 == 7:
            view = engine.view()
            count = int(view.env["num_new"][0])
            assert view.env["tasks_in_system"][0] == engine.num_waiting == len(wait)
            assert view.new["arrival_s"][0, :count].tolist() == sorted(wait - shown)
            shown |= wait
        if number % 3:
            assert outcome(engine, number, 0, 0) == "started"
            engine.ended(*engine.running())
            wait.remove(number)
    assert len(shown) > 80
