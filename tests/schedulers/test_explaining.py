"""The explanation of a round names the answers that are given, and costs by which they are the least."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.schedulers.explaining import explain
from rllib_scale.schedulers.reserving import PricingDispatcher
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from schedulers.instances import PROBLEMS


@pytest.mark.parametrize(("rule", "name"), [("price", "kinds"), ("adaptive-price", "places")])
def test_an_explanation_is_of_the_answers_and_each_is_the_least_cost(rule: str, name: str) -> None:
    env = EnvConfig.model_validate(PROBLEMS[name])
    policy = make_scheduler(rule, env.observation)
    assert isinstance(policy, PricingDispatcher)
    engine = Engine(policy.problem(env))
    engine.reset([3], [0])
    policy.reset([(3, 0)])
    waits = 0
    while not engine.done[0]:
        found = explain(policy, engine.view())
        answers = policy.decide(engine.view())
        explained = [
            (0, c.workflow, c.task, c.options[0].server if c.starts else -2 - c.options[0].server)
            for c in found.choices
        ]
        assert explained == [tuple(answer) for answer in answers.tolist()]
        assert found.left == engine.view().env["num_waiting"][0] - len(answers)
        for choice in found.choices:
            best, *others = choice.options
            by_parts = choice.weight * (found.numbers["kappa"] * best.wait_s + best.lasts_s) + best.price * best.lasts_s
            assert best.cost == pytest.approx(by_parts + best.penalty)
            assert all(best.cost <= other.cost * (1 + 1e-12) for other in others)
            waits += not choice.starts
        engine.dispatch(answers[answers[:, 3] >= 0])
    assert waits > 0
    assert np.isfinite(found.prices).all()
