"""Prices as duals: by hand on a literal cluster, of classes that differ in memory alone, and what they are good for."""

from __future__ import annotations

import numpy as np
import pytest

from reference.rounds import link
from rllib_scale.config import SCENARIOS, EnvConfig, scenario
from rllib_scale.config.schedulers import DualPriceParameters
from rllib_scale.errors import UserError
from rllib_scale.evaluation.explained import explain
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.context import context_names, theta_names
from rllib_scale.schedulers.dual_price import (
    MOST_LOAD,
    Classes,
    DualPrice,
    duals,
    initial_weights_by_duals,
    prices,
    prices_of,
)
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.sample import sample_workflows
from schedulers.instances import cluster
from small_moments import workload

# ------------------------------------------------------------------- the linear program


def test_a_second_is_worth_what_the_task_at_the_margin_saves_by_it() -> None:
    # Two kinds of 4 s on slow and 2 s on fast, the second one weighs 3. Of 3 s on fast it takes 2, the other one 1:
    # one more saves that 2 s on slow for 1 on fast. Twice as many: the second kind fills it, and saves three times it.
    seconds = np.array([[4.0, 2.0], [4.0, 2.0]])
    found = duals(np.array([1.0, 3.0]), seconds, seconds, np.array([99.0, 3.0]), np.array([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(found, [[0, 0], [0, 1], [0, 3]], atol=1e-9)


def test_beyond_what_is_possible_the_prices_are_those_just_below() -> None:
    seconds = np.array([[4.0, 2.0], [4.0, 2.0]])
    available = np.array([4.0, 2.0])  # each kind on one: a load of 1 is all that goes
    found = duals(np.array([1.0, 3.0]), seconds, seconds, available, np.array([MOST_LOAD, 1.2, 7.0]))
    assert (found == found[0]).all()
    assert found[0, 1] == pytest.approx(1)


def test_a_task_of_half_the_memory_takes_half_of_the_places() -> None:
    # One server of 4 places and 40 GB: tasks of 20 GB, of 4 s, come every 2 s and fill it; of 1 GB they fill half.
    env = cluster((1, 1.0, 40.0), (9, 0.5, 40.0), places=4)
    classes, rate = Classes.in_cluster(env.cluster), 0.5
    given = (workload((0, [(4.0, memory)], [])) for memory in (20.0, 1.0))
    dear, cheap = (prices(classes, each, each.labels, rate * 1.5) for each in given)
    assert dear[1] > 0
    assert cheap.tolist() == [0, 0]


def test_classes_of_one_speed_are_told_apart_by_memory() -> None:
    # First one of 40 GB, for which two thirds of the work compete, else they are half as fast; then two of 10 GB.
    env = cluster((1, 1.0, 40.0), (2, 1.0, 10.0), (4, 0.5, 40.0))
    for rule, row in (("dual-price:load=0.6", 1), ("price", 0)):
        schedule = play(make_scheduler(rule, env.observation), env, 0, [0], workload((0, [(4.0, 5.0)], []))).schedule()
        assert [attempt["server"] for attempt in schedule] == [row]


def test_each_server_has_the_price_of_its_class_whatever_tells_that_apart() -> None:
    """Speed, memory, places or the slowdown alone."""
    plain = {"compute_gflops": 1.0, "memory_gb": 40.0, "max_concurrent": 2, "slowdown": 0.0}
    for name, value in {"compute_gflops": 2.0, "memory_gb": 80.0, "max_concurrent": 8, "slowdown": 0.4}.items():
        tiers = [
            {"name": "other", "count": 2} | plain | {name: value},
            {"name": "slow", "count": 3} | plain | {"compute_gflops": 0.3, "memory_gb": 80.0},
            {"name": "plain", "count": 1} | plain,
        ]
        env = EnvConfig.model_validate(
            {
                "cluster": {"tiers": tiers, "empty_slots": 1},
                "workload": {"offered_load": 0.9, "memory_gb": {"mean": 20, "std": 8, "low": 1, "high": 80}},
                "episode": {"horizon_s": 100, "mask": "feasible"},
            }
        )
        rule = DualPrice()
        engine = Engine(rule.problem(env))
        engine.reset([3], [0])
        rule.reset([(3, 0)])
        classes, found, _ = prices_of(env)
        expected = []
        for tier in env.cluster.tiers:
            of_tier = (tier.compute_gflops, tier.memory_gb, tier.max_concurrent)
            slowed = 1 + tier.slowdown * (tier.max_concurrent - 1)
            (k,) = (
                k for k, own in enumerate(zip(*classes[:3], classes.slowdown, strict=True)) if own == (*of_tier, slowed)
            )
            expected += [0.8 * found[k]] * tier.count
        assert len(set(expected)) == 3, f"{name} tells prices apart"
        assert explain(rule, engine.view()).prices.tolist() == [*expected, 0]


def test_prices_follow_the_load_of_the_problem_or_the_one_that_is_named() -> None:
    env, busier = SCENARIOS["steady-0.5"][0], SCENARIOS["steady-0.9"][0]
    own, named, of_busier = (prices_of(env)[1], prices_of(env, 0.9)[1], prices_of(busier)[1])
    np.testing.assert_allclose(named, of_busier)
    assert own[0] == own[1] == 0 < own[2] < named[2]
    assert 0 < named[1] < named[2]
    assert sample_workflows(env, 100).offered_load(env) == pytest.approx(0.5)


def test_where_followers_are_not_seen_each_task_weighs_as_much() -> None:
    env = SCENARIOS["steady-0.5"][0]
    revealed = env.model_copy(update={"information": env.information.model_copy(update={"workflows": "revealed"})})
    assert prices_of(revealed)[1][2] == pytest.approx(1)  # 2 s on medium, of one task, for one on large
    assert prices_of(env)[1][2] > 1.5


# ------------------------------------------------------------------- what it decides


def test_it_plays_every_scenario_of_fixed_service() -> None:
    for name, (env, _) in SCENARIOS.items():
        if env.on_replicas:
            continue
        episode = env.episode.model_copy(update={"horizon_s": 20.0, "arrivals_until_s": 12.0})
        rule = make_scheduler("dual-price", env.observation)
        assert play(rule, env.model_copy(update={"episode": episode}), 3, [0]).metrics()["completed"] > 0, name


def test_it_has_no_prices_without_a_problem_or_a_load() -> None:
    observation = SCENARIOS["steady-0.5"][0].observation
    with pytest.raises(UserError, match="dual-price has no prices yet"):
        make_scheduler("dual-price", observation).reset([(0, 0)])
    with pytest.raises(UserError, match=r"dual-price:load=0.*load"):
        make_scheduler("dual-price:load=0", observation)


@pytest.mark.parametrize("name", ["steady-0.7", "coding-agents-0.7"])
def test_a_search_that_begins_with_the_duals_has_their_prices_at_the_load_observed(name: str) -> None:
    env = scenario(name)
    classes, middle, mean_s = prices_of(env, 0.7)
    weights = initial_weights_by_duals(env, classes.speed)
    names = theta_names(len(classes.speed))
    at = {load: np.zeros(1 + len(context_names(len(classes.speed)))) for load in (0.4, 0.7, 1.0)}
    for load, entries in at.items():
        entries[0], entries[1 + context_names(3).index("load_150")] = 1.0, (load - 0.7) / 0.3
    theta = {load: dict(zip(names, link(weights @ entries), strict=True)) for load, entries in at.items()}
    assert {n: theta[0.7][n] for n in ("a", "b", "age", "alpha")} == {"a": 1, "b": -1, "age": 0, "alpha": 1}
    assert theta[0.7]["penalty"] == pytest.approx(DualPriceParameters().penalty * mean_s)
    dearest = f"price_{len(classes.speed)}"
    assert theta[0.4][dearest] < theta[0.7][dearest] < theta[1.0][dearest]
    # A line does not follow the steps of the duals, but is near them.
    assert theta[0.7][dearest] == pytest.approx(DualPriceParameters().discount * (middle[-1] - middle[0]), rel=0.35)
