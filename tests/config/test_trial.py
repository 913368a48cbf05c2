"""One training: what its method and settings make of it, and what its hash sees."""

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from rllib_scale.config import (
    METHODS,
    SCENARIOS,
    CustomEncoderConfig,
    MLPConfig,
    SRRConfig,
    TrialConfig,
    digest,
    method_in,
    scenario,
)
from rllib_scale.config.base import types_in
from rllib_scale.config.identity import IDENTITY_FORMAT
from rllib_scale.config.methods import composed
from rllib_scale.config.schedulers import ALL_RULES

STEADY = SCENARIOS["steady-0.7"][0]


def trial(method: str = "scale", **settings: Any) -> TrialConfig:
    return TrialConfig.of(method, **settings)


IMITATION = {"name": "imitation", "expert": "fastest-idle"}


@pytest.mark.parametrize(
    ("settings", "algorithm", "epochs", "stop_epochs", "steps"),
    [
        ({"method": "scale"}, "ppo", 1000, 1000, 1024),
        ({"method": "sac", "algorithm": {"epochs": 60}, "stop": {"epochs": 5}}, "sac", 60, 5, 1024),
        ({"method": "dqn", "stop": {"env_steps": 1025}}, "dqn", 1000, 2, 1024),
        ({"method": "crossattn", "algorithm": IMITATION}, "imitation", 1000, 1000, 1024),
        ({"method": "context-price", "env": STEADY}, "cma", 150, 150, None),
        ({"method": "decima", "env": STEADY, "algorithm": {"epochs": 7}}, "reinforce", 7, 7, None),
    ],
)
def test_how_long_a_training_is(
    settings: dict[str, Any], algorithm: str, epochs: int, stop_epochs: int, steps: int | None
) -> None:
    made = trial(**settings)
    assert (made.algorithm.name, made.algorithm.epochs, made.stop_epochs) == (algorithm, epochs, stop_epochs)
    assert made.env_steps_per_epoch == steps


@pytest.mark.parametrize("method", METHODS)
def test_a_preset_is_a_training_of_its_name(method: str) -> None:
    preset = METHODS[method]
    made = trial(method, env=scenario("agents-replicas") if method in ("release", "scale-release") else STEADY)
    assert made.method == method
    assert made.any_scale != ("fixed number of servers" in preset.description)
    assert (made.network is None, made.srr is None) == (preset.network is None, preset.srr is None)
    for defaults in (True, False):
        content = made.model_dump(mode="json", exclude_defaults=defaults)
        assert TrialConfig.model_validate(content) == made
        assert method_in(content) == method


def test_another_algorithm_or_network_drops_what_the_preset_sets() -> None:
    made = trial("scale-any", env=STEADY, algorithm=IMITATION, network={"name": "mlp"})
    assert (made.algorithm.steps_per_epoch, made.network) == (1024, MLPConfig(name="mlp"))
    own = trial("deepsets", network={"encoder": "x:Y#source=0", "embedding_dim": 10}, algorithm={"reward": "x:y"})
    assert own.network == CustomEncoderConfig(name="custom", encoder="x:Y#source=0", embedding_dim=10)
    assert trial("deepsets", network={"encoder": None}) == trial("deepsets")


def test_layers_merge_and_the_last_one_wins() -> None:
    layers = [{"algorithm": {"epochs": 2, "gamma": 0.5}}, {"algorithm": {"gamma": 0.9}, "srr": None}, {"algorithm": {}}]
    found = composed("dqn", *layers)
    assert found["algorithm"] == {"name": "dqn", "epochs": 2, "gamma": 0.9}
    assert (found["network"], found["srr"]) == ({"name": "mlp"}, None)
    problems = [{"algorithm": {"problems": "any"}}, {"algorithm": {"problems": {"family": {"agents_share": 0}}}}]
    assert composed("scale", *problems)["algorithm"]["problems"] == {"family": {"agents_share": 0}}
    assert composed("scale", *problems, {"algorithm": {"problems": None}})["algorithm"]["problems"] is None


def test_a_changed_setting_is_set_at_the_trials_own_path() -> None:
    made = trial("scale", algorithm={"gamma": 0.5})
    assert made.setting("algorithm.gamma") == 0.5
    assert made.changed({"algorithm.gamma": 0.9, "srr.lambda_kl": 0.1}) == trial(
        algorithm={"gamma": 0.9}, srr={"lambda_kl": 0.1}
    )
    assert trial("crossattn").setting("srr.lambda_kl") == 0
    assert trial("crossattn").changed({"srr.lambda_kl": 0.1}).srr == SRRConfig(lambda_decorrelation=0, lambda_kl=0.1)
    with pytest.raises(KeyError):
        made.setting("algorithm.gamma.x")


