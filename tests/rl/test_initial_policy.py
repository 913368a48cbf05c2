"""Trainings that begin with an exported policy, and those that are held near it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from torch.distributions import Categorical, kl_divergence

from benchmarks.agreement import rllibs_update
from local_ray import LOCAL_RAY
from marks import slow
from networks.observations import random_network, random_observations
from rl.learned import distance, learner_of, module_of, update, weights_of
from rllib_scale.config import TrialConfig
from rllib_scale.config.schedulers import PolicySpec
from rllib_scale.errors import UserError
from rllib_scale.loading import resolve
from rllib_scale.networks.inputs import MASKED
from rllib_scale.policies.policy import DESCRIPTION, initial_network, load_policy, save_policy
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.rl.ppo.loss import Outputs, Rows, Weights, ppo_loss
from rllib_scale.rl.ppo.loss import kl_divergence as our_kl

pytestmark = LOCAL_RAY
SHORT = {"epochs": 3, "steps_per_epoch": 256, "minibatch_size": 64, "passes": 4, "num_envs": 3}


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The folder of a policy of method crossattn."""
    save_policy(tmp_path / "exported", random_network(seed=5), TrialConfig.of("crossattn", seed=7), epochs=3)
    return tmp_path / "exported"


def trial_from(folder: Path | None, coefficient: float = 0.0, imitation: bool = False, **more: Any) -> TrialConfig:
    start: dict[str, Any] = {}
    if imitation:
        cloning = {
            "name": "imitation",
            "expert": "fastest-idle",
            "initial_policy": str(resolve(PolicySpec(str(folder)))),
        }
        return TrialConfig.of("crossattn", algorithm=cloning)
    if folder:
        start |= {"initial_policy": str(resolve(PolicySpec(str(folder))))}
        start |= {} if imitation else {"reference_kl_coefficient": coefficient}
    return TrialConfig.of(**{"method": "crossattn", "algorithm": ({} if imitation else SHORT) | start} | more)


def test_the_loss_adds_the_divergence_of_torch_so_many_times() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, reference = (2 * torch.randn(6, 5, generator=generator) for _ in range(2))
    logits[:, 0] += MASKED
    reference[:, 0] += MASKED
    gradients, losses = [], []
    for rows_reference, coefficient in ((None, 0.0), (reference, 0.0), (reference, 0.7)):
        ours = logits.clone().requires_grad_()
        rows = Rows(torch.arange(6) % 4 + 1, torch.full((6,), -1.6), torch.arange(6.0), torch.zeros(6), rows_reference)
        weights = Weights(0.2, 0.5, 0.01, 0.0, 0.0, "sum", True, False, coefficient)
        loss, _ = ppo_loss(rows, Outputs(torch.zeros(6, 4), ours, torch.zeros(6)), weights)
        loss.backward()
        gradients.append(ours.grad)
        losses.append(loss.item())
    assert losses[0] == losses[1]
    assert torch.equal(gradients[0], gradients[1])
    theirs = logits.clone().requires_grad_()
    expected = kl_divergence(Categorical(logits=theirs), Categorical(logits=reference)).mean()
    expected.backward()
    assert our_kl(logits, reference).item() == pytest.approx(expected.item(), rel=1e-5)
    assert losses[2] - losses[0] == pytest.approx(0.7 * expected.item(), rel=1e-4)
    torch.testing.assert_close(gradients[2] - gradients[0], 0.7 * theirs.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("imitation", [False, slow(True)], ids=["ppo", "bc"])
def test_before_the_first_update_the_logits_are_the_policys(
    algorithm_of: Callable[[TrialConfig], Algorithm], exported: Path, imitation: bool
) -> None:
    algorithm = algorithm_of(trial_from(exported, imitation=imitation))
    rows = random_observations(9, 16, seed=3)
    expected = load_policy(exported).network(rows)[1]
    for module in (algorithm.get_module(), module_of(algorithm)):
        assert torch.equal(module.network(rows)[1], expected)


@pytest.mark.parametrize("mask", ["none", slow("feasible")])
def test_both_learners_hold_a_policy_the_same_way(
    algorithm_of: Callable[[TrialConfig], Algorithm], exported: Path, mask: str
) -> None:
    configs = [
        build_algorithm_config(trial_from(exported, coefficient, env={"episode": {"mask": mask}}))
        for coefficient in (3.0, 3.0, 0.0)
    ]
    rllibs_update(configs[1])
    lean, stock, free = map(algorithm_of, configs)
    episodes = lean.env_runner.sample(num_timesteps=SHORT["steps_per_epoch"])
    for algorithm in (lean, stock, free):
        for epoch in range(2):
            update(learner_of(algorithm), episodes, epoch)
    assert distance(weights_of(lean), weights_of(stock)) < 1e-5
    assert distance(weights_of(lean), weights_of(free)) > 1e-4


def test_a_cell_knows_its_initial_policy_by_content(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "copy")
    save_policy(tmp_path / "other", random_network(seed=6), TrialConfig.of("crossattn", seed=7), epochs=3)
    trials = [trial_from(folder).trial_id for folder in (exported, tmp_path / "copy", tmp_path / "other", None)]
    assert trials[0] == trials[1]
    assert len(set(trials)) == 3
    trial = trial_from(exported)
    assert TrialConfig.model_validate_json(trial.model_dump_json()) == trial


@pytest.mark.parametrize(
    ("policy", "more", "message"),
    [
        ("exported", {"method": "deepsets"}, "initial_policy.*exported.*its network is cross-attention.* deep-sets"),
        ("exported", {"network": {"embedding_dim": 8}}, r"network\.embedding_dim is 16, .* 8"),
        ("exported", {"env": {"observation": {"feature_set": "rounds"}}}, "feature_set is paper, .* rounds"),
        ("exported", {"env": {"observation": {"memory_max_gb": 40}}}, "memory_max_gb is 80.0, .* 40"),
        ("mlp", {"method": "ppo", "env": {"cluster": "paper-32"}}, "number of servers is 16, that of this training 32"),
        ("nowhere", {}, r"policy\.json"),
        (None, {"algorithm": {"reference_kl_coefficient": 1}}, "give initial_policy, too"),
    ],
)
def test_refusals(exported: Path, policy: str | None, more: dict[str, Any], message: str) -> None:
    save_policy(exported.parent / "mlp", random_network(method="ppo"), TrialConfig.of("ppo"), epochs=1)
    with pytest.raises((UserError, ValueError), match=message):
        initial_network(trial_from(policy and exported.parent / policy, 1.0, **more))


def test_a_policy_that_changes_after_the_config_was_read_is_refused(exported: Path) -> None:
    trial = trial_from(exported)
    (exported / DESCRIPTION).write_text((exported / DESCRIPTION).read_text() + " ")
    with pytest.raises(UserError, match="has changed since the config was read"):
        initial_network(trial)
