"""One training: what its method and settings make of it, and what its hash sees."""

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from rllib_scale.config import METHODS, SCENARIOS, EnvConfig, SRRConfig, TrialConfig, digest
from rllib_scale.config.base import types_in
from rllib_scale.config.identity import IDENTITY_FORMAT
from rllib_scale.config.rounds import in_own_rounds
from rllib_scale.config.schedulers import ALL_RULES
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError

STEADY = SCENARIOS["steady-0.7"][0]


def trial(**settings: Any) -> TrialConfig:
    return TrialConfig.model_validate(settings)


@pytest.mark.parametrize(
    ("settings", "algorithm", "epochs", "stop_epochs", "steps"),
    [
        ({"method": "scale"}, "ppo", 1000, 1000, 1024),
        ({"method": "sac", "training": {"epochs": 60}, "stop": {"epochs": 5}}, "sac", 60, 5, 1024),
        ({"method": "dqn", "stop": {"env_steps": 1025}}, "dqn", 1000, 2, 1024),
        ({"method": "crossattn", "imitation": {"expert": "fastest-idle"}}, "imitation", 1000, 1000, 1024),
        ({"method": "context-price", "env": STEADY}, "cma", 150, 150, None),
        ({"method": "decima", "env": STEADY, "reinforce": {"epochs": 7}}, "reinforce", 7, 7, None),
    ],
)
def test_how_long_a_training_is(
    settings: dict[str, Any], algorithm: str, epochs: int, stop_epochs: int, steps: int | None
) -> None:
    made = trial(**settings)
    assert (made.algorithm.name, made.algorithm.epochs, made.stop_epochs) == (algorithm, epochs, stop_epochs)
    assert made.env_steps_per_epoch == steps


def test_a_method_has_its_own_settings() -> None:
    dqn, sac = (trial(method=name, dqn={"batch_size": 32}, sac={"batch_size": 128}) for name in ("dqn", "sac"))
    assert (dqn.algorithm.batch_size, sac.algorithm.batch_size) == (32, 128)
    for name, spec in METHODS.items():
        assert spec.any_scale != ("fixed number of servers" in spec.description), name
        assert spec.dispatches == (spec.visits or spec.algorithm in ("cma", "reinforce")), name
    assert trial(method="crossattn", srr={"lambda_kl": 0.5}).srr is None
    assert trial(method="context-price", env=STEADY).network is None


def test_a_trial_holds_what_its_method_uses_and_nothing_else() -> None:
    made = trial(method="deepsets", dqn={"batch_size": 32}, network={"num_heads": 2, "embedding_dim": 10})
    assert made.network.model_dump() == {"name": "deep-sets", "embedding_dim": 10, "standardise": "fixed"}
    assert not hasattr(made.algorithm, "batch_size")
    assert "clip" in type(made.algorithm).model_fields
    assert "clip" not in type(trial(imitation={"expert": "fastest-idle"}).algorithm).model_fields
    with pytest.raises(UserError, match=r"unknown key 'network.deep-sets.num_heads'; valid: .*embedding_dim, standard"):
        build_model(
            TrialConfig,
            made.model_dump(mode="json") | {"network": {"name": "deep-sets", "num_heads": 2}},
            "policy.json",
        )


def test_a_section_wins_over_training_and_training_over_the_method() -> None:
    found = trial(training={"epochs": 2, "learning_rate": 0.1}, ppo={"learning_rate": 0.2}).algorithm
    assert (found.epochs, found.learning_rate) == (2, 0.2)
    assert trial(method="dqn", training={"epochs": None}, ppo={"epochs": 3}).algorithm.epochs == 1000
    assert trial(method="scale-any", env=STEADY, ppo={"horizon_s": None}).algorithm.horizon_s is None


