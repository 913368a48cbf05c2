"""The explanation of a round names the answers that are given, and costs by which they are the least."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.explained import explain
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
        chosen = [int(choice.options[0]["server"]) for choice in found.choices]
        explained = [
            (0, c.workflow, c.task, j if c.starts else -2 - j) for c, j in zip(found.choices, chosen, strict=True)
        ]
        assert explained == [tuple(answer) for answer in answers.tolist()]
        assert found.left == engine.view().env["num_waiting"][0] - len(answers)
        for choice in found.choices:
            for option in choice.options:
                seconds = found.numbers["kappa"] * option["wait_s"] + option["lasts_s"]
                by_parts = option["weight"] * seconds + option["price"] * option["lasts_s"]
                assert option["cost"] == pytest.approx(by_parts + option["penalty"])
            assert choice.options["cost"].argmin() == 0
            waits += not choice.starts
        engine.dispatch(answers[answers[:, 3] >= 0])
    assert waits > 0
    assert np.isfinite(found.prices).all()
