"""What must hold in every episode of every mode, whatever the problem, the workload and the answers."""

import collections
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.mode_cases import random_mode_config, random_mode_workload
from reference.simulator import OUTCOMES
from rllib_scale.config import EnvConfig, InformationConfig
from rllib_scale.config.cluster import ChangesConfig
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate, straggler_factors
from rllib_scale.workloads.model import Workload

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
examples = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**31)
MOST = 250  # answers of an episode: one that stops a task at once again need not end


@st.composite
def configs(draw, **decision):
    """A random problem with these settings of its decisions."""
    seed = draw(seeds)
    config = random_mode_config(np.random.default_rng(seed), grid=seed % 2 == 0)
    return with_parts(config, decision=config.decision.model_copy(update=decision))


def with_parts(config, **parts):
    return config.model_copy(update=parts)


def workload_of(config, seed):
    """The workload of an episode: a given one with release delays for even seeds, else the drawn one."""
    if seed % 2:
        return generate(config, seed, 0)
    return Workload.from_dict(random_mode_workload(np.random.default_rng(seed), config, grid=False), "given")


def true_gflop(config, seed, workload, episode=0):
    """(T,) demand that is executed."""
    return workload.compute_gflop * straggler_factors(config, seed, episode, workload)


def start(config, seed):
    engine = Engine(config)
    engine.reset([seed], [0], workload=None if seed % 2 else workload_of(config, seed))
    return engine


def hosts(config):
    """(N,) server of each row, -1 of an empty one."""
    sizes = [tier.slots for tier in config.cluster.tiers for _ in range(tier.count)]
    return np.array([*np.repeat(np.arange(len(sizes)), sizes), *[-1] * config.cluster.empty_slots])


def host_memory(config):
    return np.array([tier.memory_gb for tier in config.cluster.tiers for _ in range(tier.count)])


def rows_running(engine):
    schedule = engine.schedule()
    return set(schedule["server"][schedule["outcome"] == "running"].tolist())


def choose(rng, engine, config):
    """Any answer that is possible; one that starts a task more often than not."""
    k, n = config.decision.offered, config.cluster.num_slots
    opened = np.flatnonzero(engine.fit[0].ravel() == 2)
    if len(opened) and rng.random() < 0.6:
        return int(rng.choice(opened))
    stops = sorted(rows_running(engine)) if config.decision.preemption != "none" else []
    if stops and rng.random() < 0.2:
        return k * n + 1 + int(rng.choice(stops))
    return k * n if rng.random() < 0.2 else int(rng.integers(len(engine.offers(0)) * n))


def play(config, seed, answer_seed, on_step=lambda engine: None):
    """An engine after an episode of random answers."""
    engine, rng = start(config, seed), np.random.default_rng(answer_seed)
    for _ in range(MOST):
        if engine.done[0]:
            break
        engine.step([choose(rng, engine, config)])
        on_step(engine)
    return engine


def flat(workload, row):
    """Position in the workload's flat arrays of a row of the schedule."""
    return int(workload.task_offsets[row["workflow"]] + row["task"])


def predecessors(workload, row):
    w = row["workflow"]
    edges = workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]]
    return edges[edges[:, 1] == row["task"], 0].tolist()


def everything(engine):
    """All an episode leaves behind, comparable bit by bit."""
    return repr(engine.metrics()), engine.schedule().tobytes(), engine.clock.tobytes(), engine.observation.tobytes()


# ------------------------------------------------------------------- the schedule is feasible


@examples
@given(configs(), seeds, seeds)
def test_no_row_runs_two_tasks_and_no_server_is_above_its_memory(config, seed, answer_seed):
    engine, workload = play(config, seed, answer_seed), workload_of(config, seed)
    schedule = engine.schedule()
    end = np.where(np.isnan(schedule["finish_s"]), np.inf, schedule["finish_s"])
    for row in np.unique(schedule["server"]):
        on_it = schedule["server"] == row
        assert (schedule["start_s"][on_it][1:] >= end[on_it][:-1]).all()
    memory = np.array([workload.memory_gb[flat(workload, row)] for row in schedule])
    host = hosts(config)[schedule["server"]]
    for moment in schedule["start_s"]:
        # An attempt that was stopped at the moment of its start shares the moment with the next one.
        running = (schedule["start_s"] <= moment) & (end > moment)
        used = np.bincount(host[running], memory[running], minlength=len(host_memory(config)))
        assert (used <= host_memory(config) * (1 + 1e-12)).all()


@examples
@given(configs(), seeds, seeds)
def test_precedence_and_delays_are_kept(config, seed, answer_seed):
    engine, workload = play(config, seed, answer_seed), workload_of(config, seed)
    ended = {(int(r["workflow"]), int(r["task"])): r for r in engine.schedule() if r["outcome"] == "finished"}
    before = {}
    for row in engine.schedule():
        task = int(row["workflow"]), int(row["task"])
        sources = [ended[task[0], p]["finish_s"] for p in predecessors(workload, row)]
        first = max(sources, default=row["arrival_s"]) + workload.delay_s[flat(workload, row)]
        # Ready when released, or when the attempt before was lost or stopped.
        assert row["ready_s"] == pytest.approx(before.get(task, first), abs=1e-9)
        assert row["start_s"] >= row["ready_s"]
        before[task] = row["finish_s"]
    assert len(ended) == engine.metrics()["completed"]