@pytest.mark.parametrize(
    ("settings", "changed", "is_same"),
    [
        ({}, {"seed": 43}, False),
        ({}, {"srr": SRRConfig(lambda_kl=0.5)}, False),
        ({}, {"training": {"problems": {"servers": [8]}}}, False),
        ({}, {"resources": {"env_runners": 2}}, False),
        ({}, {"resources": {"learners": 2}}, False),
        ({}, {"resources": {"cpus": 2}}, True),
        ({"method": "deepsets"}, {"network": {"num_heads": 2}}, True),
        ({"method": "sac"}, {"dqn": {"critic_hidden": 8}}, True),
        ({}, {"dqn": {"batch_size": 32}, "decima": {"embedding_dim": 4}}, True),
        ({"method": "crossattn"}, {"srr": {"lambda_kl": 0.5}}, True),
        ({"imitation": {"expert": "fastest-idle"}}, {"resources": {"env_runners": 2}}, True),
        ({"method": "decima", "env": STEADY}, {"deeprm": {"queue": 5}}, True),
        ({"method": "decima", "env": STEADY}, {"decima": {"embedding_dim": 4}}, False),
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
        ({}, "scale-s42-65e0ea709bf0"),
        ({"method": "dqn", "seed": 7, "dqn": {"batch_size": 32}}, "dqn-s7-a673f5180437"),
        ({"method": "ppo", "resources": {"env_runners": 2, "cpus": 3}}, "ppo-s42-e92aecd9ba2e"),
        (
            {
                "env": {"cluster": {"servers": 32}},
                "network": {"num_blocks": 1},
                "training": {"epochs": 60},
                "stop": {"epochs": 5},
                "population": "abc",
            },
            "scale-s42-4a228d5a4610",
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
    found = defaults_of(TrialConfig, {name: spec.defaults for name, spec in METHODS.items()})
    for spec in ALL_RULES.values():
        defaults_of(spec.parameters, found)
    assert {"PPO", "CMAES", "SRRConfig", "TierConfig", "AgentProblems", "HungarianParameters"} <= found.keys()
    assert (IDENTITY_FORMAT, digest(to_jsonable_python(found))) == (4, "875ff4cea8ae"), (
        "if a default has changed, raise IDENTITY_FORMAT and write it here; for a new setting write its digest alone"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "decima", "training": {"reward": "x:y#source=0"}},
            "training.reward: decima is trained by reinforce, without it; valid: ppo.reward, dqn",
        ),
        (
            {"imitation": {"expert": "fastest-idle"}, "training": {"reward": "x:y#source=0"}},
            "training.reward: scale is trained by imitation, without it; valid: ppo.reward",
        ),
        (
            {"method": "decima", "env": STEADY, "stop": {"env_steps": 9}},
            "env_steps 9: method decima plays whole episodes; valid: stop.epochs",
        ),
        ({"resources": {"learners": 3}}, "resources.learners 3: does not divide ppo.minibatch_size 256"),
        ({"method": "decima", "env": STEADY, "resources": {"learners": 2}}, "resources.learners 2: method decima"),
        ({"training": {"clip": 0.1}}, r"stands in the section of an algorithm; valid: ppo\.clip"),
    ],
)
def test_what_cannot_be_trained_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrialConfig.model_validate(settings)


def test_parts_of_ones_own_have_their_place() -> None:
    settings = {"method": "deepsets", "network": {"encoder": "x:Y#source=0"}, "training": {"reward": "x:y#source=0"}}
    assert TrialConfig.model_validate(settings).network.encoder == "x:Y#source=0"


def test_a_scenario_is_played_in_the_rounds_of_the_policy() -> None:
    own = EnvConfig.model_validate({"decision": {"on_busy": "reserve", "order": "first-ready"}})
    steady = SCENARIOS["steady-0.9"][0].at_scale(32)
    played = in_own_rounds("scale", own, steady)
    assert (played.decision, played.episode.mask) == (own.decision, "none")
    assert (played.cluster, played.workload, played.reward) == (steady.cluster, steady.workload, steady.reward)
    assert in_own_rounds("scale", EnvConfig(), steady) is steady
