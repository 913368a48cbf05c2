"""Trainings that begin with an exported policy, and those that are held near it."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from local_ray import LOCAL_RAY
from marks import slow
from networks.observations import random_network, random_observations
from rllib_scale.config import TrialConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.networks.inputs import MASKED
from rllib_scale.policies.policy import DESCRIPTION, initial_network, load_policy, save_policy
from rllib_scale.rl.ppo.loss import Outputs, Rows, Weights, ppo_loss
from rllib_scale.rl.ppo.loss import kl_divergence as our_kl

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.algorithms.algorithm import Algorithm  # noqa: E402
from ray.rllib.core.learner.training_data import TrainingData  # noqa: E402

from rllib_scale.rl.methods import training_row  # noqa: E402

SHORT = {"epochs": 3, "steps_per_epoch": 256, "minibatch_size": 64, "passes": 4, "num_envs": 3}


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The folder of a policy of method crossattn."""
    save_policy(tmp_path / "exported", random_network(seed=5), TrialConfig(method="crossattn", seed=7), epochs=3)
    return tmp_path / "exported"


def trial_from(folder: Path | str, coefficient: float = 0.0, **more: Any) -> TrialConfig:
    training = SHORT | {"initial_policy": str(folder), "reference_kl_coefficient": coefficient}
    return build_model(TrialConfig, {"method": "crossattn", "training": training} | more, "trial")