@examples
@given(configs(), seeds, seeds)
def test_work_is_conserved_over_the_attempts_of_a_task(config, seed, answer_seed):
    engine, workload = play(config, seed, answer_seed), workload_of(config, seed)
    kept, last = collections.Counter(), {}
    for row in engine.schedule():
        task = flat(workload, row)
        assert last.get(task) not in ("finished", "running")  # nothing runs twice, nothing after its end
        last[task] = row["outcome"]
        if row["outcome"] == "running":
            continue
        lost = row["outcome"] == "failed" or (row["outcome"] == "preempted" and config.decision.preemption == "restart")
        kept[task] = 0 if lost else kept[task] + row["work_gflop"]
        demand = true_gflop(config, seed, workload)[task]
        assert 0 <= row["work_gflop"] <= demand * (1 + 1e-9)
        if row["outcome"] == "finished":
            assert kept[task] == pytest.approx(demand, rel=1e-9)


@examples
@given(configs(), seeds, seeds)
def test_an_attempt_takes_its_transfer_and_its_execution(config, seed, answer_seed):
    engine = play(config, seed, answer_seed)
    tiers = {tier.name: tier for tier in config.cluster.tiers}
    for row in engine.schedule():
        tier = tiers[row["tier"]]
        if config.communication.mode == "reward":
            assert row["transfer_s"] == 0
        if row["outcome"] == "finished":
            execution = row["finish_s"] - row["start_s"] - row["transfer_s"]
            alone = row["work_gflop"] / tier.compute_gflops
            most = alone * (1 + tier.slot_slowdown * (tier.slots - 1))
            assert alone - 1e-9 <= execution <= most + 1e-9


@examples
@given(configs(), seeds, seeds)
def test_what_is_counted_can_be_counted_again(config, seed, answer_seed):
    outcomes = collections.Counter()
    engine = play(config, seed, answer_seed, lambda e: outcomes.update([OUTCOMES[e.outcome[0]]]))
    metrics, schedule = engine.metrics(), engine.schedule()
    end = np.where(np.isnan(schedule["finish_s"]), engine.clock[0], schedule["finish_s"])
    busy = (end - schedule["start_s"]).sum()
    assert -1e-9 <= metrics["lost_s"] <= busy + 1e-9
    assert 0 <= metrics["utilisation"] <= 1 + 1e-9
    if config.decision.preemption != "resume":
        preempted = np.isin(schedule["outcome"], ["failed", "preempted"])
        assert metrics["lost_s"] == pytest.approx((end - schedule["start_s"])[preempted].sum())
    for name in ("failed", "preempted"):
        assert metrics[f"{name}_attempts"] == (schedule["outcome"] == name).sum()
    assert metrics["preempted_attempts"] == outcomes["preempted"]
    assert (metrics["waits"], metrics["passed"]) == (outcomes["waits"], outcomes["passed"])
    assert metrics["invalid_no_fit"] == outcomes["no_fit"]
    assert metrics["invalid_busy_avoidable"] + metrics["invalid_busy_unavoidable"] == outcomes["busy"]
    assert metrics["decisions"] == sum(outcomes.values())


# ------------------------------------------------------------------- rounds


@examples
@given(configs(on_busy="reserve"), seeds, seeds)
def test_reservations_end_with_their_round(config, seed, answer_seed):
    config = with_parts(config, information=InformationConfig(workflows=config.information.workflows))
    until = {}  # of the attempt on a row: availability right after its start

    def check(engine):
        available, rows, clock = engine.available(0), rows_running(engine), engine.clock[0]
        attempts = {int(r["server"]): float(r["start_s"]) for r in engine.schedule() if r["outcome"] == "running"}
        if engine.elapsed[0] == 0 or engine.done[0]:
            return
        assert set(engine.fit[0].ravel().tolist()) <= {0, 1, 2}
        for row in np.flatnonzero(np.isfinite(available)):
            if row not in rows:
                assert available[row] == clock
            elif until.get(row, (None,))[0] == attempts[row]:
                assert available[row] == until[row][1]  # at every round the same: nothing was added to it
            else:
                until[row] = attempts[row], available[row]

    engine = play(config, seed, answer_seed, check)
    finish = {
        (int(r["server"]), float(r["start_s"])): r["finish_s"] for r in engine.schedule() if r["outcome"] == "finished"
    }
    for row, (begun, expected) in until.items():
        if (row, begun) in finish:
            assert expected == pytest.approx(finish[row, begun])  # and it was the end of what ran


