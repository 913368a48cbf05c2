"""Policies as files: what is saved is what is loaded, and anything else is refused with one clear line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from networks.observations import NETWORKS, fit_of, random_network, random_observations, random_rows
from policies.folders import edit, put_tensors
from rllib_scale.config import METHODS, EnvConfig, TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.observation.answers import OPEN
from rllib_scale.policies.policy import (
    DESCRIPTION,
    TENSORS,
    TrainedPolicy,
    load_policy,
    policy_files,
    policy_from_bytes,
    save_policy,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved policy of method scale."""
    save_policy(tmp_path / "policy", random_network(), TrialConfig.of(seed=7), epochs=3)
    return tmp_path / "policy"


@pytest.mark.parametrize("method", NETWORKS)
def test_round_trip(tmp_path: Path, method: str) -> None:
    network, trial = random_network(method=method), TrialConfig.of(method, seed=7)
    save_policy(tmp_path / "policy", network, trial, epochs=3)
    policy = load_policy(tmp_path / "policy")
    for servers in (16, 1, 48) if trial.any_scale else (16,):
        obs = random_rows(method, 8, servers)
        logits = network(obs)[1].detach().numpy()
        np.testing.assert_allclose(policy.scores(obs.numpy()), logits, atol=1e-5, rtol=1e-5)
        fits = np.full((8, 1, servers), OPEN, dtype=np.uint8)
        np.testing.assert_array_equal(policy(obs.numpy(), fits), logits.argmax(1))
    assert (policy.trial, policy.epochs, policy.name) == (trial, 3, trial.name)
    assert sorted(p.name for p in (tmp_path / "policy").iterdir()) == [DESCRIPTION, TENSORS]
    description = json.loads((tmp_path / "policy" / DESCRIPTION).read_text())
    assert description["method"] == method
    assert (description["seed"], description["trial_id"], description["train_servers"]) == (7, trial.trial_id, 16)


def test_sizes_and_clip_are_those_of_the_trial_and_scales_those_of_the_file(tmp_path: Path) -> None:
    obs = random_observations(4, 16)
    for method, sizes in (("attention-model", {"logit_clip": 2.0}), ("set-transformer", {"induced_points": 3})):
        network = random_network(method=method, **sizes)
        network.inputs.task_scale.mul_(2)
        save_policy(tmp_path / method, network, TrialConfig.of(method, network=sizes), epochs=1)
        scores = load_policy(tmp_path / method).scores(obs.numpy())
        np.testing.assert_allclose(scores, network(obs)[1].detach().numpy(), atol=1e-5)


def test_feasible_mask_replaces_the_mask_of_the_training(folder: Path) -> None:
    rows = random_observations(64, 16)
    obs, fit = rows.numpy(), fit_of(rows)
    feasible = fit[:, 0] == OPEN
    chosen = load_policy(folder, mask="feasible")(obs, fit)
    assert feasible[np.arange(64), chosen][feasible.any(1)].all()
    unmasked = load_policy(folder)(obs, fit)
    assert not feasible[np.arange(64), unmasked][feasible.any(1)].all()
    masked = TrialConfig.of(env=EnvConfig().with_mask("feasible"))
    save_policy(folder, random_network(), masked, epochs=4)  # in place of the other one
    replaced = load_policy(folder, mask="none")
    assert (replaced.trial, replaced.epochs) == (masked, 4)
    np.testing.assert_array_equal(replaced(obs, fit), unmasked)


@pytest.mark.parametrize("method", NETWORKS)
def test_a_scheduler_leaves_the_network_that_it_is_made_of_alone(method: str) -> None:
    network = random_network(method=method).train()
    obs = random_rows(method, 8, 16)
    before = network(obs)[1].detach()
    policy = TrainedPolicy(network, TrialConfig.of(method), epochs=1)
    assert network.training
    assert torch.equal(network(obs)[1], before)
    assert all(parameter.requires_grad for parameter in network.parameters())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    for logits in (torch.from_numpy(policy.scores(obs.numpy())), policy.network(obs)[1]):
        torch.testing.assert_close(logits, before, atol=1e-5, rtol=1e-5)


def test_what_is_no_whole_policy_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere: no such policy folder"):
        load_policy(folder / "nowhere")
    whole = (folder / TENSORS).read_bytes()
    for content in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        (folder / TENSORS).write_bytes(content)
        with pytest.raises(UserError, match=r"policy\.safetensors is damaged"):
            load_policy(folder)
    for content in (b"", b'"text"', b"[1]", b'{"format": "other"}', b"\xef\xbb\xbf\xff"):
        (folder / DESCRIPTION).write_bytes(content)
        with pytest.raises(UserError, match=r"policy\.json: not (readable as JSON|a policy of this program)"):
            load_policy(folder)
    (folder / TENSORS).unlink()
    with pytest.raises(UserError, match=r"not a whole policy folder: .*policy\.safetensors"):
        load_policy(folder)


def test_tensors_that_are_no_weights_of_its_network_are_refused(folder: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (pytest.fail, ("a pickle was loaded",))

    tensors = load((folder / TENSORS).read_bytes())
    name = next(name for name, tensor in sorted(tensors.items()) if tensor.dtype == torch.float32)
    save_policy(tmp_path / "mlp", random_network(method="ppo"), TrialConfig.of("ppo"), epochs=1)
    for content, part in (
        ((tmp_path / "mlp" / TENSORS).read_bytes(), "does not hold the weights of a scale network"),
        (pickle.dumps(Bomb()), "does not hold the weights of a scale network"),
        (save(tensors | {name: tensors[name] * torch.nan}), f"{name} is not finite"),
        (save(tensors | {name: tensors[name].view(torch.int32)}), f"{name} holds torch.int32, not weights"),
    ):
        put_tensors(folder, content)
        with pytest.raises(UserError, match=part):
            policy_from_bytes(policy_files(folder), "mixed")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "policy of version 1, .* reads 5; `rllib-scale convert`"),
        ({"seed": 8}, "seed is 8, its trial says 7"),
        ({"trial_id": "0" * 12}, "trial_id is '000000000000', its trial says"),
        ({"method": "crossattn"}, "method is 'crossattn', its trial says 'scale'"),
        ({"train_servers": 32}, "train_servers is 32, its trial says 16"),
        ({"feature_set": "other"}, "feature_set is 'other', its trial says 'paper'"),
        ({"epochs": "3"}, "epochs must be an integer"),
        ({"trial": None}, "trial: "),
        ({"trial": {"sed": "scale"}}, "did you mean 'seed'"),
        ({"trial": {"network": {"name": "cross-attention", "skip": "lmetric"}}}, "skip: .* or 'naive' .got 'lmetric'"),
    ],
)
def test_description_that_does_not_fit(folder: Path, change: dict[str, object], message: str) -> None:
    edit(folder, **change)
    with pytest.raises(UserError, match=message):
        load_policy(folder)


def test_a_notebook_shows_what_it_is_and_what_trained_it(folder: Path) -> None:
    policy = load_policy(folder)
    policy.name = "<b>mine</b>"
    shown = policy._repr_html_()
    assert "scale: " + METHODS["scale"].description in shown
    assert "3 epochs at 16 servers, seed 7" in shown
    assert "&lt;b&gt;mine&lt;/b&gt;" in shown