@pytest.mark.parametrize(
    ("settings", "changed", "is_same"),
    [
        ({}, {"seed": 43}, False),
        ({}, {"srr": SRRConfig(lambda_kl=0.5)}, False),
        ({}, {"algorithm": {"problems": {"servers": [8]}}}, False),
        ({}, {"resources": {"env_runners": 2}}, False),
        ({}, {"resources": {"learners": 2}}, False),
        ({}, {"resources": {"cpus": 2}}, True),
        ({}, {"algorithm": {"gamma": 0.99}, "srr": {}}, True),
        ({"method": "crossattn"}, {"srr": {"lambda_kl": 0.5}}, True),
        ({"algorithm": IMITATION}, {"resources": {"env_runners": 2}}, True),
        ({"method": "decima", "env": STEADY}, {"network": {"embedding_dim": 4}}, False),
        ({"method": "crossattn"}, {"method": "scale", "srr": {"lambda_kl": 0, "lambda_decorrelation": 0}}, True),
        ({"method": "ppo"}, {"method": "crossattn", "network": {"name": "mlp"}}, True),
    ],
)
def test_a_hash_sees_what_decides_the_weights_and_nothing_else(
    settings: dict[str, Any], changed: dict[str, Any], is_same: bool
) -> None:
    one, other = trial(**settings), trial(**settings | changed)
    assert (one.trial_id == other.trial_id) == is_same
    assert TrialConfig.model_validate_json(other.model_dump_json()).trial_id == other.trial_id


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "scale-s42-790284791be1"),
        ({"method": "dqn", "seed": 7, "algorithm": {"batch_size": 32}}, "dqn-s7-4f7dd791873c"),
        ({"method": "ppo", "resources": {"env_runners": 2, "cpus": 3}}, "ppo-s42-ca9ac7411cce"),
        (
            {
                "env": {"cluster": {"servers": 32}},
                "network": {"num_blocks": 1},
                "algorithm": {"epochs": 60},
                "stop": {"epochs": 5},
                "population": "abc",
            },
            "scale-s42-d7cb48494385",
        ),
    ],
)
def test_a_hash_stays_what_it_is(settings: dict[str, object], name: str) -> None:
    """By it finished trainings are found again: one that changes trains everything anew."""
    assert trial(**settings).name == name


def defaults_of(model: type[BaseModel], found: dict[str, Any]) -> dict[str, Any]:
    """Defaults of a model and of all models in its fields, by their names."""
    if model.__name__ not in found:
        fields = model.model_fields.items()
        found[model.__name__] = {name: field.default for name, field in fields if not field.is_required()}
        for kind in (kind for _, field in fields for kind in types_in(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                defaults_of(kind, found)
    return found


def test_a_changed_default_raises_the_format() -> None:
    """Hashes and files leave out settings at their defaults, so that a changed default would keep an id."""
    found = defaults_of(TrialConfig, {name: dataclasses.asdict(preset) for name, preset in METHODS.items()})
    for spec in ALL_RULES.values():
        defaults_of(spec.parameters, found)
    assert {"PPO", "CMAES", "SRRConfig", "TierConfig", "AgentProblems", "HungarianParameters"} <= found.keys()
    assert (IDENTITY_FORMAT, digest(to_jsonable_python(found))) == (5, "9ab630a6ee7f"), (
        "if a default has changed, raise IDENTITY_FORMAT and write it here; for a new setting write its digest alone"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "decima", "algorithm": {"reward": "x:y"}},
            "algorithm.reward: decima, with algorithm reinforce",
        ),
        ({"algorithm": IMITATION | {"reward": "x:y"}}, "algorithm.reward: scale, with algorithm imitation, has none"),
        (
            {"method": "decima", "env": STEADY, "stop": {"env_steps": 9}},
            "env_steps 9: reinforce plays whole episodes; valid: stop.epochs",
        ),
        ({"resources": {"learners": 3}}, "resources.learners 3: does not divide algorithm.minibatch_size 256"),
        (
            {"method": "decima", "env": STEADY, "resources": {"learners": 2}},
            "learners 2: reinforce learns in one",
        ),
        (
            {"method": "adaptive-price", "env": STEADY, "algorithm": {"initial": "dual-price"}},
            "algorithm.initial: adaptive-price has an initial rule of its own; leave it out",
        ),
        (
            {"method": "scale-any", "env": STEADY, "network": {"name": "deep-sets"}},
            "copies: .*cross-attention",
        ),
        (
            {"method": "dqn", "network": {"name": "decima"}},
            "network decima: dqn trains none such; valid: cross",
        ),
        (
            {"method": "dqn", "algorithm": {"name": "ppo", "batch_size": 3}},
            "batch_size: dqn, with algorithm ppo",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trial(**settings)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        (
            {"algorithm": {"name": "ppo", "gamma": 0.5}, "network": {"name": "cross-attention"}},
            "crossattn",
        ),
        ({"algorithm": {"name": "ppo"}, "network": {"name": "custom", "encoder": "x:Y"}, "srr": {}}, "scale"),
        ({"algorithm": {"name": "dqn"}, "network": {"name": "cross-attention"}, "srr": None}, "dqn"),
        ({"algorithm": {"name": "cma", "rule": "adaptive-price"}, "network": None}, "adaptive-price"),
        ({"algorithm": {"name": "es", "rule": "release-index"}, "network": None}, "release"),
        ({"algorithm": {"name": "gone", "what": 1}, "network": {"name": "mlp", "former": 2}, "srr": {}}, "ppo-srr"),
    ],
)
def test_the_name_of_a_method_is_found_in_plain_settings_of_any_version(settings: dict[str, Any], method: str) -> None:
    assert method_in(settings) == method


def test_what_a_method_loses_or_changes_leaves_it_the_nearest() -> None:
    own = {"copies": 4, "groups": 24, "passes": 1, "minibatch_size": 49152, "learning_rate": 0.1}
    without = TrialConfig.of("scale-any", algorithm=own, srr={"lambda_decorrelation": 0, "lambda_kl": 0}, env=STEADY)
    assert (without.srr, without.method) == (None, "scale-any")
    assert TrialConfig.of("scale", srr={"lambda_decorrelation": 0, "lambda_kl": 0}) == TrialConfig.of("crossattn")
