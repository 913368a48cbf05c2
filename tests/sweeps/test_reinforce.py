"""REINFORCE on whole episodes: what is to be low, the baseline, the gradient, and that it finds what is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from networks.probabilities import probabilities
from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.observation.starting import Starting
from rllib_scale.policies.dispatch_policy import DispatchPolicy, build_dispatch_network
from rllib_scale.simulator.engine import Engine
from rllib_scale.sweeps import reinforce
from rllib_scale.sweeps.policy_gradient import PolicyGradient
from rllib_scale.sweeps.reinforce import advantages_of, cost_to_go, learn_from, roll_out, system_of
from rllib_scale.workloads.generators import generate
from small_moments import moments, workload

ENV = EnvConfig.model_validate(
    {
        "cluster": {
            "tiers": [
                {"name": "slow", "count": 2, "compute_gflops": 1.0, "memory_gb": 16.0},
                {"name": "fast", "count": 2, "compute_gflops": 8.0, "memory_gb": 16.0},
            ]
        },
        "workload": {
            "min_tasks": 1,
            "max_tasks": 2,
            "offered_load": 0.3,
            "memory_gb": {"mean": 4, "std": 1, "low": 1, "high": 16},
        },
        "episode": {"horizon_s": 60.0, "arrivals_until_s": 20.0, "mask": "feasible"},
        "observation": {"server_compute_max_gflops": 8.0, "memory_max_gb": 16.0},
    }
)
"""Two servers are eight times as fast as the others, and one of them is idle nearly always."""
METHODS = ("decima", "deeprm")


def trial(method: str, **settings: object) -> TrialConfig:
    return TrialConfig.of(method, seed=5, env=ENV, algorithm={"instances": 2, "episodes": 4} | settings)


def test_what_it_costs_from_a_moment_on_by_hand() -> None:
    came, went, at = np.array([0.0, 1.0, 1.0]), np.array([2.0, 4.0]), np.array([0.0, 0.5, 1.0, 3.0, 5.0, 7.0])
    # One until 1, three until 2, two until 4, one until the end at 6.
    np.testing.assert_allclose(cost_to_go(came, went, 6.0, at, None), [10, 9.5, 9, 4, 1, 0])
    e, tau = np.exp, 2.0
    first = tau * (1 * (1 - e(-1 / tau)) + 3 * (e(-1 / tau) - e(-2 / tau)) + 2 * (e(-2 / tau) - e(-4 / tau)))
    first += tau * (e(-4 / tau) - e(-6 / tau))
    assert cost_to_go(came, went, 6.0, np.array([0.0]), tau)[0] == pytest.approx(first)
    assert cost_to_go(came, went, 6.0, at, 1e9)[0] == pytest.approx(10.0, rel=1e-6)


def test_the_whole_cost_is_the_sum_of_response_times() -> None:
    policy = DispatchPolicy(build_dispatch_network(trial("decima")), trial("decima"), 0, "sample")
    engine, times, _ = roll_out(policy, ENV, 9, 2)
    given = generate(ENV, 9, 0)
    for b in range(2):
        metrics = engine.metrics(b)
        assert metrics["unfinished"] == 0
        came, went = system_of(engine, b, given, whole=False)
        cost = cost_to_go(came, went, float(engine.clock[b]), np.array([0.0]), None)[0]
        assert cost == pytest.approx(metrics["response_mean_s"] * metrics["completed"])
        came, went = system_of(engine, b, given, whole=True)
        cost = cost_to_go(came, went, float(engine.clock[b]), np.array([0.0]), None)[0]
        assert cost == pytest.approx(metrics["jct_mean_s"] * metrics["workflows_completed"])
        assert len(times[b]) == metrics["decisions"]


def test_the_baseline_is_what_the_others_cost_from_the_same_moment_on() -> None:
    """Two episodes, a task at 0 s, slow in one and fast in the other, and one at 20 s, the same in both."""
    given = workload((0.0, [(8.0, 4.0)], []), (20.0, [(8.0, 4.0)], []))
    engine = Engine(ENV, 2)
    engine.reset([0, 0], [0, 0], workload=given)
    engine.dispatch(np.array([[0, 0, 0, 2], [1, 0, 0, 0]]))
    engine.dispatch(np.array([[0, 1, 0, 2], [1, 1, 0, 2]]))
    assert engine.done.all()
    settings = trial("decima", discount_s=None)
    found = advantages_of(engine, given, [np.array([0.0, 20.0])] * 2, settings)
    scale = 3.5 / np.sqrt(2)  # of (3.5, 0, -3.5, 0)
    np.testing.assert_allclose(found, np.array([3.5, 0, -3.5, 0]) / scale, atol=1e-6)
    # At another moment of the same episodes the average is that moment's: at 4 s, of 1 s and of 5 s to come.
    at_four = advantages_of(engine, given, [np.array([0.0]), np.array([4.0])], settings)
    np.testing.assert_allclose(at_four, np.array([3.5, -2.0]) / np.std([3.5, -2.0]), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_is_that_of_the_loss_over_all_choices(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Part by part as at once; what is better than on average is to become likelier, and choices to stay open."""
    settings = trial(method)
    network: Any = build_dispatch_network(settings)
    weights = {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
    monkeypatch.setattr(reinforce, "STEPS_AT_ONCE", 7)
    lesson = learn_from(weights, settings, ENV, 9, entropy_coefficient=0.1)
    engine, times, steps = roll_out(DispatchPolicy(network, settings, 0, "sample"), ENV, 9, 4)
    flat = [step for of_one in steps for step in of_one]
    assert lesson.decisions == len(flat) > 20
    advantages = torch.from_numpy(advantages_of(engine, generate(ENV, 9, 0), times, settings))
    logs, entropies = network.log_probabilities(flat)
    ((-advantages * logs).mean() - 0.1 * entropies.mean()).backward()
    assert lesson.entropy == pytest.approx(entropies.mean().item(), rel=1e-4)
    for parameter, gradient in zip(network.parameters(), lesson.gradients, strict=True):
        np.testing.assert_allclose(gradient, parameter.grad, rtol=1e-3, atol=1e-6)
    assert max(np.abs(gradient).max() for gradient in lesson.gradients) > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_a_few_epochs_raise_the_probability_of_what_is_right(method: str) -> None:
    training = PolicyGradient(
        trial(method, epochs=12, learning_rate=0.01, episodes=8, validation_instances=1, validate_every=100)
    )

    def on_fast() -> float:
        now = Starting(moments(workload((0.0, [(10.0, 4.0)], [])), ENV)[0])
        return float(probabilities(training.network, now)[0][0, 2:].sum())

    before = on_fast()
    responses = [training.epoch(number)["response_mean_s"] for number in range(1, 13)]
    assert 0.2 < before < 0.8, "it begins undecided"
    assert on_fast() > before + 0.15
    assert np.mean(responses[-3:]) < np.mean(responses[:3])


def test_a_network_begins_by_its_seed_alone() -> None:
    states = []
    for seed in (5, 5, 6):
        torch.manual_seed(len(states))
        settings = trial("decima").model_copy(update={"seed": seed})
        states.append([tensor.numpy().tobytes() for tensor in build_dispatch_network(settings).state_dict().values()])
        drawn = torch.rand(1)
        torch.manual_seed(len(states) - 1)
        assert torch.rand(1) == drawn, "torch's own generator is left alone"
    assert states[0] == states[1] != states[2]
