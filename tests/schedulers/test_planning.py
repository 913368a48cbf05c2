"""Dispatchers against the reference, by hand, and planners online."""

from dataclasses import replace

import numpy as np
import pytest

from reference.cases import pick, random_config, random_mode_workload, random_workload
from reference.comparison import assert_same_snapshot, assert_same_state, assert_same_totals
from reference.simulator import ReferenceSimulator
from rllib_scale.config import EnvConfig
from rllib_scale.config.problem import CommunicationConfig, EpisodeConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.dispatcher import MAX_IDLE_ROUNDS, Dispatcher
from rllib_scale.schedulers.planning import TASK_BITS
from rllib_scale.schedulers.rules import DISPATCHERS, make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from schedulers.instances import TWO, cluster
from seeds import each_of
from simulator import literal
from small_moments import workload

OBSERVATION = EnvConfig().observation
PLANNERS = ["cpop", "heft"]

# Execution on (slow, fast): A (4, 2), (2, 1), (-, 3); B (1, 0.5), (3, 1.5); C (8, 4).
THREE_WORKFLOWS = workload(
    (0, [(4, 5), (2, 5), (6, 20)], [[0, 1], [0, 2]]), (1, [(1, 5), (3, 5)], [[0, 1]]), (2.5, [(8, 5)], [])
)
LITERAL = {
    # A by rank 6, 3, 1.5: A0 fast 0-2; A2 fits fast alone, 2-5; A1 slow 2-4 (fast: 5-6).
    # B at 1: B0 into the gap of slow, 1-2; B1 fast 5-6.5 (slow: 4-7). C waits for fast, 6.5-10.5 (slow: 4-12).
    "heft": [
        (0, 0, 1, 0, 2),
        (1, 0, 0, 1, 2),
        (0, 1, 0, 2, 4),
        (0, 2, 1, 2, 5),
        (1, 1, 1, 5, 6.5),
        (2, 0, 1, 6.5, 10.5),
    ],
    # A: path A0, A2 on fast, which alone fits both. B: both on fast, 5 + 2 s against 4 + 4 s. C: 7 + 4 against 4 + 8.
    "cpop": [(0, 0, 1, 0, 2), (0, 1, 0, 2, 4), (0, 2, 1, 2, 5), (1, 0, 1, 5, 5.5), (1, 1, 1, 5.5, 7), (2, 0, 1, 7, 11)],
}


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("mask", ["none", "feasible"])
def test_a_literal_instance_runs_as_planned_by_hand(name, mask):
    engine = play(make_scheduler(name, OBSERVATION), TWO.with_mask(mask), 0, [0], THREE_WORKFLOWS)
    rows = engine.schedule()[["workflow", "task", "server", "start_s", "finish_s"]].tolist()
    assert sorted(rows, key=lambda row: (row[3], row[0])) == LITERAL[name]
    metrics = engine.metrics()
    assert (metrics["completed"], metrics["decisions"], metrics["duration_s"]) == (6, 6, LITERAL[name][-1][-1])
    assert sum(value for key, value in metrics.items() if key.startswith("invalid")) == 0


@pytest.mark.parametrize("name", PLANNERS)
def test_release_delays_are_planned_for(name):
    """One server: the way that a delay makes the longest comes first, and others run while it lasts."""
    chain, alone = [(2, 5), (1, 5)], [(5, 5)]
    given = replace(workload((0, chain + alone, [[0, 1]])), delay_s=[0.0, 5.0, 0.0])
    schedule = play(make_scheduler(name, OBSERVATION), cluster((1, 1, 10)), 0, [0], given).schedule()
    assert schedule[["task", "start_s"]].tolist() == [(0, 0), (2, 2), (1, 7)]
    # A first task that is released later leaves the server to what comes before.
    late = replace(workload((0, [(2, 5)], []), (1, [(3, 5)], [])), delay_s=[6.0, 0.0])
    schedule = play(make_scheduler(name, OBSERVATION), cluster((1, 1, 10)), 0, [0], late).schedule()
    assert schedule[["workflow", "start_s"]].tolist() == [(1, 1), (0, 6)]


