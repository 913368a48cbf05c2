"""What the methods for reserving rounds bring along, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from rllib_scale.config import SCENARIOS, EnvConfig, TrialConfig
from rllib_scale.config.plan import SweepConfig, evaluation_units, expand
from rllib_scale.config.rounds import in_own_rounds
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError


def sweep(**settings: Any) -> SweepConfig:
    return build_model(SweepConfig, {"name": "x", "methods": ["crossattn-r"], **settings}, "x.yaml")


def test_a_method_for_rounds_needs_no_settings() -> None:
    (cell,) = expand(sweep(scenario="steady-0.7"), "x.yaml")
    trial, steady = cell.trial, SCENARIOS["steady-0.7"][0]
    assert (trial.env.cluster, trial.env.workload) == (steady.cluster, steady.workload)
    decision = trial.env.decision
    assert (decision.on_busy, decision.offer, decision.order) == ("reserve", "startable", "descendants-per-work")
    assert (trial.env.episode.mask, trial.env.episode.horizon_is_terminal) == ("none", False)
    assert trial.env.reward.name == "tasks-in-system"
    assert trial.env.observation.feature_set == "pairs"
    assert trial.training.time_unit_s is not None
    assert (trial.training.lambda_by, trial.network.skip) == ("time", "price")
    assert TrialConfig.model_validate_json(trial.model_dump_json()) == trial


def test_what_is_set_stays() -> None:
    settings = {
        "env": {"decision": {"order": "first-ready"}, "observation": {"feature_set": "rounds"}},
        "training": {"time_unit_s": 3.0, "lambda_by": "decision", "reward_unit": 2.0},
        "network": {"skip": "none"},
    }
    (cell,) = expand(sweep(scenario="steady-0.7", **settings), "x.yaml")
    trial = cell.trial
    assert trial.env.decision.order == "first-ready"
    assert trial.env.observation.feature_set == "rounds"
    training = trial.training
    assert (training.time_unit_s, training.lambda_by, training.reward_unit) == (3.0, "decision", 2.0)
    assert trial.network.skip == "none"


def test_other_methods_are_what_they_were() -> None:
    assert TrialConfig(method="crossattn").env == EnvConfig()
    (cell,) = expand(sweep(methods=["crossattn"], env={"decision": {"on_busy": "step"}}), "x.yaml")
    assert cell.trial == TrialConfig(method="crossattn")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"env": {"decision": {"on_busy": "step"}}}, "env.decision.on_busy step"),
        ({"env": {"episode": {"mask": "feasible"}}}, "env.episode.mask feasible"),
        ({"env": {"reward": {"name": "paper"}}}, "env.reward.name paper"),
        ({"env": {"observation": {"feature_set": "paper"}}}, "env.observation.feature_set paper"),
    ],
)
def test_contrary_settings_are_refused_in_one_line(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named) as refused:
        sweep(scenario="steady-0.7", **settings)
    assert "leave it out" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": {"decision": {"order": "open"}}}, "env.decision.order open"),
        (
            {"method": "scale", "env": {"decision": {"offer": "startable"}}},
            "offer startable: goes with on_busy reserve",
        ),
        ({"resources": {"sampler": "rllib"}}, "valid: a method that PPO trains, array and lean"),
        ({"env": {"observation": {"feature_set": "rounds"}}}, "network.skip price: needs .*feature_set pairs"),
        ({"method": "deepsets", "network": {"skip": "linear"}}, "network.skip linear: .*deepsets"),
        ({"method": "crossattn", "training": {"lambda_by": "time"}}, "lambda_by time: needs training.time_unit_s"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        build_model(TrialConfig, {"method": "crossattn-r"} | settings, "trial")
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------------- where it is evaluated


def test_a_scenario_is_played_in_the_rounds_of_the_policy() -> None:
    own = TrialConfig(method="scale-r").env
    steady = SCENARIOS["steady-0.9"][0].at_scale(32)
    played = in_own_rounds("scale-r", own, steady)
    assert (played.decision, played.episode.mask) == (own.decision, "none")
    assert played.at_scale(16) == in_own_rounds("scale-r", own, SCENARIOS["steady-0.9"][0])
    assert (played.cluster, played.workload, played.reward) == (steady.cluster, steady.workload, steady.reward)
    assert in_own_rounds("scale", EnvConfig(), steady) is steady


def test_an_evaluation_in_the_papers_mode_is_refused_before_anything_is_trained() -> None:
    for settings in ({}, {"scenario": "steady-0.7", "evaluation": {"masks": ["none"]}}):
        config = sweep(**settings)
        with pytest.raises(
            UserError, match=r"crossattn-r-s42-.*holds rows back for tasks that wait.*clock_step_s.*valid: "
        ) as refused:
            evaluation_units(config, expand(config, "x.yaml"))
        assert "\n" not in str(refused.value)
    config = sweep(scenario="steady-0.7", evaluation={"scenarios": ["steady-0.9", "train"]})
    units = [unit for unit in evaluation_units(config, expand(config, "x.yaml")) if unit.learned]
    assert {unit.scenario for unit in units} == {"steady-0.9", "train"}
