"""scale-any: it begins as the rule whose costs it sees, in any units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.config.schedulers import AdaptivePriceParameters
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.networks.build import build_network
from rllib_scale.observation.relative import RELATIVE
from rllib_scale.policies.policy import load_policy, save_policy
from rllib_scale.policies.visiting_policy import VisitingPolicy
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.adaptive_terms import THETA
from rllib_scale.schedulers.asked_visits import AskedVisits
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from schedulers.instances import PROBLEMS
from schedulers.test_adaptive_price import on_scaled, scaled

FEASIBLE = {"episode": {"mask": "feasible"}}


def policy(skip: str = "adaptive", noise: float = 0.0, **network: float) -> VisitingPolicy:
    """An untrained policy, or one with other weights."""
    trial = TrialConfig.of("scale-any", env=FEASIBLE, network={"skip": skip, "embedding_dim": 8, **network})
    torch.manual_seed(1)
    made = build_network(trial)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += noise * torch.randn_like(parameter)
    return VisitingPolicy(made, trial, 0)


def problem(name: str) -> EnvConfig:
    """One of PROBLEMS."""
    return EnvConfig.model_validate(PROBLEMS[name])


@pytest.mark.parametrize("scarce", [0.0, 1.0])
@pytest.mark.parametrize("name", PROBLEMS)
def test_untrained_it_is_adaptive_price(name: str, scarce: float) -> None:
    expected = play(AdaptivePrice(AdaptivePriceParameters(scarce=scarce)), problem(name), 3, [0, 1])
    found = play(policy(scarce=scarce), problem(name), 3, [0, 1])
    for b in range(2):
        np.testing.assert_array_equal(found.schedule(b), expected.schedule(b))


def test_units_of_time_and_work_decide_nothing() -> None:
    env, of = problem("steady"), policy("naive", noise=0.5, penalty=0.6)
    given = generate(env, 5, 0)
    one = play(of, env, 5, [0], given).schedule()
    assert not np.array_equal(one, play(policy("naive", penalty=0.6), env, 5, [0], given).schedule()), (
        "the network decides"
    )
    other = play(of, on_scaled(env, 4.0, 0.5), 5, [0], scaled(given, 4.0, 2.0)).schedule()
    for column in ("workflow", "task", "server"):
        np.testing.assert_array_equal(one[column], other[column])


@pytest.mark.parametrize("penalty", [0.0, 0.6])
def test_without_prices_it_begins_as_the_earliest_finish_with_twice_the_wait(penalty: float) -> None:
    visits = AskedVisits(1, True, policy("naive", penalty=penalty).trial.visits_by)
    engine, columns = Engine(problem("steady")), RELATIVE.server_column
    engine.reset([3], [0])
    seen = 0
    for _ in range(40):
        visits.begin(engine.view())
        while visits.current[0] >= 0:
            servers = visits.rows[0, RELATIVE.head() :].reshape(-1, RELATIVE.server_dim).astype(np.float64)
            servers[servers[:, 0] == 0] = np.inf  # the task does not fit them
            ahead, lasts, cost = (servers[:, columns(name)] for name in ("ahead", "lasts", "cost"))
            followers = visits.rows[0, RELATIVE.context_dim + [f.name for f in RELATIVE.task].index("descendants")]
            alpha = visits.learned.theta[0, THETA.index("alpha")]  # many that follow: better to wait than to be late
            naive = 2 * ahead + lasts + penalty * (servers[:, columns("busy")] > 0) / np.exp(followers * alpha)
            inside = (cost < 4) & (lasts < 4) & (ahead < 4)
            np.testing.assert_allclose(cost[inside], (naive - naive.min())[inside], atol=1e-5)
            assert (servers[inside, columns("price")] == 0).all()
            seen += int(inside.sum())
            visits.choose(np.array([np.argmin(cost)]))
        engine.dispatch(visits.answers()[visits.answers()[:, 3] >= 0])
    assert seen > 100


def test_a_policy_is_a_folder_that_plays_the_same(tmp_path: Any) -> None:
    of = policy(noise=0.5, scarce=1.0)
    save_policy(tmp_path, of.network, of.trial, 7)
    read = load_policy(tmp_path)
    assert isinstance(read, VisitingPolicy)
    schedules = [play(each, problem("places"), 3, [0]).schedule() for each in (of, read)]
    np.testing.assert_array_equal(*schedules)
    drawn = [play(load_policy(tmp_path, decision="sample"), problem("steady"), 3, [0]).schedule() for _ in range(2)]
    np.testing.assert_array_equal(*drawn)
    assert not np.array_equal(drawn[0]["server"], play(of, problem("steady"), 3, [0]).schedule()["server"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"method": "scale", "algorithm": {"validation_instances": 4}},
            ["validation_instances", "scale-any"],
        ),
        (
            {"algorithm": {"copies": None, "advantage": "critic"}},
            ["network.skip adaptive", "none, linear"],
        ),
        ({"method": "scale", "algorithm": {"advantage": "group"}}, ["algorithm.advantage", "copies"]),
        ({"method": "scale", "network": {"skip": "naive"}}, ["network.skip naive", "scale-any"]),
        ({"method": "scale", "network": {"scarce": 1}}, ["network.scarce 1", "scale-any"]),
        ({"network": {"penalty": 0.5}}, ["network.penalty 0.5", "skip adaptive", "naive"]),
        ({"env": {}}, ["mask none", "scale-any"]),
        ({"algorithm": {"reward_unit": 3.0}}, ["reward_unit", "algorithm.copies"]),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((UserError, ValueError)) as error:
        TrialConfig.of(**{"method": "scale-any", "env": FEASIBLE} | change)
    for word in words:
        assert word in str(error.value)
