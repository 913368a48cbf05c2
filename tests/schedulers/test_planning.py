"""Dispatchers: the second way to play, against the reference and the first way; planners online."""

import numpy as np
import pytest
from click.testing import CliRunner

from reference.cases import on_a_grid, random_config, random_workload
from reference.comparison import assert_same_totals
from reference.simulator import ReferenceSimulator
from rllib_scale.cli import main
from rllib_scale.config import SCENARIOS, ClusterConfig, EnvConfig, EpisodeConfig, RewardConfig, TierConfig
from rllib_scale.config.sweep import EvaluationConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate, play
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.planning import TASK_BITS
from rllib_scale.schedulers.rules import DISPATCHERS, make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from seeds import each_of

OBSERVATION = EnvConfig().observation
PLANNERS = ["cpop", "heft"]

# ------------------------------------------------------------------- a literal instance

TWO_SERVERS = EnvConfig(
    cluster=ClusterConfig(
        tiers=(
            TierConfig(name="slow", count=1, compute_gflops=1, memory_gb=10),
            TierConfig(name="fast", count=1, compute_gflops=2, memory_gb=40),
        )
    ),
    workload={"memory_gb": {"mean": 5, "std": 1, "low": 1, "high": 40}},
    episode=EpisodeConfig(horizon_s=100),
)


def workflow(arrival, tasks, edges):
    tasks = [{"compute_gflop": c, "memory_gb": m, "output_gb": 1} for c, m in tasks]
    return {"arrival_s": arrival, "tasks": tasks, "edges": edges}


