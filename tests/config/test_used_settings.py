"""A row carries the settings that its training had, and a setting that no method uses is refused."""

from typing import Any

import pytest

from rllib_scale.config import METHODS, TrialConfig
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.planning import make_plan
from rllib_scale.config.sections import Sections, TrialSections, used_settings
from rllib_scale.loading import sweep_from

SECTIONS = set(Sections.model_fields) - {"env", "stop"}
GAMMAS = {"training.gamma": [0.9, 0.99]}


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
            {"training.clip": [0.1], "training.gamma": [0.8, 0.9]},
            [
                "crossattn training.clip=0.1; training.gamma=0.8",
                "crossattn training.clip=0.1; training.gamma=0.9",
                "dqn training.gamma=0.8",
                "dqn training.gamma=0.9",
            ],
        ),
        (
            ["crossattn", "crossattn-r"],
            {"env.episode": [{"mask": "feasible", "horizon_s": 9.0}, {"mask": "none", "horizon_s": 9.0}]},
            [
                'crossattn env.episode={"horizon_s": 9.0, "mask": "feasible"}',
                'crossattn env.episode={"horizon_s": 9.0, "mask": "none"}',
                'crossattn-r env.episode={"horizon_s": 9.0}',
            ],
        ),
        (
            ["crossattn", "context-price", "deeprm"],
            {"training.clip": [0.1, 0.2]},
            ["crossattn training.clip=0.1", "crossattn training.clip=0.2", "context-price ", "deeprm "],
        ),
        (
            ["crossattn"],
            {"imitation.expert": [None, "fastest-idle"], "training.clip": [0.1]},
            ["crossattn imitation.expert=null; training.clip=0.1", "crossattn imitation.expert=fastest-idle"],
        ),
        (
            ["scale-r"],
            {"env.observation": [{"feature_set": "rounds"}], "network": [{"skip": "none"}], "srr.lambda_kl": [0.5]},
            ['scale-r env.observation={"feature_set": "rounds"}; network={"skip": "none"}'],
        ),
    ],
)
def test_a_method_without_a_setting_trains_once_without_it(
    methods: list[str], grid: dict[str, list[Any]], expected: list[str]
) -> None:
    assert trained(sweep(methods, grid=grid)) == expected


def test_points_of_a_search_too() -> None:
    space = {"training.clip": {"choice": [0.1]}, "dqn.learning_rate": {"choice": [1e-3]}}
    found = trained(sweep(["crossattn", "dqn"], search={"samples": 3, "space": space}))
    assert found == ["crossattn training.clip=0.1", "dqn dqn.learning_rate=0.001"]


def test_who_trains_beside_a_method_does_not_change_its_identity() -> None:
    both = make_plan(sweep(["scale", "dqn"], grid={"dqn.learning_rate": [1e-3], **GAMMAS}), "test").trials
    alone = make_plan(sweep(["dqn"], grid={"dqn.learning_rate": [1e-3], **GAMMAS}), "test").trials
    assert tuple(trial for trial in both if trial.config.method == "dqn") == alone
    of_scale = tuple(trial for trial in both if trial.config.method == "scale")
    assert of_scale == make_plan(sweep(["scale"], grid=GAMMAS), "test").trials


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_of_a_trial_has_its_place_in_yaml(method: str) -> None:
    feasible = {"episode": {"mask": "feasible"}}
    whole = TrialSections(env=feasible, training={"problems": {}}).model_dump()
    for imitates in (False, True):
        used = used_settings(method, imitates)
        for path in (*used.paths, *used.exceptions):
            value: Any = whole
            for key in path.split("."):
                assert key in value, path
                value = value[key]
    made = TrialConfig(method=method, env=feasible)
    assert TrialConfig.model_validate(made.sections()) == made
    held = {(section, key) for section, values in made.sections().items() if section in SECTIONS for key in values}
    for section, key in held:
        assert f"{section}.{key}" in used_settings(method), (section, key)


def test_a_search_that_begins_with_duals_has_no_initial_rule() -> None:
    feasible = {"episode": {"mask": "feasible"}}
    with pytest.raises(ValueError, match=r"cma.initial: adaptive-price begins with the duals.*leave it out"):
        TrialConfig(method="adaptive-price", env=feasible, cma={"initial": "dual-price"})
