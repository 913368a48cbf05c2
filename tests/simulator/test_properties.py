"""What must hold in every episode of every mode, whatever the problem, the workload and the answers."""

import collections
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.answers import random_answer
from reference.cases import random_config, random_mode_config, random_mode_workload
from reference.factors import straggler_factors
from reference.simulator import OUTCOMES
from rllib_scale.config import EnvConfig, EpisodeConfig, WorkloadConfig
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from seeds import examples
from simulator.literal import task, workflow, workload

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
seeds = st.integers(0, 2**31)
MOST = 250  # answers of an episode: one that stops a task at once again need not end


@st.composite
def configs(draw, make=random_mode_config):
    seed = draw(seeds)
    return make(np.random.default_rng(seed), grid=seed % 2 == 0)


def workload_of(config, seed):
    """The workload of an episode: a given one with release delays for even seeds, else the drawn one."""
    if seed % 2:
        return generate(config, seed, 0)
    content = random_mode_workload(np.random.default_rng(seed), config, grid=False)
    for each in (at for of in content["workflows"] for at in of["tasks"]):
        each["compute_gflop"] = each["compute_gflop"] or 1.0  # the schedule has no task without work
    return Workload.from_dict(content, "given")


def start(config, seed, num_envs=1):
    """Environments at the start of the episodes of consecutive seeds."""
    engine = Engine(config, num_envs)
    given_one = None if seed % 2 else workload_of(config, seed)
    engine.reset([seed + b for b in range(num_envs)], [0] * num_envs, workload=given_one)
    return engine


def play(config, seed, answer_seed, on_step=lambda engine: None):
    """An engine after an episode of random answers."""
    engine, rng = start(config, seed), np.random.default_rng(answer_seed)
    for _ in range(MOST):
        if engine.done[0]:
            break
        engine.step([random_answer(rng, engine)])
        on_step(engine)
    return engine


def everything(engine, b=0):
    """All that is seen of an environment and all that its episode leaves behind, comparable bit by bit."""
    shown = [
        getattr(engine, name)[b].tobytes() for name in ("observation", "fit", "reward", "elapsed", "clock", "done")
    ]
    return shown, engine.offers(b), repr(engine.metrics(b)), engine.schedule(b).tobytes()


# ------------------------------------------------------------------- the schedule


@examples(40)
@given(configs(), seeds, seeds)
def test_the_schedule_is_feasible(config, seed, answer_seed):
    schedule, workload = play(config, seed, answer_seed).schedule(), workload_of(config, seed)
    check_places_and_memory(config, workload, schedule)
    check_precedence_and_delays(workload, schedule)
    check_work(config, workload, schedule, seed)


def flat(workload, row):
    """Position in the workload's flat arrays of a row of the schedule."""
    return int(workload.task_offsets[row["workflow"]] + row["task"])


def check_places_and_memory(config, workload, schedule):
    """No server runs more tasks at once than it has places, nor more than its memory holds."""
    servers = [tier for tier in config.cluster.tiers for _ in range(tier.count)]
    capacity = np.array([tier.memory_gb for tier in servers])
    memory = np.array([workload.memory_gb[flat(workload, row)] for row in schedule])
    end = np.where(np.isnan(schedule["finish_s"]), np.inf, schedule["finish_s"])
    for moment in schedule["start_s"]:
        running = (schedule["start_s"] <= moment) & (end > moment)
        on = schedule["server"][running]
        assert (np.bincount(on, minlength=len(servers)) <= [tier.max_concurrent for tier in servers]).all()
        assert (np.bincount(on, memory[running], minlength=len(servers)) <= capacity * (1 + 1e-12)).all()


def check_precedence_and_delays(workload, schedule):
    """A task is ready when released, or when the attempt before was lost."""
    ended = {(int(r["workflow"]), int(r["task"])): r["finish_s"] for r in schedule if r["outcome"] == "finished"}
    before = {}
    for row in schedule:
        w, task = int(row["workflow"]), int(row["task"])
        edges = workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]]
        sources = [ended[w, p] for p in edges[edges[:, 1] == task, 0].tolist()]
        first = max(sources, default=row["arrival_s"]) + workload.delay_s[flat(workload, row)]
        assert row["arrival_s"] == workload.arrival_s[w]
        assert row["ready_s"] == pytest.approx(before.get((w, task), first), abs=1e-9)
        assert row["start_s"] >= row["ready_s"]
        before[w, task] = row["finish_s"]