# Execution on (slow, fast): A (4, 2), (2, 1), (-, 3); B (1, 0.5), (3, 1.5); C (8, 4).
THREE_WORKFLOWS = Workload.from_dict(
    {
        "format": "rllib-scale-workload",
        "version": 1,
        "workflows": [
            workflow(0, [(4, 5), (2, 5), (6, 20)], [[0, 1], [0, 2]]),
            workflow(1, [(1, 5), (3, 5)], [[0, 1]]),
            workflow(2.5, [(8, 5)], []),
        ],
    },
    "literal",
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
    engine = play(make_scheduler(name, OBSERVATION), TWO_SERVERS.with_mask(mask), 0, [0], THREE_WORKFLOWS)
    rows = engine.schedule()[["workflow", "task", "server", "start_s", "finish_s"]].tolist()
    assert sorted(rows, key=lambda row: (row[3], row[0])) == LITERAL[name]
    metrics = engine.metrics()
    assert (metrics["completed"], metrics["decisions"], metrics["duration_s"]) == (6, 6, LITERAL[name][-1][-1])
    assert sum(value for key, value in metrics.items() if key.startswith("invalid")) == 0


# ------------------------------------------------------------------- the two ways to play


class HeadOfLine(Dispatcher):
    """The fastest idle server that fits, for the first task of level 1 alone: what a scheduler can do."""

    def dispatch(self, system):
        idle, starts = system.idle.copy(), []
        for task in system.ready:
            fits = idle & (system.memory_gb >= task["memory_gb"])
            if not fits.any():
                break
            server = int(np.argmax(np.where(fits, system.capacity_gflops, 0)))
            idle[server] = False
            starts.append((task["workflow"], task["task"], server))
        return np.array(starts, dtype=np.int64).reshape(-1, 3)


@each_of(range(60))
def test_a_dispatcher_held_to_the_head_of_the_line_is_the_scheduler(case):
    reward = ("paper", "tasks-in-system")[case % 2]
    env = random_config(np.random.default_rng(case // 2)).with_mask("feasible")
    assert_head_of_line_is_the_scheduler(env.model_copy(update={"reward": RewardConfig(name=reward)}), reward)


@pytest.mark.parametrize("name", ["steady-0.7", "overload-1.1"])
def test_so_it_is_in_a_scenario(name):
    env = SCENARIOS[name][0]
    assert_head_of_line_is_the_scheduler(env, env.reward.name)


def assert_head_of_line_is_the_scheduler(env, reward):
    one = play(make_scheduler("fastest-idle", env.observation, "feasible"), env, 7, [0, 1, 2])
    two = play(HeadOfLine(), env, 7, [0, 1, 2])
    for b in range(3):
        expected, metrics = one.metrics(b), two.metrics(b)
        if reward != "paper":  # the same integral, summed up in other pieces
            assert metrics.pop("episode_return") == pytest.approx(expected.pop("episode_return"), rel=1e-12)
        np.testing.assert_equal(metrics, expected)
        np.testing.assert_equal(two.schedule(b).tolist(), one.schedule(b).tolist())


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
    assert bool(engine.done[0]) == reference.done
    assert engine.clock[0] == pytest.approx(reference.clock, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(engine.observation[0], reference.observation(), rtol=1e-6, atol=1e-6)
    if reference.done:
        return
    system = engine.snapshot()
    ready = sorted(reference.ready, key=reference._priority)
    assert system.ready[["workflow", "task", "hop"]].tolist() == [(t.workflow.index, t.index, t.hop) for t in ready]
    columns = np.array([(t.compute_gflop, t.memory_gb, t.output_gb, t.workflow.arrival_s, t.ready_s) for t in ready])
    for k, name in enumerate(["compute_gflop", "memory_gb", "output_gb", "arrival_s", "ready_s"]):
        np.testing.assert_allclose(system.ready[name], columns[:, k], rtol=1e-12, atol=1e-12)
    running = {server.index: server.task for server in reference.servers}
    assert system.idle.tolist() == [j in running and running[j] is None for j in range(len(system.idle))]
    for j, task in running.items():
        assert system.free_at_s[j] == pytest.approx(reference.clock if task is None else task.finish_s)
    assert system.num_arrived == sum(w.arrived for w in reference.workflows)
    for w in reference.workflows:
        if not w.arrived or w.num_completed == len(w.tasks):
            with pytest.raises(KeyError):
                system.workflow(w.index)
            continue
        live = system.workflow(w.index)
        assert live.arrival_s == w.arrival_s
        assert live.hop.tolist() == [task.hop for task in w.tasks]
        assert live.completed.tolist() == [task.completed for task in w.tasks]
        assert live.host.tolist() == [-1 if task.server is None else task.server.index for task in w.tasks]
        assert sorted(live.edges.tolist()) == sorted([t.index, s.index] for t in w.tasks for s in t.successors)
        for name in ("compute_gflop", "memory_gb", "output_gb"):
            assert getattr(live, name).tolist() == [getattr(task, name) for task in w.tasks]


@each_of(range(160))
def test_dispatching_is_played_as_by_the_reference(case):
    """Every second case mixes in decisions of a scheduler; every second one has a given workload, some on a grid."""
    rng = np.random.default_rng(case)
    config = random_config(rng)
    config = on_a_grid(config) if case % 4 == 3 else config
    mixed = rng.random() < 0.5
    engine_config = config.with_mask("none") if mixed else config  # the mask is a matter of steps
    workload = None
    if case % 2:
        workload = Workload.from_dict(random_workload(rng, config, grid=case % 4 == 3), "case")
    open_ended = workload is None and config.episode.arrivals_until_s is None
    engine = Engine(engine_config)
    engine.reset([case], [3], workload=workload)
    played = workload or generate(config, case, 3)
    reference = ReferenceSimulator(config.with_mask("none"), played, open_ended)
    player = RandomDispatch([case, 1])
    assert_same_system(engine, reference)
    while not reference.done:
        if mixed and rng.random() < 0.5:
            server = int(rng.integers(engine.num_slots))
            engine.step([server])
            reference.step(server)
        else:
            starts = player([engine.snapshot()])
            engine.dispatch(starts)
            reference.dispatch([tuple(row[1:]) for row in starts.tolist()])
        assert engine.reward[0] == pytest.approx(reference.reward, rel=1e-9, abs=1e-9)
        assert_same_system(engine, reference)
    assert_same_totals(engine, reference)


def test_of_many_ready_tasks_any_may_be_taken():
    config = EnvConfig(
        cluster=ClusterConfig(servers=4),
        workload={"offered_load": 3.0},
        episode=EpisodeConfig(horizon_s=300),
    )
    engine, reference = Engine(config), ReferenceSimulator(config, generate(config, 0, 0), open_ended=True)
    engine.reset([0], [0])
    player, most = RandomDispatch(0), 0
    while not reference.done:
        most = max(most, len(reference.ready))
        assert_same_system(engine, reference)
        starts = player([engine.snapshot()])
        engine.dispatch(starts)
        reference.dispatch([tuple(row[1:]) for row in starts.tolist()])
    assert engine.done[0]
    assert most > 50


def test_what_cannot_start_is_refused():
    config = TWO_SERVERS.model_copy(update={"cluster": TWO_SERVERS.cluster.model_copy(update={"empty_slots": 1})})
    engine = Engine(config)
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
    engine.dispatch([[0, 1, 0, 0]])
    assert engine.clock[0] == 2
    with pytest.raises(ValueError, match="task 2 cannot start on server 0"):
        engine.dispatch([[0, 0, 2, 0]])  # too small
    assert engine.metrics()["decisions"] == 2


def test_waiting_for_ever_ends_at_the_horizon():
    class Idle(Dispatcher):
        def dispatch(self, system):
            return np.zeros((0, 3), dtype=np.int64)

    metrics = play(Idle(), TWO_SERVERS, 0, [0], THREE_WORKFLOWS).metrics()
    assert (metrics["duration_s"], metrics["completed"], metrics["unfinished"], metrics["decisions"]) == (100, 0, 6, 0)
    assert metrics["episode_return"] == 0


def test_a_saved_state_goes_on_between_dispatches():
    config = SCENARIOS["overload-1.1"][0]
    engine = Engine(config, 2)
    engine.reset([1, 1], [0, 1])
    player = RandomDispatch(1)
    for _ in range(80):
        engine.dispatch(player([engine.snapshot(b) for b in range(2)]))
    saved, other = engine.get_state(), Engine(config, 2)
    other.set_state(saved)
    outcomes = []
    for each in (engine, other):
        player = RandomDispatch(2)
        for _ in range(200):
            each.dispatch(player([each.snapshot(b) for b in range(2)]))
        outcomes.append([each.metrics(b) for b in range(2)])
        assert each.metrics(0)["completed"] > 100
    np.testing.assert_equal(*outcomes)


# ------------------------------------------------------------------- planners


@pytest.mark.parametrize("name", PLANNERS)
@each_of(range(20), by_default=10)
def test_every_task_runs_once_where_and_when_it_was_planned(case, name):
    config = random_config(np.random.default_rng(1000 + case))
    episode = {"arrivals_until_s": config.episode.horizon_s, "horizon_s": 1e4, "max_decisions": None}
    episode |= {"idle_advance": "event"}
    config = config.model_copy(update={"episode": config.episode.model_copy(update=episode)})
    planned = {}

    class Recorded(DISPATCHERS[name]):
        @staticmethod
        def planner(*args, first_row, **kwargs):
            plan = DISPATCHERS[name].planner(*args, first_row=first_row, **kwargs)
            for k in range(len(plan.server)):
                planned[first_row + k] = (int(plan.server[k]), float(plan.start_s[k]), float(plan.finish_s[k]))
            return plan

    engine = play(Recorded(), config, case, [0])
    workload, rows = generate(config, case, 0), engine.schedule()
    assert engine.metrics()["unfinished"] == 0
    assert len(rows) == workload.num_tasks == len(planned)
    for row in rows.tolist():
        assert planned[row[0] << TASK_BITS | row[1]] == (row[2], *row[6:8])
    assert set(rows["outcome"]) == {"finished"}
    assert len(np.unique(rows[["workflow", "task"]])) == len(rows)
    at = workload.task_offsets[rows["workflow"]] + rows["task"]
    memory = np.array([t.memory_gb for t in config.cluster.tiers for _ in range(t.count)])
    assert (workload.memory_gb[at] <= memory[rows["server"]]).all()
    start, finish = np.empty(len(rows)), np.empty(len(rows))
    start[at], finish[at] = rows["start_s"], rows["finish_s"]
    for w in range(workload.num_workflows):
        edges = workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]] + workload.task_offsets[w]
        assert (start[edges[:, 1]] >= finish[edges[:, 0]]).all()
    for j in np.unique(rows["server"]):
        on = np.sort(rows[rows["server"] == j], order="start_s")
        assert (on["start_s"][1:] >= on["finish_s"][:-1]).all()


@pytest.mark.parametrize("name", PLANNERS)
def test_every_task_runs_where_time_moves_in_steps(name):
    """With nothing ready the clock moves by steps: plans slip, and are carried out in their order all the same."""
    for case in range(20):
        config = random_config(np.random.default_rng(2000 + case))
        episode = {"arrivals_until_s": config.episode.horizon_s, "horizon_s": 1e4, "max_decisions": None}
        episode |= {"idle_advance": "clock-step", "clock_step_s": 0.7}
        config = config.model_copy(update={"episode": config.episode.model_copy(update=episode)})
        metrics = play(make_scheduler(name, OBSERVATION), config, case, [0]).metrics()
        assert metrics["unfinished"] == 0
        assert metrics["decisions"] == metrics["completed"] == generate(config, case, 0).num_tasks


@pytest.mark.parametrize("name", PLANNERS)
def test_episodes_do_not_depend_on_their_batch_nor_on_what_was_played_before(name):
    env = SCENARIOS["steady-0.7"][0]
    dispatcher = make_scheduler(name, env.observation)
    three = evaluate(dispatcher, env, seed=3, episodes=3)
    np.testing.assert_equal(evaluate(dispatcher, env, seed=3, episodes=5)[:3], three)


def test_a_dispatcher_cannot_sample():
    with pytest.raises(UserError, match="only trained policies can sample"):
        make_scheduler("heft", OBSERVATION, decision="sample")


@pytest.mark.parametrize("name", PLANNERS)
def test_a_dispatcher_is_named_like_any_rule(name, tmp_path):
    assert EvaluationConfig(heuristics=(name,)).heuristics == (name,)
    path = tmp_path / "rows.csv"
    arguments = ["evaluate", name, "--scenario", "steady-0.5", "--scales", "16,32", "--episodes", "2"]
    result = CliRunner().invoke(main, [*arguments, "--output", str(path)])
    assert result.exit_code == 0, result.output
    lines = path.read_text().splitlines()
    assert len(lines) == 5
    assert all(name in line for line in lines[1:])
    schedule = tmp_path / "schedule.csv"
    result = CliRunner().invoke(main, ["simulate", "--scheduler", name, "--schedule", str(schedule)])
    assert result.exit_code == 0, result.output
    assert len(schedule.read_text().splitlines()) > 5
