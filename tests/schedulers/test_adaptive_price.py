"""adaptive-price: what it learns, that units decide nothing, and that it decides alike wherever it plays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.config.schedulers import AdaptivePriceParameters
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.adaptive_price import AGE, SHAPE, AdaptivePrice, shipped_map
from rllib_scale.schedulers.adaptive_terms import BEYOND, INPUTS, KAPPA, PENALTY, THETA
from rllib_scale.schedulers.estimates import FOLLOWER_DECAY, KEEPS, PSEUDO_TASKS
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from schedulers.instances import PROBLEMS, SEVERAL, TWO, cluster, starts
from small_moments import workload

NO_MAP = np.zeros(SHAPE)
CHAIN = [[0, 1], [1, 2]]


def learned(env: EnvConfig, given: Workload | None = None, weights: np.ndarray = NO_MAP) -> AdaptivePrice:
    """A rule that has played an episode."""
    rule = AdaptivePrice(weights=weights)
    play(rule, env, 3, [0], given)
    return rule


def scaled(given: Workload, time: float, demand: float) -> Workload:
    """The workload in other units of time and of work."""
    return replace(
        given,
        arrival_s=given.arrival_s * time,
        delay_s=given.delay_s * time,
        compute_gflop=given.compute_gflop * demand,
    )


def on_scaled(env: EnvConfig, time: float, speed: float) -> EnvConfig:
    """The problem with other times and speeds."""
    tiers = [t.model_copy(update={"compute_gflops": t.compute_gflops * speed}) for t in env.cluster.tiers]
    update = {"tiers": tuple(tiers), "bandwidth_gb_s": env.cluster.bandwidth_gb_s / time}
    update["latency_s"] = env.cluster.latency_s * time
    changes = env.cluster.changes
    episode = env.episode.model_copy(
        update={"horizon_s": env.episode.horizon_s * time, "arrivals_until_s": env.episode.arrivals_until_s * time}
    )
    assert not changes.schedule
    return env.model_copy(update={"cluster": env.cluster.model_copy(update=update), "episode": episode})


@pytest.mark.parametrize("name", ["steady", "places", "revealed"])
@pytest.mark.parametrize(("time", "demand"), [(1.0, 8.0), (0.25, 0.25), (16.0, 2.0), (5.0, 5.0), (0.2, 0.2)])
def test_units_of_time_and_work_decide_nothing(name: str, time: float, demand: float) -> None:
    env = EnvConfig.model_validate(
        PROBLEMS[name] | {"information": {"workflows": "revealed"}} if name == "revealed" else PROBLEMS[name]
    )
    given, rule = generate(env, 5, 0), AdaptivePrice()
    one = play(rule, env, 5, [0], given).schedule()
    other = play(rule, on_scaled(env, time, demand / time), 5, [0], scaled(given, time, demand)).schedule()
    for column in ("workflow", "task", "server"):
        np.testing.assert_array_equal(one[column], other[column])
    np.testing.assert_allclose(one["start_s"] * time, other["start_s"], rtol=1e-9)


def test_what_has_not_arrived_decides_nothing() -> None:
    env = EnvConfig.model_validate(PROBLEMS["steady"])
    given = generate(env, 5, 0)
    count = given.num_workflows // 2
    tasks, edges = given.task_offsets[count], given.edge_offsets[count]
    half = Workload(
        **{
            name: getattr(given, name)[: {"arrival_s": count, "edges": edges}.get(name, tasks)]
            for name in ("arrival_s", "compute_gflop", "memory_gb", "output_gb", "delay_s", "edges")
        },
        task_offsets=given.task_offsets[: count + 1],
        edge_offsets=given.edge_offsets[: count + 1],
    )
    until = given.arrival_s[count]
    both = [play(AdaptivePrice(), env, 5, [0], each).schedule() for each in (given, half)]
    before = [schedule[schedule["start_s"] < until] for schedule in both]
    assert len(before[0]) > 10
    for column in ("workflow", "task", "server", "start_s"):
        np.testing.assert_array_equal(before[0][column], before[1][column])


def test_the_first_solution_of_a_literal_instance() -> None:
    # A slow server of 1 GFLOPS and a fast one of 2: a mean place of 1.5, on which the mean task of 6 takes 4 s.
    rule = learned(TWO, workload((0, [(4, 5), (8, 5)], [])))
    means, classes = rule.learned.prices.means[0], rule.learned.prices.classes[0]
    assert (means["compute"], means["tau"], means["stay"]) == (6.0, 4.0, 1.0)
    assert (means["places"], means["capacity"], means["slowest"], means["fastest"]) == (2.0, 3.0, 1.0, 2.0)
    assert classes["capacity"][:2].tolist() == [1.0, 2.0]
    slow, fast = rule.learned.prices.curves[0, :2]
    assert (slow == 0).all()
    assert (np.diff(fast) >= 0).all()
    assert fast[-1] > fast[0] >= 0  # a second there is worth more, the fuller the servers are


@pytest.mark.parametrize("tiers", [[(1, 1, 10)], [(3, 2, 10)]], ids=["one server", "equal speeds"])
def test_where_no_server_is_faster_a_task_starts_on_the_first_open_one(tiers: list[tuple[int, float, float]]) -> None:
    env = cluster(*tiers)
    env = env.model_copy(update={"episode": env.episode.model_copy(update={"horizon_s": 500.0})})
    given = workload(*((0.1 * k, [(4, 5), (8, 2)], [[0, 1]]) for k in range(12)))
    schedule = play(AdaptivePrice(weights=NO_MAP), env, 3, [0], given).schedule()
    assert len(schedule) == 24
    ends = np.maximum.accumulate(np.sort(schedule["finish_s"]))
    assert ends[-1] == pytest.approx(12 * 12 / (tiers[0][0] * tiers[0][1]), rel=0.3)  # no server idles beside work


def test_followers_and_hidden_tasks_come_from_workflows_that_have_ended() -> None:
    env = TWO.model_copy(update={"information": TWO.information.model_copy(update={"workflows": "revealed"})})
    chains = [(40.0 * k, [(4.0, 5.0)] * 3, CHAIN) for k in range(3)]
    rule = learned(
        env.model_copy(update={"episode": env.episode.model_copy(update={"horizon_s": 500.0})}), workload(*chains)
    )
    estimates = rule.learned.estimates
    followers, sizes = estimates.followers[0], estimates.sizes[0]
    np.testing.assert_allclose(followers[1:4, 0] / followers[1:4, 1], [3.0, 2.0, 1.0])  # of two that were seen to end
    assert sizes[3, 0] / sizes[3, 1] == 3.0
    assert estimates.counts[0]["tasks"] == 3 + 3 * KEEPS
    # What waits last is the third task of the third chain: as much as is known, and the prior.
    prior = 1 + FOLLOWER_DECAY**3
    expected = (followers[3, 0] + PSEUDO_TASKS * prior) / (followers[3, 1] + PSEUDO_TASKS)
    sampled = estimates.counts[0]["sampled"]
    assert sampled == 9
    assert 1.0 < expected < prior


def test_unseen_tasks_count_as_work_and_followers_are_estimated() -> None:
    env = TWO.model_copy(update={"information": TWO.information.model_copy(update={"workflows": "revealed"})})
    engine, rule = Engine(env), AdaptivePrice(weights=NO_MAP)
    engine.reset([0], [0], workload=workload((0, [(6.0, 5.0)] * 3, CHAIN)))
    rule.reset([(0, 0)])
    view = engine.view()
    rule.terms(view)
    # One task of 6 GFLOP is seen and one more is taken to follow; 3 GFLOPS do both in 4 s, and tau is 4 s.
    seen = dict(zip(INPUTS, rule.learned.inputs[0].tolist(), strict=True))
    assert seen["work"] == pytest.approx(np.log(1 + 5 * 4 / 4) - 2)
    assert view.waiting[0, 0]["descendants"] == pytest.approx(1 + FOLLOWER_DECAY)


def test_what_is_not_scarce_has_no_price() -> None:
    rule, prices = AdaptivePrice(weights=NO_MAP), []
    given = workload(*((float(k), [(4, 5), (8, 5)], []) for k in range(20)))
    play(rule, TWO, 3, [0], given, watch=lambda engine: prices.append(rule.terms(engine.view())[1][0].tolist()))
    assert rule.learned.prices.curves[0, 1].max() > 0
    assert prices[0] == [0.0, 0.0]  # the servers have been idle
    assert max(fast for _, fast in prices) > 0


def test_servers_are_as_scarce_as_before_when_others_leave_or_join() -> None:
    """Only the second server is in use. It is the second class, then the first, then the second again."""
    changes = {"schedule": [{"time_s": t, "event": e, "servers": [0]} for t, e in ((9.5, "fail"), (14.5, "join"))]}
    env = EnvConfig.model_validate(TWO.model_dump() | {"cluster": TWO.cluster.model_dump() | {"changes": changes}})
    given = workload(*((float(k), [(3, 20)], []) for k in range(20)))
    rule, used = AdaptivePrice(weights=NO_MAP), {}

    def keep(engine: Engine) -> None:
        rule.terms(engine.view())
        prices = rule.learned.prices
        used[float(engine.clock[0])] = [float(prices.used[0, k, 0]) if k >= 0 else None for k in prices.of[0]]

    play(rule, env, 3, [0], given, watch=keep)
    assert used[9.0] == [0.0, pytest.approx(0.36, abs=0.01)]
    assert used[9.5] == [None, pytest.approx(0.33, abs=0.01)]
    assert used[14.5] == [0.0, pytest.approx(0.46, abs=0.01)]


def test_moves_that_take_no_time_decide_nothing() -> None:
    given = workload((0, [(6, 20)], []), (0.1, [(4, 5), (4, 5)], [[0, 1]]))
    given = replace(given, output_gb=np.full(3, 1000.0))
    for mode, server in (("reward", 1), ("transfer", 0)):  # the second task of the chain goes to the fast one, or stays
        env = TWO.model_copy(update={"communication": TWO.communication.model_copy(update={"mode": mode})})
        assert starts("adaptive-price:strength=0", env, given)[1, 1][0] == server


def test_memory_leaves_a_server_fewer_places() -> None:
    rule = learned(cluster((2, 1, 40), places=4), workload((0, [(4, 20), (4, 20)], [])))
    assert rule.learned.prices.means[0]["places"] == 4.0  # two of 20 GB on each of two servers


def test_servers_that_leave_are_no_class_and_have_no_price() -> None:
    changes = {"schedule": [{"time_s": 9, "event": "fail", "servers": [3, 4]}]}
    env = EnvConfig.model_validate(SEVERAL | {"cluster": SEVERAL["cluster"] | {"changes": changes}})
    rule = learned(env)
    prices = rule.learned.prices
    assert prices.means[0]["num_classes"] == 1
    assert (prices.means[0]["slowest"], prices.means[0]["fastest"]) == (1.0, 1.0)
    assert prices.of[0].tolist() == [0, 0, 0, -1, -1, -1, -1]


def test_the_strength_scales_the_map_and_no_map_is_smiths_order_and_dual_prices() -> None:
    half = AdaptivePrice(AdaptivePriceParameters(strength=0.5))
    np.testing.assert_array_equal(half.weights[:, 1:], 0.5 * shipped_map()[:, 1:])
    later = AdaptivePrice(AdaptivePriceParameters(strength=0.5, tail=2.0)).weights - half.weights
    assert later[THETA.index("age"), 0] == pytest.approx(AGE)
    assert np.count_nonzero(later) == 1
    none = make_scheduler("adaptive-price:strength=0,tail=0", TWO.observation, "feasible")
    assert isinstance(none, AdaptivePrice)
    play(none, TWO, 3, [0], workload((0, [(4, 5), (8, 5)], [])))
    theta = dict(zip(THETA, none.learned.theta[0].tolist(), strict=True))
    assert theta | {"penalty": 0, "kappa": 0} == {**dict.fromkeys(THETA, 0.0), "a": 1.0, "b": -1.0, "alpha": 1.0}
    assert theta["kappa"] == pytest.approx(KAPPA, abs=1e-6)


@pytest.mark.parametrize(("servers", "doublings"), [(6, 0), (48, 0), (96, 1), (384, 3)])
def test_waiting_costs_more_on_more_servers_than_the_search_had(servers: int, doublings: int) -> None:
    rule = learned(cluster((servers, 1, 40)), workload((0, [(4, 20)], [])))
    penalty = rule.learned.theta[0, THETA.index("penalty")]
    assert penalty == pytest.approx(PENALTY + BEYOND * doublings, abs=0.03)  # the softplus adds a little


def test_a_task_that_many_wait_for_goes_first() -> None:
    given = workload((0, [(4, 20)], []), (0, [(4, 20), (1, 5), (1, 5)], [[0, 1], [0, 2]]))
    found = starts("adaptive-price", TWO, given)  # both fit the fast server alone
    assert found[1, 0][1] < found[0, 0][1]


def test_a_map_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weights \(8, 20\): must be \(8, 13\)"):
        AdaptivePrice(weights=np.zeros((8, 20)))


@pytest.mark.parametrize("scarce", [0.0, 1.0])
def test_what_few_servers_can_run_is_placed_first(scarce: float) -> None:
    """The tasks that fit both servers are shorter; two thirds of the capacity are on the one that the other fits."""
    given = workload((0, [(3, 20)], []), (0.1, [(7, 20), (6, 5), (6, 5)], []))
    started = starts(f"adaptive-price:strength=0,tail=0,scarce={scarce}", TWO, given)
    on_large = [(start_s, task) for (flow, task), (server, start_s) in started.items() if (flow, server) == (1, 1)]
    assert (min(on_large)[1] == 0) == (scarce > 0)
