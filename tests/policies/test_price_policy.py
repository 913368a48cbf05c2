"""Policies of context-price as files: what is saved is what plays, anything else is refused with one clear line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save

from policies.folders import put_tensors
from rllib_scale.cli import main
from rllib_scale.config import TrialConfig, scenario
from rllib_scale.config.schedulers import PriceParameters
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.policies.policy import load_policy, save_weights
from rllib_scale.policies.price_policy import PricePolicy
from rllib_scale.schedulers.context import initial_weights
from rllib_scale.schedulers.context_price import ContextPrice

ENV = scenario("steady-0.7")
TRIAL = TrialConfig.of("context-price", seed=7, env=ENV)
SPEEDS = np.array([1.0, 2.0, 4.0])
WEIGHTS = initial_weights(PriceParameters(), 3) + np.random.default_rng(0).normal(0, 0.3, (8, 13))
TENSORS = {"weights": WEIGHTS, "speeds": SPEEDS}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_weights(tmp_path / "policy", TENSORS, TRIAL, epochs=3)
    return tmp_path / "policy"


def test_what_is_saved_is_what_plays(folder: Path) -> None:
    policy = load_policy(folder)
    assert isinstance(policy, PricePolicy)
    assert (policy.trial, policy.epochs, policy.name) == (TRIAL, 3, TRIAL.name)
    np.testing.assert_array_equal(policy.weights, WEIGHTS)
    env = ENV.at_scale(8)
    again = ContextPrice(WEIGHTS, SPEEDS, sizes=(16.0, 16.0))
    np.testing.assert_array_equal(*(play(player, env, 1, [0]).schedule() for player in (policy, again)))


def test_a_policy_follows_size_a_third_of_the_searched_range_beyond_it(tmp_path: Path) -> None:
    training = {"problems": {"servers": (8, 64)}}
    trial = TrialConfig.of("context-price", seed=7, env=ENV, algorithm=training)
    save_weights(tmp_path, TENSORS, trial, epochs=3)
    policy = load_policy(tmp_path)
    assert isinstance(policy, PricePolicy)
    assert policy.sizes == pytest.approx((4.0, 128.0))


@pytest.mark.parametrize(
    "tensors",
    [
        {"weights": WEIGHTS[:, :12], "speeds": SPEEDS},
        {"weights": WEIGHTS * np.nan, "speeds": SPEEDS},
        {"weights": WEIGHTS, "speeds": -SPEEDS},
        {"weights": WEIGHTS},
    ],
)
def test_other_tensors_are_refused(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    put_tensors(folder, save({name: torch.from_numpy(tensor).contiguous() for name, tensor in tensors.items()}))
    with pytest.raises(UserError, match="does not hold the weights of context-price") as caught:
        load_policy(folder)
    assert str(folder) in str(caught.value)


def test_there_is_nothing_to_sample_from(folder: Path) -> None:
    with pytest.raises(UserError, match=r"decision sample: context-price has no probabilities.*valid: argmax"):
        load_policy(folder, decision="sample")


@pytest.mark.parametrize("command", [["evaluate", "--scales", "8"], ["simulate", "--servers", "8", "--scheduler"]])
def test_the_paper_s_mode_is_refused_with_the_reason_and_other_problems_are_played(
    folder: Path, command: list[str], tmp_path: Path
) -> None:
    refused = CliRunner().invoke(main, [*command, str(folder), "--scenario", "paper"])
    assert refused.exit_code == 2
    (line,) = refused.stderr.splitlines()
    for part in (str(folder), "mask none", "on_busy step", "costs clock_step_s", "valid: mask feasible"):
        assert part in line
    few = ["--episodes", "1"] if command[0] == "evaluate" else ["--schedule", str(tmp_path / "schedule.csv")]
    played = CliRunner().invoke(main, [*command, str(folder), "--scenario", "steady-0.5", *few])
    assert played.exit_code == 0, played.output
    assert folder.name in played.stdout.replace("\n", "")  # a long path is wrapped


def test_a_notebook_shows_what_trained_it() -> None:
    assert "400 epochs at 8, 16, 32, 64 servers" in load_policy("zoo:context-price")._repr_html_()