def check_work(config, workload, schedule, seed):
    """The attempts of a task do its work once, each in the time that it takes on its server."""
    tiers = {tier.name: tier for tier in config.cluster.tiers}
    demand = workload.compute_gflop * straggler_factors(config, seed, 0, workload)
    last = {}
    for row in schedule:
        task, tier = flat(workload, row), tiers[row["tier"]]
        assert last.get(task) not in ("finished", "running")  # nothing runs twice, nothing after its end
        last[task] = row["outcome"]
        if config.communication.mode == "reward":
            assert row["transfer_s"] == 0
        if row["outcome"] == "running":
            continue
        assert 0 <= row["work_gflop"] <= demand[task] * (1 + 1e-9)
        if row["outcome"] == "finished":
            assert row["work_gflop"] == pytest.approx(demand[task], rel=1e-9)
            alone = row["work_gflop"] / tier.compute_gflops
            most = alone * (1 + tier.slowdown * (tier.max_concurrent - 1))
            assert alone - 1e-9 <= row["finish_s"] - row["start_s"] - row["transfer_s"] <= most + 1e-9


# ------------------------------------------------------------------- the metrics


@examples(40)
@given(configs(), seeds, seeds)
def test_the_metrics_follow_from_workload_answers_and_schedule(config, seed, answer_seed):
    outcomes = collections.Counter()
    engine = play(config, seed, answer_seed, lambda e: outcomes.update([OUTCOMES[e.outcome[0]]]))
    workload, metrics, schedule, clock = workload_of(config, seed), engine.metrics(), engine.schedule(), engine.clock[0]
    arrived = workload.arrival_s <= clock
    sizes = np.diff(workload.task_offsets)
    done = schedule[schedule["outcome"] == "finished"]
    assert metrics["duration_s"] == clock <= config.episode.horizon_s
    assert (metrics["workflows_arrived"], metrics["arrived"]) == (arrived.sum(), sizes[arrived].sum())
    assert (metrics["completed"], metrics["unfinished"]) == (len(done), metrics["arrived"] - len(done))
    complete = np.bincount(done["workflow"], minlength=len(sizes)) == sizes
    assert metrics["workflows_completed"] == complete.sum()
    response = done["finish_s"] - done["arrival_s"]
    if len(done):
        found = [metrics[f"response_{name}_s"] for name in ("mean", "median", "p95")]
        assert found == pytest.approx([response.mean(), np.median(response), np.percentile(response, 95)])
    if metrics["arrived"]:
        censored = response.sum() + ((clock - workload.arrival_s) * sizes)[arrived].sum()
        censored -= (clock - done["arrival_s"]).sum()
        assert metrics["response_censored_s"] == pytest.approx(censored / metrics["arrived"], abs=1e-9)

    busy = np.where(np.isnan(schedule["finish_s"]), clock, schedule["finish_s"]) - schedule["start_s"]
    assert -1e-9 <= metrics["lost_s"] <= busy.sum() + 1e-9
    assert metrics["lost_s"] == pytest.approx(busy[schedule["outcome"] == "failed"].sum())
    assert 0 <= metrics["utilisation"] <= 1 + 1e-9
    if config.cluster.changes.none and clock:
        assert metrics["utilisation"] == pytest.approx(busy.sum() / (config.cluster.num_places * clock))
        servers = [tier for tier in config.cluster.tiers for _ in range(tier.count)]
        of_a_place = np.array([(tier.busy_power_w - tier.idle_power_w) / tier.max_concurrent for tier in servers])
        idle = sum(tier.idle_power_w for tier in servers) * clock
        assert metrics["energy_j"] == pytest.approx(idle + (of_a_place[schedule["server"]] * busy).sum())

    assert metrics["failed_attempts"] == (schedule["outcome"] == "failed").sum()
    assert (metrics["waits"], metrics["passed"]) == (outcomes["waits"], outcomes["passed"])
    assert metrics["invalid_no_fit"] == outcomes["no_fit"]
    assert metrics["invalid_busy_avoidable"] + metrics["invalid_busy_unavoidable"] == outcomes["busy"]
    assert metrics["decisions"] == sum(outcomes.values())


# ------------------------------------------------------------------- what decides an episode


@examples(40)
@given(configs(), seeds, st.integers(0, 50))
def test_seed_and_episode_alone_decide_the_workload(config, seed, episode):
    plain = EnvConfig()
    same = {name: getattr(plain, name) for name in ("information", "decision", "communication")}
    same["cluster"] = config.cluster.model_copy(update={"changes": plain.cluster.changes})
    workload = generate(config, seed, episode)
    assert workload.equals(generate(config.model_copy(update=same), seed, episode))


