"""One training: what its method and settings make of it, and what its hash sees."""

from typing import Any

import pytest

from rllib_scale.config import METHODS, SCENARIOS, EnvConfig, SRRConfig, TrialConfig
from rllib_scale.config.planning import make_plan
from rllib_scale.config.rounds import in_own_rounds
from rllib_scale.config.sections import TrialSections
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.loading import sweep_from

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
        ({"method": "context-price", "env": STEADY}, "cma-es", 150, 150, None),
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
        assert spec.dispatches == (spec.algorithm in ("cma-es", "reinforce")), name
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


def test_a_description_in_the_form_of_sections_is_read() -> None:
    """Policies that version 0.2 published hold every section."""
    old = TrialSections(method="sac", seed=3, sac={"batch_size": 32}, dqn={"batch_size": 16}).model_dump(mode="json")
    assert build_model(TrialConfig, old, "policy.json") == trial(method="sac", seed=3, sac={"batch_size": 32})
    with pytest.raises(UserError, match=r"policy.json: unknown key 'sac.batchsize'; did you mean 'batch_size'"):
        build_model(TrialConfig, old | {"sac": {"batchsize": 1}}, "policy.json")


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
        ({"method": "sac"}, {"network": {"critic_hidden": 8}}, True),
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
        ({}, "scale-s42-7e00354b70ab"),
        ({"method": "dqn", "seed": 7, "dqn": {"batch_size": 32}}, "dqn-s7-0ba1896b0dcd"),
        ({"method": "ppo", "resources": {"env_runners": 2, "cpus": 3}}, "ppo-s42-b88157ca4074"),
        (
            {
                "env": {"cluster": {"servers": 32}},
                "network": {"num_blocks": 1},
                "training": {"epochs": 60},
                "stop": {"epochs": 5},
                "population": "abc",
            },
            "scale-s42-e51872110dc8",
        ),
    ],
)
def test_a_hash_stays_what_it_is(settings: dict[str, object], name: str) -> None:
    """By it finished trainings are found again: one that changes trains everything anew."""
    assert trial(**settings).name == name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "ppo", "network": {"encoder": "x:Y#source=0"}},
            "network.encoder x:Y#source=0: method ppo does",
        ),
        (
            {"method": "decima", "network": {"encoder": "x:Y#source=0"}},
            "encoder .*: method decima does",
        ),
        (
            {"method": "crossattn", "network": {"encoder": "x:Y#source=0", "skip": "linear"}},
            "skip linear: method crossattn",
        ),
        (
            {"method": "decima", "training": {"reward": "x:y#source=0"}},
            "training.reward .* decima .*as scale",
        ),
        (
            {"imitation": {"expert": "fastest-idle"}, "training": {"reward": "x:y#source=0"}},
            "training.reward x:y#source=0: method scale with imitation.expert does not",
        ),
        (
            {"method": "decima", "env": STEADY, "stop": {"env_steps": 9}},
            "env_steps 9: method decima .*stop its epochs",
        ),
        ({"resources": {"learners": 3}}, "resources.learners 3: does not divide training.minibatch_size 256"),
        ({"method": "decima", "env": STEADY, "resources": {"learners": 2}}, "resources.learners 2: method decima"),
        ({"resources": {"learner": "rllib"}}, "learner rllib: there is no such setting now; leave it out"),
        (
            {
                "imitation": {"expert": "fastest-idle"},
                "training": {"initial_policy": "zoo:scale", "reference_kl_coefficient": 1},
            },
            "training.reference_kl_coefficient 1.0: method scale with imitation.expert",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrialConfig.model_validate(settings)


def test_parts_of_ones_own_have_their_place() -> None:
    settings = {"method": "deepsets", "network": {"encoder": "x:Y#source=0"}, "training": {"reward": "x:y#source=0"}}
    assert TrialConfig.model_validate(settings).network.encoder == "x:Y#source=0"


# ---------------------------------------------------------------------- methods for reserving rounds


def sweep(**settings: Any) -> TrialConfig:
    data = {"name": "x", "methods": ["crossattn-r"], "scenario": "steady-0.7", **settings}
    (trial,) = make_plan(sweep_from(data, "x.yaml"), "x.yaml").trials
    return trial.config


def test_a_method_for_rounds_needs_no_settings() -> None:
    made = sweep()
    assert (made.env.cluster, made.env.workload) == (STEADY.cluster, STEADY.workload)
    decision, episode = made.env.decision, made.env.episode
    assert (decision.on_busy, decision.offer, decision.order) == ("reserve", "startable", "descendants-per-work")
    assert (episode.mask, episode.horizon_is_terminal) == ("none", False)
    assert (made.env.reward.name, made.env.observation.feature_set) == ("tasks-in-system", "pairs")
    assert (made.algorithm.time_unit_s, made.algorithm.lambda_by, made.network.skip) == (0.5, "time", "price")
    assert TrialConfig.model_validate_json(made.model_dump_json()) == made
    assert sweep(methods=["crossattn"], env={"episode": {"mask": "none"}}).env.decision.on_busy == "step"


def test_what_is_set_stays() -> None:
    made = sweep(
        env={"decision": {"order": "first-ready"}, "observation": {"feature_set": "rounds"}},
        training={"time_unit_s": 3.0, "lambda_by": "decision", "reward_unit": 2.0},
        network={"skip": "none"},
    )
    assert (made.env.decision.order, made.env.observation.feature_set) == ("first-ready", "rounds")
    training = made.algorithm
    assert (training.time_unit_s, training.lambda_by, training.reward_unit) == (3.0, "decision", 2.0)
    assert made.network.skip == "none"


def test_a_scenario_is_played_in_the_rounds_of_the_policy() -> None:
    own = TrialConfig(method="scale-r").env
    steady = SCENARIOS["steady-0.9"][0].at_scale(32)
    played = in_own_rounds("scale-r", own, steady)
    assert (played.decision, played.episode.mask) == (own.decision, "none")
    assert (played.cluster, played.workload, played.reward) == (steady.cluster, steady.workload, steady.reward)
    assert in_own_rounds("scale", EnvConfig(), steady) is steady
