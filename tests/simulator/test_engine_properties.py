"""What must hold in every episode, whatever the problem, the workload and the decisions."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.cases import TOPOLOGIES
from rllib_scale.config import (
    ClusterConfig,
    EnvConfig,
    EpisodeConfig,
    NormalConfig,
    RewardConfig,
    TierConfig,
    WorkloadConfig,
)
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
examples = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**31)

tiers = st.builds(
    lambda count, compute, memory, idle, extra: {
        "count": count,
        "compute_gflops": compute,
        "memory_gb": memory,
        "idle_power_w": idle,
        "busy_power_w": idle + extra,
    },
    st.integers(1, 5),
    st.floats(0.5, 6),
    st.floats(5, 50),
    st.floats(0, 100),
    st.floats(0, 200),
)


@st.composite
def configs(draw):
    """A problem; hypothesis shrinks towards few servers, one topology and short episodes."""
    cluster = ClusterConfig(
        tiers=[
            TierConfig(name=f"tier_{k}", **tier) for k, tier in enumerate(draw(st.lists(tiers, min_size=1, max_size=3)))
        ],
        empty_slots=draw(st.integers(0, 2)),
    )
    largest = max(tier.memory_gb for tier in cluster.tiers)
    horizon = draw(st.floats(5, 30))
    least = draw(st.integers(1, 6))
    return EnvConfig(
        cluster=cluster,
        workload=WorkloadConfig(
            arrival_rate_per_server=draw(st.floats(0.5, 2)) / cluster.num_servers,
            min_tasks=least,
            max_tasks=least + draw(st.integers(0, 5)),
            compute_gflop=NormalConfig(mean=draw(st.floats(1, 8)), std=2, low=0.5),
            memory_gb=NormalConfig(mean=largest / 2, std=largest / 3, low=0.5, high=largest),
            topology=draw(st.sampled_from(TOPOLOGIES)),
        ),
        episode=EpisodeConfig(
            horizon_s=horizon,
            arrivals_until_s=draw(st.sampled_from([None, horizon / 3])),
            clock_step_s=draw(st.sampled_from([0.1, 0.37, 1.0])),
            idle_advance=draw(st.sampled_from(["event", "clock-step"])),
            first_arrival=draw(st.sampled_from(["exponential", "at-zero"])),
            mask=draw(st.sampled_from(["none", "feasible"])),
            max_decisions=draw(st.sampled_from([None, 10])),
        ),
        reward=RewardConfig(name=draw(st.sampled_from(["paper", "tasks-in-system"])), energy_weight=0.1),
    )


def start(config, seed=0, episode=0):
    engine = Engine(config)
    engine.reset(np.array([seed]), np.array([episode]))
    return engine


def idle_servers(engine):
    """Slots of the first environment that hold an idle server, as the observation shows them."""
    servers = engine.observation[0, 5:].reshape(-1, 5)
    return np.flatnonzero((servers[:, 0] > 0) & (servers[:, 2] == 0))


def choose(rng, engine):
    """An idle server more often than not, any slot otherwise."""
    idle = idle_servers(engine)
    return int(rng.choice(idle)) if len(idle) and rng.random() < 0.7 else int(rng.integers(engine.num_slots))


def play(engine, rng, on_step=lambda before, action: None):
    """Play the first environment to its end; `on_step(clock before, action)` is called after each decision."""
    while not engine.done[0]:
        before, action = float(engine.clock[0]), choose(rng, engine)
        engine.step(np.array([action]))
        on_step(before, action)


def played(config, seed, action_seed):
    """An engine after one episode, and the workload of that episode."""
    engine = start(config, seed)
    play(engine, np.random.default_rng(action_seed))
    return engine, generate(config, seed, 0)


def outcome(engine, b=0):
    """Everything an episode leaves behind, comparable bit by bit (NaN equals NaN)."""
    metrics = {name: None if math.isnan(value) else value for name, value in engine.metrics(b).items()}
    return metrics, [tuple(map(repr, row)) for row in engine.schedule(b).tolist()]


# ------------------------------------------------------------------- tasks are conserved


@examples
@given(configs(), seeds, seeds)
def test_the_metrics_follow_from_workload_and_schedule(config, seed, action_seed):
    engine, workload = played(config, seed, action_seed)
    metrics, schedule, end = engine.metrics(), engine.schedule(), float(engine.clock[0])
    sizes = np.diff(workload.task_offsets)
    has_arrived = workload.arrival_s <= end
    done = schedule[~np.isnan(schedule["finish_s"])]
    response = done["finish_s"] - done["arrival_s"]

    assert metrics["duration_s"] == end <= config.episode.horizon_s
    assert metrics["workflows_arrived"] == has_arrived.sum()
    assert metrics["arrived"] == sizes[has_arrived].sum()
    assert metrics["completed"] == len(done)
    assert metrics["unfinished"] == metrics["arrived"] - metrics["completed"]
    complete = np.bincount(done["workflow"], minlength=len(sizes)) == sizes
    assert metrics["workflows_completed"] == complete.sum()
    invalid = sum(metrics[f"invalid_{cause}"] for cause in ("no_fit", "busy_avoidable", "busy_unavoidable"))
    assert metrics["decisions"] == len(schedule) + invalid

    if len(done):
        assert metrics["response_mean_s"] == pytest.approx(response.mean())
        assert metrics["response_median_s"] == pytest.approx(np.median(response))
        assert metrics["response_p95_s"] == pytest.approx(np.percentile(response, 95))
    else:
        assert math.isnan(metrics["response_mean_s"])
    if metrics["arrived"]:
        waiting = end * metrics["arrived"] - (workload.arrival_s * sizes)[has_arrived].sum()
        saved = (end - done["finish_s"]).sum()
        assert metrics["response_censored_s"] == pytest.approx((waiting - saved) / metrics["arrived"])
    capacities = [tier for tier in config.cluster.tiers for _ in range(tier.count)]
    busy = np.zeros(len(capacities))
    for row in schedule:
        busy[row["server"]] += (end if np.isnan(row["finish_s"]) else row["finish_s"]) - row["start_s"]
    assert metrics["utilisation"] == pytest.approx(busy.sum() / (len(busy) * end) if end else 0)
    energy = sum(
        tier.idle_power_w * (end - seconds) + tier.busy_power_w * seconds
        for tier, seconds in zip(capacities, busy, strict=True)
    )
    assert metrics["energy_j"] == pytest.approx(energy)


# ------------------------------------------------------------------- empty slots


@examples
@given(configs(), seeds, seeds, st.integers(1, 5))
def test_empty_slots_change_nothing_else(config, seed, action_seed, added):
    cluster = config.cluster.model_copy(update={"empty_slots": config.cluster.empty_slots + added})
    engine, wider = start(config, seed), start(config.model_copy(update={"cluster": cluster}), seed)
    rng = np.random.default_rng(action_seed)
    width = engine.observation.shape[1]
    while not engine.done[0]:
        action = np.array([choose(rng, engine)])
        engine.step(action)
        wider.step(action)
        np.testing.assert_array_equal(wider.observation[:, :width], engine.observation)
        assert (wider.reward[0], wider.clock[0], wider.done[0]) == (engine.reward[0], engine.clock[0], engine.done[0])
    assert outcome(wider) == outcome(engine)


# ------------------------------------------------------------------- batches


@examples
@given(configs(), seeds, st.integers(2, 5), seeds)
def test_a_batch_equals_single_engines(config, seed, batch, action_seed):
    """Each row is stepped only sometimes, and one that has ended begins its next episode alone."""
    rng = np.random.default_rng(action_seed)
    together = Engine(config, num_envs=batch)
    singles = [Engine(config) for _ in range(batch)]
    keys = np.array([[seed + b, b % 2] for b in range(batch)])
    together.reset(keys[:, 0], keys[:, 1])
    for single, key in zip(singles, keys, strict=True):
        single.reset(key[:1], key[1:])
    for _ in range(60):
        actions = np.array([choose(rng, single) for single in singles])
        active = rng.random(batch) < 0.8
        together.step(actions, active=active)
        for b in np.flatnonzero(active):
            singles[b].step(actions[b : b + 1])
        assert_rows_equal(together, singles)
        ended = together.done & (rng.random(batch) < 0.5)
        if ended.any():
            keys[:, 1] += 1
            together.reset(keys[:, 0], keys[:, 1], which=ended)
            for b in np.flatnonzero(ended):
                singles[b].reset(keys[b, :1], keys[b, 1:])
            assert_rows_equal(together, singles)


def assert_rows_equal(together, singles):
    for b, single in enumerate(singles):
        np.testing.assert_array_equal(together.observation[b], single.observation[0])
        for name in ("reward", "clock", "done"):
            assert getattr(together, name)[b] == getattr(single, name)[0], name
        assert outcome(together, b) == outcome(single)


def test_rows_may_play_a_given_workload_beside_drawn_ones():
    config = EnvConfig(episode=EpisodeConfig(horizon_s=30))
    workload = generate(config, 99, 0)
    together, drawn, given_one = Engine(config, num_envs=2), start(config, 5), Engine(config)
    together.reset(np.array([5, 0]), np.array([0, 0]))
    together.reset(np.array([0, 0]), np.array([0, 0]), which=np.array([False, True]), workload=workload)
    given_one.reset(np.array([0]), np.array([0]), workload=workload)
    rng = np.random.default_rng(0)
    for _ in range(200):
        actions = np.array([choose(rng, single) for single in (drawn, given_one)])
        together.step(actions)
        drawn.step(actions[:1])
        given_one.step(actions[1:])
        assert_rows_equal(together, [drawn, given_one])


# ------------------------------------------------------------------- saving and going on


@examples
@given(configs(), seeds, seeds, st.integers(0, 30))
def test_a_saved_state_goes_on_bit_by_bit(config, seed, action_seed, steps):
    engine = Engine(config, num_envs=2)
    engine.reset(np.array([seed, seed + 1]), np.array([0, 0]))
    rng = np.random.default_rng(action_seed)
    for _ in range(steps):
        engine.step(rng.integers(engine.num_slots, size=2))
    saved = pickle.loads(pickle.dumps(engine.get_state()))  # as a checkpoint stores it
    actions = rng.integers(engine.num_slots, size=(60, 2))

    first = trajectory(engine, actions)
    engine.set_state(saved)
    assert trajectory(engine, actions) == first
    other = Engine(config, num_envs=2)
    other.set_state(saved)  # the same again: neither engine has written into it
    assert trajectory(other, actions) == first


def trajectory(engine, actions):
    """Everything seen while playing the actions (steps, B); each environment that ends begins its next episode."""
    seen = []
    for k, action in enumerate(actions):
        engine.step(action)
        seen.append([getattr(engine, name).tobytes() for name in ("observation", "reward", "clock", "done")])
        if engine.done.any():
            seen.append([outcome(engine, b) for b in range(engine.num_envs)])
            engine.reset(np.array([k, k]), np.array([1, 2]), which=engine.done.copy())
    return seen


def test_the_state_holds_a_given_workload():
    config = EnvConfig(episode=EpisodeConfig(horizon_s=30))
    engine = Engine(config)
    engine.reset(np.array([0]), np.array([0]), workload=generate(config, 4, 4))
    rng = np.random.default_rng(1)
    for _ in range(10):
        engine.step(np.array([choose(rng, engine)]))
    other = Engine(config)
    other.set_state(engine.get_state())
    for one in (engine, other):
        play(one, np.random.default_rng(2))
    assert outcome(other) == outcome(engine)
    assert engine.metrics()["workflows_arrived"] == generate(config, 4, 4).num_workflows


# ------------------------------------------------------------------- sizes


def test_an_episode_without_arrivals_is_an_empty_one():
    config = EnvConfig(
        workload=WorkloadConfig(arrival_rate_per_server=1e-9), episode=EpisodeConfig(horizon_s=5, arrivals_until_s=1)
    )
    assert generate(config, 0, 0).num_workflows == 0
    engine = start(config)
    assert engine.done[0]  # nothing can arrive any more: empty at once
    metrics = engine.metrics()
    assert (metrics["arrived"], metrics["duration_s"], metrics["utilisation"]) == (0, 0, 0)
    assert math.isnan(metrics["response_censored_s"])

    waiting = start(config.model_copy(update={"episode": EpisodeConfig(horizon_s=5)}))
    assert waiting.done[0]
    assert waiting.clock[0] == 5
