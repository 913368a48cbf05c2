"""The live ledger against the simulator: the same moments, the same schedules, the same metrics. No Ray."""

from __future__ import annotations

import math

import numpy as np
import pytest

from live.problems import problem, set_fields, task, work
from live.virtual import VirtualBackend
from marks import slow
from reference.cases import random_mode_config, random_mode_workload
from rllib_scale.config import EnvConfig, TierConfig, scenario
from rllib_scale.live.ledger import Ledger
from rllib_scale.live.metrics import live_metrics
from rllib_scale.observation.answers import PASS
from rllib_scale.observation.backend import Answer, BackendBatch, run
from rllib_scale.observation.live_view import LiveView
from rllib_scale.observation.policy import Policy
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.rules import RULES, make_scheduler
from rllib_scale.simulator.backend import SimulatedBackend
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from seeds import each_of

FIELDS = [name for name in Snapshot.__dataclass_fields__ if name not in ("workflows", "candidates")]


def check_same_moment(live: Snapshot, simulated: Snapshot) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(live, name), getattr(simulated, name), name)
    assert sorted(live.workflows) == sorted(simulated.workflows)
    for number in live.workflows:
        ours, theirs = live.workflow(number), simulated.workflow(number)
        for name in ours.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)


class Both:
    """The simulator and the ledger as one backend: the same answers, and every state compared."""

    def __init__(self, live: VirtualBackend, simulated: SimulatedBackend) -> None:
        self.live, self.simulated = live, simulated

    def wait(self) -> Snapshot | None:
        return self._checked(self.live.wait(), self.simulated.wait())

    def snapshot(self) -> Snapshot:
        now = self._checked(self.live.snapshot(), self.simulated.snapshot())
        assert now is not None
        return now

    def apply(self, answer: Answer) -> str:
        outcome = self.live.apply(answer)
        assert outcome == self.simulated.apply(answer)
        return outcome

    @staticmethod
    def _checked(ours: Snapshot | None, theirs: Snapshot | None) -> Snapshot | None:
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            check_same_moment(ours, theirs)
        return theirs


def play_both(env: EnvConfig, workload: Workload, policy: Policy) -> tuple[VirtualBackend, SimulatedBackend]:
    played = policy.problem(env)
    both = Both(VirtualBackend(played, workload), SimulatedBackend(played, 3, 0, workload))
    policy.reset([(3, 0)])
    run(policy, both, played)
    return both.live, both.simulated


def check_same_end(live: VirtualBackend, simulated: SimulatedBackend, workload: Workload) -> None:
    ours, theirs = live.ledger.schedule(), simulated.engine.schedule()
    for column in theirs.dtype.names:
        np.testing.assert_array_equal(ours[column], theirs[column], column)
    found = live_metrics(workload, live.ledger, float(simulated.engine.clock[0]))
    expected = simulated.engine.metrics()
    assert list(found) == list(expected)
    for name in set(expected) - {"episode_return"}:
        assert found[name] == pytest.approx(expected[name], rel=1e-9, nan_ok=True), name
    assert math.isnan(found["episode_return"])


@pytest.mark.parametrize(
    ("named", "name", "count"),
    [
        ("steady-0.7", "heft", 50),
        ("coding-agents-0.7", "price", 20),
        slow("steady-0.7", "sticky", 50),
        slow("coding-agents-0.7", "reserve", 20),
    ],
)
def test_an_episode_is_that_of_the_simulator(named: str, name: str, count: int) -> None:
    env = set_fields(scenario(named).at_scale(16), "episode", horizon_s=1e6)
    workload = generate(scenario(named), 5, 0)
    workload = workload.take(np.arange(count), workload.arrival_s[:count])
    made = make_scheduler(name, env.observation, "feasible")
    live, simulated = play_both(env, workload, made)
    assert len(live.ledger.schedule()) == workload.num_tasks > 50
    check_same_end(live, simulated, workload)


def random_problem(rng: np.random.Generator) -> tuple[EnvConfig, Workload]:
    """Any mode that a live cluster plays."""
    env = random_mode_config(rng)
    workload = Workload.from_dict(random_mode_workload(rng, env, False), "random")
    env = set_fields(env, "episode", max_decisions=None, idle_advance="event", horizon_s=1e6)
    env = set_fields(env, "decision", preemption="none", on_busy="reserve")
    env = set_fields(env, "information", estimate_error=0.0, straggler_share=0.0, workflows="whole")
    return set_fields(env, "cluster", changes={}), workload


class AnyAnswers(Dispatcher):
    """Names any server for each task that waits, perhaps after it was passed over."""

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        rng, answers = self.generators[0], []
        for names in snapshot.ready[["workflow", "task"]].tolist():
            answers += [(*names, PASS)] * int(rng.integers(2))
            answers.append((*names, int(rng.integers(PASS, len(snapshot.status)))))
        return np.array(answers, dtype=np.int64).reshape(-1, 3)


