"""What both networks promise: the textbook's function, symmetry, masks, gradients, memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from networks.observations import SPEC, random_mask, random_network, random_observations
from networks.textbook import Textbook
from rllib_scale.errors import UserError
from rllib_scale.networks.cross_attention import CrossAttentionPointer
from rllib_scale.networks.inputs import MASKED
from rllib_scale.networks.mlp import Critic


def loss(f: Tensor, logits: Tensor) -> Tensor:
    """Something of the size of a PPO loss that depends on every output, entropy included."""
    log_probabilities = torch.log_softmax(logits, -1)
    entropy = -(log_probabilities.exp() * log_probabilities).sum(-1)
    return (f * torch.arange(f.shape[1]) / f.shape[1]).square().mean() + (entropy - log_probabilities[:, 0]).mean()


def check_textbook(network: CrossAttentionPointer, obs: Tensor, tolerance: float) -> None:
    """Outputs and gradients are those of the textbook form."""
    textbook = Textbook(network)
    ours, oracle = network(obs), textbook(obs)
    for one, other in zip(ours, oracle, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)
    loss(*ours).backward()
    loss(*oracle).backward()
    for one, other in textbook.pairs(network, gradients=True):
        torch.testing.assert_close(one, other.reshape(one.shape), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("empty", [0.0, 0.4])
@pytest.mark.parametrize("servers", [1, 4, 16, 128, 512])
def test_folded_form_is_the_textbook_form(servers: int, empty: float) -> None:
    network = random_network()
    obs = random_observations(32, servers, seed=servers, empty=empty)
    check_textbook(network, obs, 1e-5)


@pytest.mark.parametrize(("embedding_dim", "num_heads", "num_blocks"), [(16, 4, 2), (24, 2, 3), (8, 8, 1), (6, 1, 1)])
def test_folded_form_is_the_textbook_form_in_double_precision(
    embedding_dim: int, num_heads: int, num_blocks: int
) -> None:
    sizes = {"embedding_dim": embedding_dim, "num_heads": num_heads, "num_blocks": num_blocks}
    network = random_network(**sizes).double()
    obs = random_observations(8, 16, empty=0.3).double()
    check_textbook(network, obs, 1e-12)


@pytest.mark.parametrize("method", ["scale", "ppo"])
def test_closed_are_the_servers_that_a_mask_names_and_the_empty_slots_whatever_the_features_say(method: str) -> None:
    obs = random_observations(3, 16)
    server = obs[:, 5:].view(3, 16, 5)
    server[:, :, 1:3] = torch.tensor([0.0, 1.0])  # all too small and busy
    server[:, 6, 0] = 0.0  # empty
    mask = torch.ones(3, 16, dtype=torch.bool)
    mask[1, [2, 7]] = False
    mask[2, :6], mask[2, 7:] = False, False  # only the empty slot is open: no server is left, so none is closed
    network = random_network(method=method)
    (f_free, logits_free), (f, logits) = network(obs), network(obs, mask)
    closed = torch.zeros(3, 16, dtype=torch.bool)
    closed[:, 6] = True
    assert torch.equal(logits_free < MASKED / 2, closed)
    closed[1, [2, 7]] = True
    assert torch.equal(logits < MASKED / 2, closed)
    assert torch.equal(logits[~closed], logits_free[~closed])
    assert torch.equal(f, f_free)


@pytest.mark.parametrize("kind", [torch.Tensor, np.ndarray])
def test_a_row_of_a_masked_trial_is_an_observation_and_its_mask(kind: type) -> None:
    obs, mask = random_observations(4, 7), random_mask(4, 7)
    rows = torch.cat((obs, mask.float()), 1)
    seen, closing = SPEC.split_mask(rows if kind is torch.Tensor else rows.numpy(), masked=True)
    assert isinstance(seen, kind)
    assert isinstance(closing, kind)
    np.testing.assert_array_equal(seen, obs)
    np.testing.assert_array_equal(closing, mask)
    assert closing.dtype in (torch.bool, np.bool_)
    whole, none = SPEC.split_mask(rows, masked=False)
    assert whole is rows
    assert none is None


def test_one_tensor_of_the_size_of_the_server_embeddings_is_kept_for_the_backward_pass() -> None:
    batch, servers, d = 8, 64, 16
    kept: set[int] = set()

    def pack(tensor: Tensor) -> Tensor:
        if tensor.numel() >= batch * servers * d:
            kept.add(tensor.untyped_storage().data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = random_network()(random_observations(batch, servers))
    assert len(kept) == 1
    del outputs


@pytest.mark.parametrize("method", ["scale", "ppo"])
def test_standardisation_is_part_of_the_network(method: str) -> None:
    network = random_network(method=method)
    inputs = network.inputs(random_observations(4, 16))
    obs = random_observations(4, 16)
    spec = network.inputs.spec
    expected = (obs[:, :5] - torch.tensor(spec.task_mean)) / torch.tensor(spec.task_std)
    torch.testing.assert_close(inputs.task, expected)
    expected = (obs[:, 5:].unflatten(1, (16, 5)) - torch.tensor(spec.server_mean)) / torch.tensor(spec.server_std)
    torch.testing.assert_close(inputs.servers, expected)
    assert {"inputs.task_scale", "inputs.server_shift"} <= set(network.state_dict())


def test_mlp_sees_which_server_is_which() -> None:
    network = random_network(method="ppo")
    obs = random_observations(4, 16)
    swapped = torch.cat((obs[:, :5], obs[:, 5:].unflatten(1, (16, 5)).flip(1).flatten(1)), 1)
    assert (network(obs)[0] - network(swapped)[0]).abs().max() > 1e-3
    assert network(obs)[0].shape == (4, 256)


def test_mlp_refuses_another_number_of_servers() -> None:
    network = random_network(method="ppo")
    with pytest.raises(UserError, match="fixed to N=16 servers and cannot run at N=32"):
        network(random_observations(2, 32))


def test_critic_gives_one_value_a_row() -> None:
    assert Critic(16, 64)(torch.randn(5, 16)).shape == (5,)
