"""What both networks promise: the textbook's function, symmetry, masks, gradients, memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from networks.observations import random_network, random_observations
from networks.textbook import Textbook
from rllib_scale.errors import UserError
from rllib_scale.networks.inputs import MASKED
from rllib_scale.networks.mlp import Critic


def loss(f: Tensor, logits: Tensor) -> Tensor:
    """Something of the size of a PPO loss that depends on every output, entropy included."""
    log_probabilities = torch.log_softmax(logits, -1)
    entropy = -(log_probabilities.exp() * log_probabilities).sum(-1)
    return (f * torch.arange(f.shape[1]) / f.shape[1]).square().mean() + (entropy - log_probabilities[:, 0]).mean()


@pytest.mark.parametrize("empty", [0.0, 0.4])
@pytest.mark.parametrize("servers", [1, 4, 16, 128, 512])
def test_folded_form_is_the_textbook_form(servers: int, empty: float) -> None:
    network = random_network()
    textbook = Textbook(network)
    obs = random_observations(32, servers, seed=servers, empty=empty)
    ours, oracle = network(obs), textbook(obs)
    for one, other in zip(ours, oracle, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    loss(*ours).backward()
    loss(*oracle).backward()
    for one, other in textbook.pairs(network, gradients=True):
        torch.testing.assert_close(one, other.reshape(one.shape), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("embedding_dim", "num_heads", "num_blocks"), [(16, 4, 2), (24, 2, 3), (8, 8, 1), (6, 1, 1)])
def test_folded_form_is_the_textbook_form_in_double_precision(
    embedding_dim: int, num_heads: int, num_blocks: int
) -> None:
    sizes = {"embedding_dim": embedding_dim, "num_heads": num_heads, "num_blocks": num_blocks}
    network = random_network(**sizes).double()
    textbook = Textbook(network)
    obs = random_observations(8, 16, empty=0.3).double()
    ours, oracle = network(obs), textbook(obs)
    for one, other in zip(ours, oracle, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)
    loss(*ours).backward()
    loss(*oracle).backward()
    for one, other in textbook.pairs(network, gradients=True):
        torch.testing.assert_close(one, other.reshape(one.shape), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_feature_ignores_and_logits_follow_the_order_of_the_servers(seed: int) -> None:
    network = random_network(seed)
    obs = random_observations(16, 12, seed, empty=0.2)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    shuffled = torch.cat((obs[:, :5], obs[:, 5:].unflatten(1, (12, 5))[:, order].flatten(1)), 1)
    (f, logits), (f_shuffled, logits_shuffled) = network(obs), network(shuffled)
    torch.testing.assert_close(f_shuffled, f, atol=1e-5, rtol=0)
    torch.testing.assert_close(logits_shuffled, logits[:, order], atol=1e-5, rtol=0)


def test_empty_slots_change_nothing_and_are_never_chosen() -> None:
    network = random_network()
    obs = random_observations(16, 6)
    servers = torch.zeros(16, 9, 5)
    real = torch.tensor([0, 2, 3, 5, 6, 8])
    servers[:, real] = obs[:, 5:].unflatten(1, (6, 5))
    (f, logits), (f_wide, logits_wide) = network(obs), network(torch.cat((obs[:, :5], servers.flatten(1)), 1))
    torch.testing.assert_close(f_wide, f, atol=1e-5, rtol=0)
    torch.testing.assert_close(logits_wide[:, real], logits, atol=1e-5, rtol=0)
    assert (torch.softmax(logits_wide, -1)[:, [1, 4, 7]] == 0).all()


@pytest.mark.parametrize("method", ["scale", "ppo"])
def test_masked_and_all_empty_slots_leave_values_and_gradients_finite(method: str) -> None:
    network = random_network(method=method)
    obs = random_observations(8, 16, empty=0.7)
    obs[0, 5:] = 0
    f, logits = network(obs)
    loss(f, logits).backward()
    assert torch.isfinite(f).all()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())


@pytest.mark.parametrize("method", ["scale", "ppo"])
def test_feasible_mask_closes_busy_and_too_small_servers(method: str) -> None:
    obs = random_observations(4, 16)
    obs[:, 1] = 0.4  # task memory
    server = obs[:, 5:].unflatten(1, (16, 5))
    server[:, :, 1], server[:, :, 2] = 0.4, 0.0  # exactly enough memory, idle
    server[0, 3, 2] = 0.01  # busy
    server[1, 4, 1] = 0.39  # too small
    server[2, 5, 0] = 0.0  # empty
    server[3, :, 2] = 1.0  # all busy, so none is closed
    server[3, 6, 0] = 0.0  # but the empty slot
    obs = torch.cat((obs[:, :5], server.flatten(1)), 1)
    free, masked = random_network(method=method), random_network(mask="feasible", method=method)
    (f_free, logits_free), (f, logits) = free(obs), masked(obs)
    closed = torch.zeros(4, 16, dtype=torch.bool)
    closed[[0, 1, 2, 3], [3, 4, 5, 6]] = True
    assert ((logits < MASKED / 2) == closed).all()
    torch.testing.assert_close(logits[~closed], logits_free[~closed])
    torch.testing.assert_close(f, f_free)


@pytest.mark.parametrize("method", ["scale", "ppo"])
def test_every_parameter_gets_a_gradient(method: str) -> None:
    network = random_network(method=method)
    critic = Critic(network.feature_dim, 64)
    f, logits = network(random_observations(16, 16))
    (loss(f, logits) + critic(f).square().mean()).backward()
    for name, parameter in [*network.named_parameters(), *critic.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


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


def test_pointer_runs_at_any_number_of_servers() -> None:
    network = random_network()
    for servers in (1, 4, 33):
        f, logits = network(random_observations(2, servers))
        assert (f.shape, logits.shape) == ((2, 16), (2, servers))


def test_critic_gives_one_value_a_row() -> None:
    assert Critic(16, 64)(torch.randn(5, 16)).shape == (5,)