@each_of(range(88), by_default=22)
def test_every_moment_is_that_of_the_simulator_in_every_mode(seed: int) -> None:
    env, workload = random_problem(np.random.default_rng(seed))
    made = make_scheduler(sorted(RULES)[seed % len(RULES)], env.observation, env.episode.mask)
    check_same_end(*play_both(env, workload, made), workload)


@each_of(range(40), by_default=20)
def test_any_answer_comes_to_what_it_does_in_the_simulator(seed: int) -> None:
    live, simulated = play_both(*random_problem(np.random.default_rng(seed)), AnyAnswers())
    assert live.ledger.schedule().tolist() == simulated.engine.schedule().tolist()


def test_a_task_that_is_stopped_keeps_its_place_and_memory_until_it_has_ended() -> None:
    """Of three tasks on the fast server's two places; the first workflow is given up."""
    backend = VirtualBackend(problem(), work((0.0, [task(8)], []), (0.0, [task(4), task(4)], [])))
    assert backend.wait() is not None
    assert [backend.apply(Answer(*answer, 1)) for answer in ((0, 0), (1, 0))] == ["started", "started"]
    ledger = backend.ledger
    (stopped,) = ledger.drop(ledger.flows[0], now=0.5)
    now = ledger.snapshot(0.5)
    assert (now.num_running.tolist(), now.free_memory_gb.tolist()) == ([0, 2], [8.0, 8.0])
    assert now.running[["workflow", "task", "server"]].tolist() == [(1, 0, 1)]
    assert ledger.answer(1, 1, 1, now=0.5) == ("busy", None)
    ledger.released(stopped)
    now = ledger.snapshot(0.5)
    assert (now.num_running.tolist(), now.free_memory_gb.tolist()) == ([0, 1], [8.0, 12.0])
    assert ledger.answer(1, 1, 1, now=0.5)[0] == "started"
    assert ledger.schedule()["outcome"].tolist() == ["failed", "running", "running"]


def test_an_answer_for_what_does_not_wait_is_refused() -> None:
    backend = VirtualBackend(problem(), work((0.0, [task(1), task(1, memory=5.0)], [])))
    assert backend.wait() is not None
    assert backend.apply(Answer(0, 0, 0)) == "started"
    for wrong in (Answer(0, 0, 1), Answer(0, 2, 1), Answer(1, 0, 1), Answer(0, -1, 0), Answer(0, 1, 2)):
        with pytest.raises(ValueError, match="cannot start on server"):
            backend.apply(wrong)
    assert backend.apply(Answer(0, 1, 0)) == "busy"


@pytest.mark.parametrize("name", ["heft", "cpop"])
def test_a_planner_runs_a_failed_task_again_and_forgets_a_workflow_that_is_given_up(name: str) -> None:
    tiers = (TierConfig(name="only", count=1, compute_gflops=1.0, memory_gb=8.0),)
    env = problem(tiers)
    chain = (0.0, [task(2), task(2)], [[0, 1]])
    backend = VirtualBackend(env, work(chain, (1.0, [task(4), task(4)], []), (1.5, [task(1)], [])))
    planner = make_scheduler(name, env.observation)
    planner.reset([(0, 0)])
    batch = BackendBatch(backend, env, planner.per_task)
    planner.advance(batch)  # task 0 of the chain starts, and workflow 1 arrives
    (attempt,) = backend.ledger.running()
    backend.ledger.fail(attempt, backend.now)
    planner.advance(batch)  # it starts again, ahead of its follower, which is planned before it
    backend.ledger.drop(backend.ledger.flows[1], backend.now)
    while not batch.done[0]:
        planner.advance(batch)
    schedule = backend.ledger.schedule()
    finished = schedule[schedule["outcome"] == "finished"]
    assert finished[["workflow", "task", "start_s"]].tolist() == [(0, 0, 1.5), (0, 1, 3.5), (2, 0, 5.5)]


def test_compiled_code_reads_its_view_as_that_of_the_simulator() -> None:
    """Whichever it has been called with first: `Direct` looks at the types of its first arguments alone."""
    env = scenario("steady-0.7")
    engine = Engine(env)
    engine.reset([0], [0])
    live, simulated = LiveView()(Ledger(env).snapshot(0.0)), engine.view()
    for ours, theirs in zip(live, simulated, strict=True):
        assert (ours.dtype, ours.ndim) == (theirs.dtype, theirs.ndim)
        assert ours.flags.c_contiguous
        assert theirs.flags.c_contiguous