# ------------------------------------------------------------------- the second way to play


class RandomDispatch(Dispatcher):
    """Any ready tasks in any order on any idle servers that fit."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.eagerness = self.rng.uniform(0.2, 1)

    def dispatch(self, system):
        idle, starts = system.idle.copy(), []
        for task in self.rng.permutation(system.ready):
            fits = np.flatnonzero(idle & (system.memory_gb >= task["memory_gb"]))
            if len(fits) and self.rng.random() < self.eagerness:
                starts.append((task["workflow"], task["task"], int(self.rng.choice(fits))))
                idle[starts[-1][2]] = False
        return np.array(starts, dtype=np.int64).reshape(-1, 3)


def assert_same_system(engine, reference):
    """What a dispatcher is shown is what there is in the reference."""
    assert_same_state(engine, reference, candidates=False)
    if not reference.done:
        assert_same_snapshot(engine, reference)


@each_of(range(160))
def test_dispatching_is_played_as_by_the_reference(case):
    """Every second case has a given workload, some of them on a grid."""
    rng = np.random.default_rng(case)
    config, given = random_config(rng, grid=case % 4 == 3), None
    if case % 2:
        given = Workload.from_dict(random_workload(rng, config, grid=case % 4 == 3), "case")
    open_ended = given is None and config.episode.arrivals_until_s is None
    engine, player = Engine(config), RandomDispatch([case, 1])
    engine.reset([case], [3], workload=given)
    reference = ReferenceSimulator(config.with_mask("none"), given or generate(config, case, 3), open_ended)
    assert_same_system(engine, reference)
    while not reference.done:
        starts = player([engine.snapshot()])
        engine.dispatch(starts)
        reference.dispatch([tuple(row[1:]) for row in starts.tolist()])
        assert engine.reward[0] == pytest.approx(reference.reward, rel=1e-9, abs=1e-9)
        assert_same_system(engine, reference)
    assert_same_totals(engine, reference)


def test_what_cannot_start_is_refused():
    engine = Engine(TWO.model_copy(update={"cluster": TWO.cluster.model_copy(update={"empty_slots": 1})}))
    engine.reset([0], [0], workload=THREE_WORKFLOWS)
    for start in ([0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 7, 0], [0, 0, 0, 2], [0, 0, 0, 3], [0, 0, 0, -1], [1, 0, 0, 0]):
        with pytest.raises(ValueError, match=f"workflow {start[1]}, task {start[2]} cannot start on server {start[3]}"):
            engine.dispatch([start])
    with pytest.raises(ValueError, match="workflow 0, task 0"):
        engine.dispatch([[0, 0, 0, 1], [0, 0, 0, 0]])  # twice
    engine.dispatch([])
    assert engine.clock[0] == 1  # B has arrived
    with pytest.raises(ValueError, match="workflow 1, task 0 cannot start on server 1"):
        engine.dispatch([[0, 1, 0, 1]])  # busy
    assert engine.metrics()["decisions"] == 1


class Late(Dispatcher):
    """Starts nothing in its first rounds, then the first task that waits on the second server, which fits all."""

    def __init__(self, rounds):
        self.rounds = rounds

    def dispatch(self, system):
        self.rounds -= 1
        if self.rounds >= 0 or not system.idle[1]:
            return []
        return [(*system.ready[["workflow", "task"]][0].tolist(), 1)]


def test_a_dispatcher_that_never_starts_a_task_is_refused_and_one_that_starts_late_is_not():
    given = workload(*((0.01 * k, [(0.002, 5)], []) for k in range(MAX_IDLE_ROUNDS + 200)))
    with pytest.raises(
        UserError, match=r"scheduler Late: dispatch started no task in 1,000 rounds .* 1,000 tasks wait"
    ):
        play(Late(10**9), TWO, 0, [0], given)
    assert play(Late(MAX_IDLE_ROUNDS - 1), TWO, 0, [0], given).metrics()["completed"] == MAX_IDLE_ROUNDS + 200


# ------------------------------------------------------------------- planners


def until_the_end(case, **episode):
    """A random problem in which every task can end."""
    config = random_config(np.random.default_rng(case))
    episode |= {"arrivals_until_s": config.episode.horizon_s, "horizon_s": 1e4, "max_decisions": None}
    return config.model_copy(update={"episode": config.episode.model_copy(update=episode)})


@pytest.mark.parametrize("name", PLANNERS)
@each_of(range(150), by_default=30)
def test_every_task_runs_once_where_and_when_it_was_planned(case, name):
    """So plans keep the rules of a schedule: the engine refuses what cannot start.

    Two of three workloads are given ones, with tasks without work, release delays and bytes of edges; of these half
    move their input on the time of a server.
    """
    config, planned, given = until_the_end(1000 + case, idle_advance="event"), {}, None
    if case % 3:
        rng = np.random.default_rng([case, 11])
        moves = {"predecessors": pick(rng, "first", "all"), "first": pick(rng, "lowest-index", "largest-output")}
        moves["mode"] = pick(rng, "reward", "transfer")
        config = config.model_copy(update={"communication": CommunicationConfig(**moves)})
        within = config.model_copy(update={"episode": EpisodeConfig(horizon_s=config.episode.arrivals_until_s)})
        given = Workload.from_dict(random_mode_workload(rng, within, grid=case % 2 == 0), "case")

    class Recorded(DISPATCHERS[name]):
        @staticmethod
        def planner(*args, first_number, **kwargs):
            plan = DISPATCHERS[name].planner(*args, first_number=first_number, **kwargs)
            for k in range(len(plan.server)):
                if plan.server[k] >= 0:
                    planned[first_number + k] = (int(plan.server[k]), float(plan.start_s[k]), float(plan.finish_s[k]))
            return plan

    played = given or generate(config, case, 0)
    engine = play(Recorded(), config, case, [0], given)
    rows = engine.schedule()
    assert len(rows) == np.count_nonzero(played.compute_gflop) == len(planned)
    assert engine.metrics()["completed"] == played.num_tasks
    for row in rows.tolist():
        assert planned.pop(row[0] << TASK_BITS | row[1]) == pytest.approx((row[2], *row[6:8]), rel=1e-12)
    assert set(rows["outcome"]) <= {"finished"}


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize(("mode", "server"), [("reward", 0), ("transfer", 1)])
def test_a_plan_avoids_a_transfer_that_takes_longer_than_a_wait(name, mode, server):
    """A fork whose output takes 20 s to move: the second branch is done at 3 s on either server, or at 23 s."""
    fork = literal.workflow(0, *(literal.task(2, 1, 4.0) for _ in range(3)), edges=[[0, 1], [0, 2]])
    slow_network = TWO.cluster.model_copy(update={"bandwidth_gb_s": 0.2, "latency_s": 0.0})
    env = TWO.model_copy(update={"cluster": slow_network, "communication": CommunicationConfig(mode=mode)})
    schedule = play(make_scheduler(name, OBSERVATION), env, 0, [0], literal.workload(fork)).schedule()
    rows = sorted(schedule[["task", "server", "start_s", "finish_s"]].tolist())
    assert rows == [(0, 1, 0, 1), (1, 1, 1, 2), (2, server, 1 if mode == "reward" else 2, 3)]


@pytest.mark.parametrize("name", PLANNERS)
def test_every_task_runs_where_time_moves_in_steps(name):
    """With nothing ready the clock moves by steps: plans slip, and are carried out in their order all the same."""
    for case in range(20):
        config = until_the_end(2000 + case, idle_advance="clock-step", clock_step_s=0.7)
        metrics = play(make_scheduler(name, OBSERVATION), config, case, [0]).metrics()
        assert metrics["unfinished"] == 0
        assert metrics["decisions"] == metrics["completed"] == generate(config, case, 0).num_tasks
