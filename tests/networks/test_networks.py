"""What networks promise: symmetry, empty slots, masks, any number of servers, gradients, logits, size."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from networks.observations import NETWORKS, SPEC, random_mask, random_network, random_observations
from rllib_scale.config import METHODS, TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.networks.build import build_network
from rllib_scale.networks.deep_sets import pool
from rllib_scale.networks.inputs import MASKED
from rllib_scale.networks.mlp import Critic
from rllib_scale.networks.set_transformer import AttentionBlock, InducedBlock
from seeds import examples

ENCODERS = [name for name in NETWORKS if METHODS[name].srr is None and METHODS[name].network != {"name": "mlp"}]
encoders = pytest.mark.parametrize("method", ENCODERS)


def slots(obs: Tensor) -> tuple[Tensor, Tensor]:
    """Task features (B, 5) and server features (B, N, 5)."""
    return obs[:, :5], obs[:, 5:].unflatten(1, (-1, 5))


def joined(task: Tensor, servers: Tensor) -> Tensor:
    return torch.cat((task, servers.flatten(1)), 1)


@encoders
@examples(20)
@given(servers=st.integers(1, 40), seed=st.integers(0, 1000), empty=st.sampled_from([0.0, 0.3]))
def test_feature_ignores_and_logits_follow_the_order_of_the_servers(
    method: str, servers: int, seed: int, empty: float
) -> None:
    network = random_network(method=method)
    task, rows = slots(random_observations(4, servers, seed, empty))
    order = torch.randperm(servers, generator=torch.Generator().manual_seed(seed))
    (f, logits), (f_shuffled, shuffled) = network(joined(task, rows)), network(joined(task, rows[:, order]))
    torch.testing.assert_close(f_shuffled, f, atol=1e-5, rtol=0)
    torch.testing.assert_close(shuffled, logits[:, order], atol=1e-5, rtol=1e-5)


@encoders
@examples(20)
@given(servers=st.integers(1, 20), added=st.integers(1, 60), seed=st.integers(0, 1000))
def test_empty_slots_change_nothing_and_are_never_chosen(method: str, servers: int, added: int, seed: int) -> None:
    network = random_network(method=method)
    task, rows = slots(random_observations(4, servers, seed))
    place = torch.randperm(servers + added, generator=torch.Generator().manual_seed(seed))
    wide = torch.zeros(4, servers + added, 5)
    wide[:, place[:servers]] = rows
    (f, logits), (f_wide, logits_wide) = network(joined(task, rows)), network(joined(task, wide))
    torch.testing.assert_close(f_wide, f, atol=1e-5, rtol=0)
    torch.testing.assert_close(logits_wide[:, place[:servers]], logits, atol=1e-5, rtol=1e-5)
    assert (torch.softmax(logits_wide, -1)[:, place[servers:]] == 0).all()


@encoders
def test_a_larger_cluster_of_the_same_servers_has_features_of_the_same_scale(method: str) -> None:
    task, rows = slots(random_observations(256, 16))
    network = random_network(method=method)
    f, f_wide = (network(joined(task, rows.repeat(1, times, 1)))[0] for times in (1, 8))
    # Every server stands eight times: means, maxima and attention stay what they were, sums would not.
    torch.testing.assert_close(f_wide, f, atol=1e-4, rtol=0)


@encoders
def test_task_and_every_server_matter(method: str) -> None:
    network = random_network(method=method)
    task, rows = slots(random_observations(8, 6))
    f, logits = network(joined(task, rows))
    f_task, _ = network(joined(task + 1, rows))
    assert ((f_task - f).abs().amax(1) > 1e-3).all()
    for j in range(6):
        changed = rows.clone()
        changed[:, j, 2] += 3.0
        f_changed, logits_changed = network(joined(task, changed))
        assert ((f_changed - f).abs().amax(1) > 1e-5).all(), j
        assert ((logits_changed - logits)[:, j].abs() > 1e-5).all(), j


@pytest.mark.parametrize("method", [*ENCODERS, "ppo"])
def test_a_mask_closes_servers_to_the_pointer_only_and_where_one_is_left(method: str) -> None:
    obs, mask = random_observations(32, 16, empty=0.2), random_mask(32, 16)
    network = random_network(method=method)
    (f_free, free), (f, logits) = network(obs), network(obs, mask)
    real = slots(obs)[1][..., 0] > 0
    opened = torch.where((mask & real).any(1, keepdim=True), mask & real, real)
    assert torch.equal(opened[0], real[0]), "row 0 has no server that its mask leaves open"
    torch.testing.assert_close(logits > MASKED / 2, opened)
    torch.testing.assert_close(logits[opened], free[opened])
    torch.testing.assert_close(f, f_free)


@pytest.mark.parametrize("method", [*ENCODERS, "ppo"])
def test_every_parameter_gets_a_finite_gradient_even_with_one_server_or_none(method: str) -> None:
    network = random_network(method=method)
    critic = Critic(network.feature_dim, 64)
    empty = random_observations(8, 16, empty=0.7)
    empty[0, 5:] = 0  # RLlib asks every registered parameter for its gradient, whatever the rows
    cases = [empty, random_observations(16, 16)] + ([] if method == "ppo" else [random_observations(16, 1)])
    for obs in cases:
        network.zero_grad(set_to_none=True)
        f, logits = network(obs)
        log_probabilities = torch.log_softmax(logits, -1)
        entropy = (log_probabilities.exp() * log_probabilities).sum()
        (critic(f).square().mean() + log_probabilities[:, 0].mean() + entropy).backward()
        assert torch.isfinite(f).all()
        assert torch.isfinite(logits).all()
        for name, parameter in network.named_parameters():
            assert torch.isfinite(parameter.grad).all(), name
            assert parameter.grad.abs().max() > 1e-8 or obs.shape[1] == 10, f"{name} has no effect"


@encoders
def test_untrained_networks_are_of_one_size_and_their_features_of_unit_scale(method: str) -> None:
    torch.manual_seed(0)
    network, scale = (build_network(TrialConfig.of(name)) for name in (method, "scale"))
    count, of_scale = (sum(p.numel() for p in each.parameters()) for each in (network, scale))
    assert 0.75 * of_scale < count < 1.33 * of_scale
    f, _ = network(random_observations(512, 16))
    torch.testing.assert_close(f.mean(1), torch.zeros(512), atol=1e-4, rtol=0)
    torch.testing.assert_close(f.var(1, correction=0), torch.ones(512), atol=1e-2, rtol=0)


@pytest.mark.parametrize("method", ["deepsets", "set-transformer"])
def test_logits_are_the_papers_pointer(method: str) -> None:
    network = random_network(method=method)
    obs = random_observations(4, 6)
    inputs = network.inputs(obs)
    f, z = network.encode(network.task_embedder(inputs.task), network.server_embedder(inputs.servers), inputs.empty)
    expected = (network.pointer_key(z) @ network.pointer_query(f)[..., None])[..., 0]
    torch.testing.assert_close(network(obs)[1], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("sizes", "clip"), [({}, 10), ({"logit_clip": 0.5}, 0.5)])
def test_attention_model_scales_and_clips_the_logits_of_crossattn(sizes: dict[str, float], clip: float) -> None:
    scores = random_network(method="crossattn")
    clipped = random_network(method="attention-model", **sizes)
    obs = random_observations(16, 12, empty=0.2)
    (f, p), (f_clipped, logits) = scores(obs), clipped(obs)
    real = p > MASKED / 2
    torch.testing.assert_close(f_clipped, f)
    torch.testing.assert_close(logits[real], clip * torch.tanh(p[real] / math.sqrt(16)))
    assert (logits[~real] < MASKED / 2).all()


def test_a_row_of_a_masked_trial_is_an_observation_and_its_mask() -> None:
    obs, mask = random_observations(4, 7), random_mask(4, 7)
    rows = torch.cat((obs, mask.float()), 1)
    seen, closing = SPEC.split_mask(rows, masked=True)
    assert torch.equal(seen, obs)
    assert torch.equal(closing, mask)
    seen, closing = SPEC.split_mask(rows.numpy(), masked=True)
    np.testing.assert_array_equal(seen, obs)
    np.testing.assert_array_equal(closing, mask, strict=True)
    assert SPEC.split_mask(rows, masked=False) == (rows, None)


@pytest.mark.parametrize("method", ["scale", "ppo"])
def test_standardisation_is_part_of_the_network(method: str) -> None:
    network, obs = random_network(method=method), random_observations(4, 16)
    inputs, spec = network.inputs(obs), network.inputs.spec
    expected = (obs[:, :5] - torch.tensor(spec.task_mean)) / torch.tensor(spec.task_std)
    torch.testing.assert_close(inputs.task, expected)
    expected = (obs[:, 5:].unflatten(1, (16, 5)) - torch.tensor(spec.server_mean)) / torch.tensor(spec.server_std)
    torch.testing.assert_close(inputs.servers, expected)
    assert {"inputs.task_scale", "inputs.server_shift"} <= set(network.state_dict())


def test_the_mlp_sees_which_server_is_which_of_a_fixed_number() -> None:
    network, obs = random_network(method="ppo"), random_observations(4, 16)
    swapped = torch.cat((obs[:, :5], obs[:, 5:].unflatten(1, (16, 5)).flip(1).flatten(1)), 1)
    assert (network(obs)[0] - network(swapped)[0]).abs().max() > 1e-3
    with pytest.raises(UserError, match="fixed to N=16 servers and cannot run at N=32"):
        network(random_observations(2, 32))


def test_pool_by_hand() -> None:
    servers = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]], [[5.0, 5.0], [6.0, 6.0], [7.0, 7.0]]])
    empty = torch.tensor([[0.0, 0.0, MASKED], [MASKED, MASKED, MASKED]])
    assert pool(servers, empty).tolist() == [[2.0, -3.0, 3.0, -2.0], [0.0, 0.0, 0.0, 0.0]]


def test_attention_block_is_torchs_multihead_attention() -> None:
    d, heads = 12, 3
    torch.manual_seed(0)
    block, oracle = AttentionBlock(d, heads), torch.nn.MultiheadAttention(d, heads, batch_first=True)
    x, y = torch.randn(5, 4, d), torch.randn(5, 7, d)
    bias = MASKED * (torch.rand(5, 7) < 0.3)
    with torch.no_grad():
        oracle.in_proj_weight.copy_(torch.cat((block.query.weight, block.key.weight, block.value.weight)))
        oracle.in_proj_bias.copy_(torch.cat((block.query.bias, torch.zeros(d), block.value.bias)))
        oracle.out_proj.load_state_dict(block.output.state_dict())
    attended, _ = oracle(x, y, y, key_padding_mask=bias, need_weights=False)
    middle = block.attention_norm(x + attended)
    expected = block.feedforward_norm(middle + torch.relu(block.feedforward(middle)))
    torch.testing.assert_close(block(x, y, bias), expected, atol=1e-5, rtol=1e-5)


def test_servers_of_the_set_transformer_know_of_each_other() -> None:
    torch.manual_seed(0)
    block = InducedBlock(16, 4, num_points=3)
    x = torch.randn(2, 5, 16)
    changed = x.clone()
    changed[:, 4] += 1
    empty = torch.zeros(2, 5)
    assert ((block(changed, empty) - block(x, empty))[:, :4].abs().amax(2) > 1e-5).all()
    empty[:, 4] = MASKED
    torch.testing.assert_close(block(changed, empty)[:, :4], block(x, empty)[:, :4])
    network = random_network(method="set-transformer", induced_points=5)
    assert [block.points.shape for block in network.blocks] == [(5, 16), (5, 16)]