def refusal(function: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(UserError) as refused:
        function(*arguments)
    line = str(refused.value)
    assert "\n" not in line
    return line


# ---------------------------------------------------------------------- the loss


def outputs_and_reference(closed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits, reference = (2 * torch.randn(6, 5, generator=generator) for _ in range(2))
    logits[:, :closed] += MASKED
    reference[:, :closed] += MASKED
    return logits, reference


def test_the_divergence_is_that_of_torch_in_value_and_gradient() -> None:
    logits, reference = outputs_and_reference()
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    divergence = our_kl(ours, reference)
    expected = kl_divergence(Categorical(logits=theirs), Categorical(logits=reference)).mean()
    divergence.backward()
    expected.backward()
    assert divergence.item() == pytest.approx(expected.item(), rel=1e-5)
    assert divergence.item() > 0.1
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad.abs().max() > 0.01


def test_the_loss_adds_the_divergence_so_many_times() -> None:
    logits, reference = outputs_and_reference(closed=0)
    gradients, losses = [], []
    for rows_reference, coefficient in ((None, 0.0), (reference, 0.0), (reference, 0.7)):
        ours = logits.clone().requires_grad_()
        rows = Rows(torch.arange(6) % 5, torch.full((6,), -1.6), torch.arange(6.0), torch.zeros(6), rows_reference)
        weights = Weights(0.2, 0.5, 0.01, 0.0, 0.0, "sum", True, False, coefficient)
        loss, _ = ppo_loss(rows, Outputs(torch.zeros(6, 4), ours, torch.zeros(6)), weights)
        loss.backward()
        assert ours.grad is not None
        gradients.append(ours.grad)
        losses.append(loss.item())
    assert losses[0] == losses[1]
    assert torch.equal(gradients[0], gradients[1])
    ours = logits.clone().requires_grad_()
    added = 0.7 * our_kl(ours, reference)
    added.backward()
    assert ours.grad is not None
    assert losses[2] - losses[0] == pytest.approx(added.item(), rel=1e-5)
    torch.testing.assert_close(gradients[2] - gradients[0], ours.grad)


# ---------------------------------------------------------------------- trainings


@pytest.mark.parametrize("imitation", [{}, slow({"imitation": {"expert": "fastest-idle"}})], ids=["ppo", "bc"])
def test_before_the_first_update_the_logits_are_the_policys(
    algorithm_of: Callable[[TrialConfig], Algorithm], exported: Path, imitation: dict[str, Any]
) -> None:
    algorithm = algorithm_of(trial_from(exported, **imitation))
    rows = random_observations(9, 16, seed=3)
    expected = load_policy(exported).network(rows)[1]
    for module in (algorithm.get_module(), algorithm.learner_group._learner.module["default_policy"].unwrapped()):
        assert torch.equal(module.outputs(rows)[1], expected)
    fresh = algorithm_of(build_model(TrialConfig, {"method": "crossattn", "training": SHORT}, "trial"))
    assert not torch.equal(fresh.get_module().outputs(rows)[1], expected)


def update(algorithm: Algorithm, episodes: list[Any], seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    algorithm.learner_group._learner.update(
        training_data=TrainingData(episodes=copy.deepcopy(episodes)),
        timesteps={},
        num_epochs=SHORT["passes"],
        minibatch_size=SHORT["minibatch_size"],
        shuffle_batch_per_epoch=True,
    )
    return dict(algorithm.learner_group._learner.module["default_policy"].unwrapped().network.state_dict())


@pytest.mark.parametrize("mask", ["none", slow("feasible")])
def test_both_learners_hold_a_policy_the_same_way(
    algorithm_of: Callable[[TrialConfig], Algorithm], exported: Path, mask: str
) -> None:
    lean, stock, free = (
        algorithm_of(trial_from(exported, coefficient, resources={"learner": learner}, env={"episode": {"mask": mask}}))
        for learner, coefficient in (("lean", 3.0), ("rllib", 3.0), ("lean", 0.0))
    )
    episodes = lean.env_runner.sample(num_timesteps=SHORT["steps_per_epoch"])
    for epoch in range(2):
        held, same, loose = (update(algorithm, episodes, epoch) for algorithm in (lean, stock, free))
    for name in held:
        torch.testing.assert_close(held[name], same[name], atol=1e-5, rtol=0, msg=name)
    assert max((held[name] - loose[name]).abs().max() for name in held) > 1e-4


@pytest.mark.slow
def test_the_divergence_is_in_the_table_and_smaller_where_it_costs(
    algorithm_of: Callable[[TrialConfig], Algorithm], exported: Path
) -> None:
    divergences = []
    for coefficient in (0.01, 30.0):
        algorithm = algorithm_of(trial_from(exported, coefficient))
        divergences.append([training_row(algorithm.train(), epoch, 256)["reference_kl"] for epoch in (1, 2, 3)][-1])
    assert 0 < divergences[1] < 0.5 * divergences[0]
    assert np.isnan(training_row(algorithm_of(trial_from(exported)).train(), 1, 256)["reference_kl"])


@pytest.mark.slow
def test_a_held_training_goes_on_as_if_it_had_not_stopped(
    algorithm_of: Callable[[TrialConfig], Algorithm], exported: Path, tmp_path: Path
) -> None:
    trial = trial_from(exported, 1.0)
    straight = algorithm_of(trial)
    straight.train()
    straight.save_to_path(str(tmp_path / "checkpoint"))
    whole = training_row(straight.train(), 2, 256)
    resumed = algorithm_of(trial)
    resumed.restore_from_path(str(tmp_path / "checkpoint"))
    assert training_row(resumed.train(), 2, 256) == pytest.approx(whole, rel=0, abs=0, nan_ok=True)


# ---------------------------------------------------------------------- config


def test_a_cell_knows_its_initial_policy_by_content(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "copy")
    save_policy(tmp_path / "other", random_network(seed=6), TrialConfig(method="crossattn", seed=7), epochs=3)
    cells = [trial_from(folder).cell for folder in (exported, tmp_path / "copy", tmp_path / "other")]
    assert cells[0] == cells[1] != cells[2]
    trial = trial_from(exported)
    assert TrialConfig.model_validate_json(trial.model_dump_json()) == trial
    assert trial.cell != build_model(TrialConfig, {"method": "crossattn", "training": SHORT}, "trial").cell


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({"method": "deepsets"}, ["its network is cross-attention", "deep-sets"]),
        ({"network": {"embedding_dim": 8}}, ["network.embedding_dim is 16", "8"]),
        ({"network": {"num_heads": 2}}, ["network.num_heads is 4", "2"]),
        ({"env": {"observation": {"feature_set": "rounds"}}}, ["observation.feature_set is paper", "rounds"]),
        ({"env": {"observation": {"memory_max_gb": 40}}}, ["observation.memory_max_gb is 80", "40"]),
    ],
    ids=str,
)
def test_a_policy_of_another_shape_is_refused(exported: Path, more: dict[str, Any], parts: list[str]) -> None:
    line = refusal(initial_network, trial_from(exported, **more))
    assert all(part in line for part in ("training.initial_policy", str(exported), *parts)), line


def test_an_mlp_is_refused_at_another_number_of_servers(tmp_path: Path) -> None:
    save_policy(tmp_path / "mlp", random_network(method="ppo"), TrialConfig(method="ppo"), epochs=1)
    assert initial_network(trial_from(tmp_path / "mlp", method="ppo")) is not None
    larger = trial_from(tmp_path / "mlp", method="ppo", env={"cluster": "paper-32"})
    assert "number of servers is 16, that of this training 32" in refusal(initial_network, larger)


def test_other_refusals(exported: Path, tmp_path: Path) -> None:
    assert "policy.json" in refusal(trial_from, tmp_path / "nowhere")
    assert "method dqn is not one of PPO's" in refusal(lambda: trial_from(exported, method="dqn"))
    held = {"training": SHORT | {"reference_kl_coefficient": 1}}
    assert "give initial_policy, too" in refusal(build_model, TrialConfig, held, "trial")
    imitating = {"imitation": {"expert": "fastest-idle"}}
    assert "reference_kl_coefficient" in refusal(lambda: trial_from(exported, 1.0, **imitating))
    trial = trial_from(exported)
    (exported / DESCRIPTION).write_text((exported / DESCRIPTION).read_text() + " ")
    assert "has changed since the config was read" in refusal(initial_network, trial)
