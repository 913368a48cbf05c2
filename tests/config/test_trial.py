"""One training: what its method and settings make of it, and what its hash sees."""

from typing import Any

import pytest

from rllib_scale.config import METHODS, SCENARIOS, EnvConfig, SRRConfig, TrialConfig
from rllib_scale.config.planning import make_plan
from rllib_scale.config.rounds import in_own_rounds
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
        ({"method": "crossattn", "imitation": {"expert": "fastest-idle"}}, "bc", 1000, 1000, 1024),
        ({"method": "context-price", "env": STEADY}, "cma-es", 150, 150, None),
        ({"method": "decima", "env": STEADY, "reinforce": {"epochs": 7}}, "reinforce", 7, 7, None),
    ],
)
def test_how_long_a_training_is(
    settings: dict[str, Any], algorithm: str, epochs: int, stop_epochs: int, steps: int | None
) -> None:
    made = trial(**settings)
    assert (made.algorithm, made.epochs, made.stop_epochs) == (algorithm, epochs, stop_epochs)
    assert made.env_steps_per_epoch == steps


def test_a_method_has_its_own_settings() -> None:
    dqn, sac = (trial(method=name, dqn={"batch_size": 32}, sac={"batch_size": 128}) for name in ("dqn", "sac"))
    assert (dqn.off_policy.batch_size, sac.off_policy.batch_size) == (32, 128)
    for name, spec in METHODS.items():
        assert spec.any_scale != ("fixed number of servers" in spec.description), name
        assert spec.dispatches == (spec.algorithm in ("cma-es", "reinforce")), name
    weighted = trial(method="crossattn", srr={"lambda_kl": 0.5})
    assert weighted.srr.lambda_kl == weighted.srr.lambda_decorrelation == 0


@pytest.mark.parametrize(
    ("settings", "changed", "is_same"),
    [
        ({}, {"seed": 43}, False),
        ({}, {"srr": SRRConfig(lambda_kl=0.5)}, False),
        ({}, {"training": {"problems": {"servers": [8]}}}, False),
        ({}, {"resources": {"env_runners": 2}}, False),
        ({}, {"resources": {"cpus": 2}}, True),
        ({}, {"dqn": {"batch_size": 32}, "decima": {"embedding_dim": 4}}, True),
        ({"method": "crossattn"}, {"srr": {"lambda_kl": 0.5}}, True),
        ({"imitation": {"expert": "fastest-idle"}}, {"resources": {"env_runners": 2, "sampler": "rllib"}}, True),
        ({"imitation": {"expert": "fastest-idle"}}, {"resources": {"learner": "rllib"}}, False),
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
        ({}, "scale-s42-8dbe94c0d36d"),
        ({"method": "dqn", "seed": 7, "dqn": {"batch_size": 32}}, "dqn-s7-59f63d61b415"),
        ({"method": "ppo", "resources": {"env_runners": 2, "cpus": 3}}, "ppo-s42-adeaa9b6ae5c"),
        (
            {
                "env": {"cluster": {"servers": 32}},
                "network": {"num_blocks": 1},
                "training": {"epochs": 60},
                "stop": {"epochs": 5},
                "population": "abc",
            },
            "scale-s42-c68ec99b4dd5",
        ),
    ],
)
def test_a_hash_stays_what_it_is(settings: dict[str, object], name: str) -> None:
    """By it finished trainings are found again: one that changes trains everything anew."""
    assert trial(**settings).name == name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "ppo", "network": {"encoder": "x:Y#source=0"}}, "network.encoder: method ppo has none to replace"),
        ({"method": "decima", "network": {"encoder": "x:Y#source=0"}}, "network.encoder: method decima"),
        ({"method": "crossattn", "network": {"encoder": "x:Y#source=0", "skip": "linear"}}, "skip linear"),
        ({"method": "decima", "training": {"reward": "x:y#source=0"}}, "training.reward: reinforce learns from none"),
        (
            {"imitation": {"expert": "fastest-idle"}, "training": {"reward": "x:y#source=0"}},
            "training.reward: bc learns from none",
        ),
        ({"method": "decima", "env": STEADY, "stop": {"env_steps": 9}}, "stop.env_steps: method decima counts epochs"),
        ({"training": {"time_unit_s": 1}, "resources": {"learner": "rllib"}}, "training.time_unit_s: .*rllib"),
        (
            {
                "imitation": {"expert": "fastest-idle"},
                "training": {"initial_policy": "zoo:scale", "reference_kl_coefficient": 1},
            },
            "training.reference_kl_coefficient: is of PPO",
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
    assert (made.training.time_unit_s, made.training.lambda_by, made.network.skip) == (0.5, "time", "price")
    assert TrialConfig.model_validate_json(made.model_dump_json()) == made
    assert sweep(methods=["crossattn"], env={"episode": {"mask": "none"}}).env.decision.on_busy == "step"


def test_what_is_set_stays() -> None:
    made = sweep(
        env={"decision": {"order": "first-ready"}, "observation": {"feature_set": "rounds"}},
        training={"time_unit_s": 3.0, "lambda_by": "decision", "reward_unit": 2.0},
        network={"skip": "none"},
    )
    assert (made.env.decision.order, made.env.observation.feature_set) == ("first-ready", "rounds")
    training = made.training
    assert (training.time_unit_s, training.lambda_by, training.reward_unit) == (3.0, "decision", 2.0)
    assert made.network.skip == "none"


def test_a_scenario_is_played_in_the_rounds_of_the_policy() -> None:
    own = TrialConfig(method="scale-r").env
    steady = SCENARIOS["steady-0.9"][0].at_scale(32)
    played = in_own_rounds("scale-r", own, steady)
    assert (played.decision, played.episode.mask) == (own.decision, "none")
    assert (played.cluster, played.workload, played.reward) == (steady.cluster, steady.workload, steady.reward)
    assert in_own_rounds("scale", EnvConfig(), steady) is steady
