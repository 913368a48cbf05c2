"""Compiled forwards: the numbers of the torch forward, of the weights at compilation, and nothing for empty slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from networks.observations import SPEC, perturbed, random_mask, random_network, random_observations
from rllib_scale.networks.compiled.inference import compile_network
from rllib_scale.networks.inputs import MASKED
from rllib_scale.networks.mlp import StructuredMLP

networks = pytest.mark.parametrize("method", ["scale", "attention-model", "deepsets", "set-transformer", "ppo"])


def network_for(method: str, servers: int) -> torch.nn.Module:
    return random_network(method=method) if method != "ppo" else perturbed(StructuredMLP(SPEC, servers, 16, (64, 32)))


def assert_equal_logits(network: torch.nn.Module, obs: torch.Tensor, mask: torch.Tensor | None = None) -> np.ndarray:
    """Within 1e-5 of the largest logit, and masked alike; returns the compiled ones."""
    actual = compile_network(network)(obs.numpy(), None if mask is None else mask.numpy())
    expected = network(obs, mask)[1].detach().numpy()
    assert actual.dtype == np.float32
    open_slots = expected > MASKED / 2
    np.testing.assert_array_equal(actual > MASKED / 2, open_slots)
    scale = max(1.0, abs(expected[open_slots]).max())
    np.testing.assert_allclose(actual[open_slots], expected[open_slots], atol=1e-5 * scale, rtol=0)
    return actual


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("servers", [4, 16, 128, 1024])
@networks
def test_equal_to_torch(method: str, servers: int, masked: bool) -> None:
    network = network_for(method, servers)
    for batch, empty in ((1, 0.0), (4, 0.3), (33, 0.0), (33, 0.3)):
        obs = random_observations(batch, servers, seed=batch, empty=empty)
        logits = assert_equal_logits(network, obs, random_mask(batch, servers) if masked else None)
        assert logits.shape == (batch, servers)
        capacity = obs[:, 5:].view(batch, servers, 5)[:, :, 0].numpy()
        assert (capacity[np.arange(batch), logits.argmax(1)] > 0).all(), "an empty slot is never chosen"


@pytest.mark.parametrize(
    "sizes",
    [
        {"embedding_dim": 8, "num_heads": 2, "num_blocks": 1},
        {"num_blocks": 3},
        {"method": "attention-model", "logit_clip": 0.1},
    ],
    ids=str,
)
def test_other_sizes(sizes: dict[str, Any]) -> None:
    assert_equal_logits(random_network(**sizes), random_observations(5, 16, empty=0.2))


@networks
def test_every_parameter_reaches_the_result_after_compiling_anew_only(method: str) -> None:
    network = network_for(method, 16)
    obs = random_observations(8, 16)
    before = compile_network(network)
    logits = before(obs.numpy())
    for name, parameter in network.named_parameters():
        with torch.no_grad():
            parameter.add_(0.05 * torch.randn_like(parameter))
        np.testing.assert_array_equal(before(obs.numpy()), logits)
        changed = assert_equal_logits(network, obs)
        previous, logits = logits, changed
        assert not np.allclose(previous, changed, atol=1e-6), name
        before = compile_network(network)


@networks
def test_deterministic_whatever_the_batch_and_the_observation_is_left_alone(method: str) -> None:
    forward = compile_network(network_for(method, 16))
    obs = random_observations(64, 16).numpy()
    kept = obs.copy()
    logits = forward(obs)
    np.testing.assert_array_equal(forward(obs), logits)
    np.testing.assert_array_equal(obs, kept)
    np.testing.assert_allclose(np.concatenate([forward(row[None]) for row in obs]), logits, atol=1e-5)
    wide = np.repeat(obs, 2, axis=1)[:, ::2]  # the same numbers, not contiguous
    np.testing.assert_allclose(forward(wide), logits, atol=1e-5)


@pytest.mark.parametrize("servers", [4, 33])
def test_the_way_past_the_encoder_is_compiled_too(servers: int) -> None:
    network = random_network(method="crossattn", skip="linear")
    obs, mask = random_observations(7, servers, empty=0.3), random_mask(7, servers)
    assert_equal_logits(network, obs, mask)
    with_skip = assert_equal_logits(network, obs)
    for parameter in network.skip.parameters():
        torch.nn.init.zeros_(parameter)
    is_open = with_skip > MASKED / 2
    assert abs(with_skip - assert_equal_logits(network, obs))[is_open].max() > 0.1
