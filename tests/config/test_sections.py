"""A row carries the settings that its training had, and a setting that no method uses is refused."""

from typing import Any

import pytest

from rllib_scale.config import METHODS, TrialConfig, scenario
from rllib_scale.config.plan import SweepConfig
from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.planning import make_plan

GAMMAS = {"ppo.gamma": [0.9, 0.99]}


def sweep(methods: list[str], **data: Any) -> SweepConfig:
    return sweep_from({"name": "test", "scenario": "steady-0.7", "methods": methods, **data}, "test")


def trained(config: SweepConfig) -> list[str]:
    return [f"{trial.config.method} {trial.label}" for trial in make_plan(config, "test").trials]


@pytest.mark.parametrize(
    ("methods", "grid", "expected"),
    [
        (
            ["scale", "dqn"],
            {"dqn.learning_rate": [1e-4, 1e-3]},
            ["scale ", "dqn dqn.learning_rate=0.0001", "dqn dqn.learning_rate=0.001"],
        ),
        (
            ["crossattn", "dqn"],
            {"ppo.clip": [0.1], "training.learning_rate": [0.1, 0.2]},
            [
                "crossattn ppo.clip=0.1; training.learning_rate=0.1",
                "crossattn ppo.clip=0.1; training.learning_rate=0.2",
                "dqn training.learning_rate=0.1",
                "dqn training.learning_rate=0.2",
            ],
        ),
        (
            ["crossattn", "scale-any"],
            {"env.reward": [{"name": n, "energy_power": "above-idle"} for n in ("paper", "tasks-in-system")]},
            [
                "crossattn env.reward.energy_power=above-idle",
                "crossattn env.reward.name=tasks-in-system; env.reward.energy_power=above-idle",
                "scale-any env.reward.energy_power=above-idle",
            ],
        ),
        (
            ["crossattn", "context-price", "deeprm"],
            {"ppo.clip": [0.1, 0.2]},
            ["crossattn ppo.clip=0.1", "crossattn ", "context-price ", "deeprm "],
        ),
        (
            ["crossattn"],
            {"imitation.expert": [None, "fastest-idle"], "ppo.clip": [0.1]},
            ["crossattn ppo.clip=0.1", "crossattn imitation.expert=fastest-idle"],
        ),
        (
            ["scale"],
            {"env.observation": [{"feature_set": "rounds"}], "network": [{"skip": "linear"}], "srr.lambda_kl": [0.5]},
            ["scale env.observation.feature_set=rounds; network.skip=linear"],
        ),
    ],
)
def test_a_method_without_a_setting_trains_once_without_it(
    methods: list[str], grid: dict[str, list[Any]], expected: list[str]
) -> None:
    assert trained(sweep(methods, grid=grid)) == expected


def test_points_of_a_search_too() -> None:
    space = {"ppo.clip": {"choice": [0.1]}, "dqn.learning_rate": {"choice": [1e-3]}}
    found = trained(sweep(["crossattn", "dqn"], search={"samples": 3, "space": space}))
    assert found == ["crossattn ppo.clip=0.1", "dqn dqn.learning_rate=0.001"]


def test_who_trains_beside_a_method_does_not_change_its_identity() -> None:
    both = make_plan(sweep(["scale", "dqn"], grid={"dqn.batch_size": [32], **GAMMAS}), "test").trials
    alone = make_plan(sweep(["dqn"], grid={"dqn.batch_size": [32]}), "test").trials
    of_scale = make_plan(sweep(["scale"], grid=GAMMAS), "test").trials
    assert [trial.identity for trial in both] == [trial.identity for trial in (*of_scale, *alone)]


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_a_trial_are_yaml_and_its_files_are_the_trial(method: str) -> None:
    on_replicas = scenario("agents-replicas").model_dump(mode="json")
    env = on_replicas if "gate" in method else {"episode": {"mask": "feasible"}}
    for settings in ({}, {"imitation": {"expert": "fastest-idle"}}, {"network": {"encoder": "x:Y#source=0"}}):
        made = TrialConfig(method=method, env=env, **settings)
        assert TrialConfig.model_validate(made.settings()) == made
        assert TrialConfig.model_validate(made.model_dump(mode="json", exclude_defaults=True)) == made
        assert set(made.settings()) <= set(SweepConfig.model_fields) | {"method", "seed", "population"}


def test_a_search_that_begins_with_duals_has_no_initial_rule() -> None:
    feasible = {"episode": {"mask": "feasible"}}
    with pytest.raises(ValueError, match=r"cma.initial: adaptive-price begins with the duals.*leave it out"):
        TrialConfig(method="adaptive-price", env=feasible, cma={"initial": "dual-price"})