class FirstFit:
    """For each waiting task in order the open row of most capacity, the lowest of equals; or none."""

    def __init__(self, config):
        tiers = config.cluster.tiers
        self.capacity = np.array([t.compute_gflops for t in tiers for _ in range(t.count * t.slots)] + [0.0] * 9)

    def row(self, opened):
        return int(opened[np.argmax(self.capacity[opened])])


@examples
@given(configs(on_busy="reserve", preemption="none"), seeds)
def test_a_scheduler_that_names_idle_servers_alone_is_the_dispatcher(config, seed):
    config = with_parts(
        config,
        decision=config.decision.model_copy(update={"order": config.decision.open_by}),
        episode=config.episode.model_copy(update={"max_decisions": None, "mask": "none", "idle_advance": "event"}),
    )
    rule, n = FirstFit(config), config.cluster.num_slots
    one = start(config, seed)
    while not one.done[0]:
        opened = np.flatnonzero(one.fit[0][0] == 2)
        one.step([rule.row(opened) if len(opened) else n])

    every = config.decision.model_copy(update={"order": "open", "candidates": 200})
    two, workload = start(with_parts(config, decision=every), seed), workload_of(config, seed)
    while not two.done[0]:
        two.dispatch(first_fit(two, rule, config, workload))
    assert everything_that_ran(one) == everything_that_ran(two)
    assert one.metrics()["waits"] == 0


def first_fit(engine, rule, config, workload):
    """Answers for all tasks that wait, one after the other, each on a row that those before have left open."""
    free = host_memory(config).copy()
    host, used = hosts(config), set()
    for row in engine.schedule():
        if row["outcome"] == "running":
            free[host[row["server"]]] -= workload.memory_gb[flat(workload, row)]
    answers = []
    for k, (w, i) in enumerate(engine.offers(0)):
        memory = workload.memory_gb[workload.task_offsets[w] + i]
        opened = [j for j in np.flatnonzero(engine.fit[0][k] == 2) if j not in used and memory <= free[host[j]]]
        if opened:
            row = rule.row(np.array(opened))
            used.add(row)
            free[host[row]] -= memory
            answers.append((0, w, i, row))
    return np.array(answers, dtype=np.int64).reshape(-1, 4)


def everything_that_ran(engine):
    return [tuple(map(repr, row)) for row in engine.schedule().tolist()]


# ------------------------------------------------------------------- what decides an episode


@examples
@given(configs(), seeds, seeds)
def test_the_same_answers_give_the_same_episode(config, seed, answer_seed):
    assert everything(play(config, seed, answer_seed)) == everything(play(config, seed, answer_seed))


@examples
@given(configs(), seeds, st.integers(0, 50))
def test_seed_and_episode_alone_decide_the_workload(config, seed, episode):
    plain = with_parts(
        config,
        cluster=config.cluster.model_copy(update={"changes": ChangesConfig()}),
        information=InformationConfig(),
        decision=EnvConfig().decision,
        communication=EnvConfig().communication,
    )
    workload = generate(config, seed, episode)
    assert workload.equals(generate(plain, seed, episode))
    engine = Engine(config)
    engine.reset([seed], [episode])
    rng = np.random.default_rng(seed)
    for _ in range(MOST):
        if not engine.done[0]:
            engine.step([choose(rng, engine, config)])
    for row in engine.schedule():
        assert row["arrival_s"] == workload.arrival_s[row["workflow"]]
        if row["outcome"] == "finished" and config.decision.preemption != "resume":
            assert row["work_gflop"] == pytest.approx(true_gflop(config, seed, workload, episode)[flat(workload, row)])


@examples
@given(configs(), seeds)
def test_environments_side_by_side_do_not_touch_each_other(config, seed):
    together, alone = Engine(config, num_envs=3), [Engine(config) for _ in range(3)]
    numbers = np.array([seed, seed + 1, seed])
    episodes = np.array([0, 0, 1])
    together.reset(numbers, episodes)
    for b, one in enumerate(alone):
        one.reset(numbers[b : b + 1], episodes[b : b + 1])
    rng = np.random.default_rng(seed)
    for _ in range(60):
        actions = np.array([0 if one.done[0] else choose(rng, one, config) for one in alone])
        together.step(actions)
        for b, one in enumerate(alone):
            one.step(actions[b : b + 1])
            assert together.observation[b].tobytes() == one.observation[0].tobytes()
            assert together.fit[b].tobytes() == one.fit[0].tobytes()
            assert together.offers(b) == one.offers(0)
            for name in ("clock", "reward", "elapsed", "done"):
                assert getattr(together, name)[b] == getattr(one, name)[0], name
    for b, one in enumerate(alone):
        assert repr(together.metrics(b)) == repr(one.metrics(0))


def test_nan_is_what_a_running_attempt_has_done():
    config = random_mode_config(np.random.default_rng(5))
    engine = start(config, 1)
    while not engine.done[0] and not rows_running(engine):
        engine.step([choose(np.random.default_rng(0), engine, config)])
    running = engine.schedule()[engine.schedule()["outcome"] == "running"]
    assert len(running)
    assert all(math.isnan(row["work_gflop"]) and math.isnan(row["finish_s"]) for row in running)