@examples(40)
@given(configs(random_config), seeds, seeds, st.integers(1, 5))
def test_empty_slots_change_nothing_else(config, seed, answer_seed, added):
    cluster = config.cluster.model_copy(update={"empty_slots": config.cluster.empty_slots + added})
    engine, wider = start(config, seed), start(config.model_copy(update={"cluster": cluster}), seed)
    rng, width, rows = np.random.default_rng(answer_seed), engine.observation.shape[1], config.cluster.num_rows
    for _ in range(MOST):
        if engine.done[0]:
            break
        action = random_answer(rng, engine)
        engine.step([action])
        wider.step([action if action < rows else rows + added])
        np.testing.assert_array_equal(wider.observation[:, :width], engine.observation)
        assert (wider.reward[0], wider.clock[0], wider.done[0]) == (engine.reward[0], engine.clock[0], engine.done[0])
    assert everything(wider)[2:] == everything(engine)[2:]


@examples(40)
@given(configs(), seeds, seeds)
def test_a_batch_equals_single_engines(config, seed, answer_seed):
    """A row that has ended goes on alone, with a given workload or a drawn one."""
    rng, batch = np.random.default_rng(answer_seed), 3
    together, singles = Engine(config, batch), [Engine(config) for _ in range(batch)]
    keys = np.array([[seed + b, b % 2] for b in range(batch)])
    work = workload_of(config, 2 * (seed // 2))
    together.reset(keys[:, 0], keys[:, 1])
    for single, key in zip(singles, keys, strict=True):
        single.reset(key[:1], key[1:])
    for _ in range(60):
        actions = np.array([random_answer(rng, single) for single in singles])
        together.step(actions)
        for b, single in enumerate(singles):
            single.step(actions[b : b + 1])
        ended = together.done & (rng.random(batch) < 0.5)
        if ended.any():
            keys[:, 1] += 1
            following = {"workload": work if ended.tolist() == [True, False, False] else None}  # one at a time
            together.reset(keys[:, 0], keys[:, 1], which=ended, **following)
            for b in np.flatnonzero(ended):
                singles[b].reset(keys[b, :1], keys[b, 1:], **following)
        for b, single in enumerate(singles):
            assert everything(together, b) == everything(single)


def test_workflows_drawn_after_a_given_workload_have_their_release_delays():
    drawn = WorkloadConfig(delay_s={"mean": 1, "std": 0, "low": 0.1})
    engine, alone = (Engine(EnvConfig(workload=drawn)) for _ in range(2))
    engine.reset([0], [0], workload=workload(workflow(0, task(1))))
    engine.step([0], begin=(np.array([True]), np.array([3]), np.array([1])))
    alone.reset([3], [1])
    assert everything(engine) == everything(alone)


# ------------------------------------------------------------------- saving and going on


@examples(40)
@given(configs(), seeds, seeds, st.integers(0, 30))
def test_a_saved_state_goes_on_bit_by_bit(config, seed, answer_seed, steps):
    engine, rng = start(config, seed, num_envs=2), np.random.default_rng(answer_seed)
    for _ in range(steps):
        engine.step([random_answer(rng, engine, b) for b in range(2)])
    saved = pickle.loads(pickle.dumps(engine.get_state()))  # as a checkpoint stores it
    actions = rng.integers(engine.mask.shape[1], size=(60, 2))
    first = trajectory(engine, actions)
    for other in (engine, Engine(config, num_envs=2)):  # neither of them writes into what was saved
        other.set_state(saved)
        assert trajectory(other, actions) == first


def trajectory(engine, actions):
    """Everything seen while playing the actions (steps, B); each environment that ends begins its next episode."""
    seen, passes = [], engine.candidates * engine.config.cluster.num_rows
    for k, action in enumerate(actions):
        engine.step(np.where(engine.answerable(action), action, passes))
        seen.append([everything(engine, b) for b in range(engine.num_envs)])
        if engine.done.any():
            engine.reset([k, k], [1, 2], which=engine.done.copy())
    return seen


# ------------------------------------------------------------------- sizes


def test_an_episode_without_arrivals_is_an_empty_one():
    none = WorkloadConfig(arrival_rate_per_server=1e-9)
    # Where nothing can arrive any more it ends at once.
    for until, end in ((1, 0), (None, 5)):
        engine = start(EnvConfig(workload=none, episode=EpisodeConfig(horizon_s=5, arrivals_until_s=until)), 1)
        assert engine.done[0]
        metrics = engine.metrics()
        assert (metrics["arrived"], metrics["duration_s"], metrics["utilisation"]) == (0, end, 0)
        assert math.isnan(metrics["response_censored_s"])
