"""The fused pass: values and gradients of the torch modules, whatever is done with passes in between."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from networks.observations import random_mask, random_network, random_observations
from rllib_scale.networks.compiled.fused import FusedPointer, fuse
from rllib_scale.networks.inputs import MASKED


def gradients(network: torch.nn.Module, outputs: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients of a fixed random functional of features and open logits."""
    features, logits = outputs
    generator = torch.Generator().manual_seed(1)
    into_f = torch.randn(features.shape, generator=generator)
    into_logits = torch.randn(logits.shape, generator=generator) * (logits.detach() > MASKED / 2)
    network.zero_grad()
    torch.autograd.backward((features, logits), (into_f, into_logits))
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def assert_same_gradients(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        scale = float(gradient.abs().max())
        assert scale > 0, f"{name} must matter for the test to mean anything"
        torch.testing.assert_close(actual[name], gradient, atol=1e-5 * scale, rtol=0, msg=name)


@pytest.mark.parametrize("sizes", [{}, {"embedding_dim": 6, "num_heads": 2, "num_blocks": 1}, {"num_blocks": 3}])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("servers", "batch"), [(4, 1), (16, 64), (33, 7)])
def test_equal_to_the_modules(servers: int, batch: int, masked: bool, sizes: dict[str, int]) -> None:
    network = random_network(**sizes)
    obs = random_observations(batch, servers, seed=batch, empty=0.3)
    mask = random_mask(batch, servers) if masked else None
    expected, actual = network(obs, mask), FusedPointer(network)(obs, mask)
    torch.testing.assert_close(actual[0], expected[0], atol=1e-5, rtol=0)
    closed = expected[1] < MASKED / 2
    assert torch.equal(actual[1] < MASKED / 2, closed)
    torch.testing.assert_close(actual[1][~closed], expected[1][~closed], atol=1e-5, rtol=1e-5)
    expected_gradients = gradients(network, expected)
    assert set(expected_gradients) == {name for name, _ in network.named_parameters()}
    assert_same_gradients(gradients(network, actual), expected_gradients)


def test_passes_do_not_disturb_each_other() -> None:
    network = random_network()
    fused = FusedPointer(network)
    first, second = random_observations(32, 16, seed=1), random_observations(32, 16, seed=2)
    expected = [gradients(network, network(obs)) for obs in (first, second)]
    outputs = [fused(first), fused(second)]
    with torch.no_grad():
        fused(random_observations(32, 16, seed=3))
    assert_same_gradients(gradients(network, outputs[0]), expected[0])
    fused(first)
    assert_same_gradients(gradients(network, outputs[1]), expected[1])


def test_follows_the_weights_changed_in_place_or_replaced() -> None:
    network = random_network()
    fused, obs = FusedPointer(network), random_observations(8, 16)
    before = fused(obs)[1]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    assert not torch.allclose(fused(obs)[1], before)
    torch.testing.assert_close(fused(obs)[1], network(obs)[1], atol=1e-5, rtol=1e-5)
    for parameter in network.parameters():
        parameter.data = 1.1 * parameter.data
    torch.testing.assert_close(fused(obs)[1], network(obs)[1], atol=1e-5, rtol=1e-5)


def test_weights_changed_between_forward_and_backward_are_refused() -> None:
    network = random_network()
    _, logits = FusedPointer(network)(random_observations(8, 16))
    with torch.no_grad():
        next(network.parameters()).add_(1.0)
    with pytest.raises(RuntimeError, match="changed between forward and backward"):
        logits.sum().backward()


def test_only_what_it_computes_is_fused() -> None:
    assert fuse(random_network()) is not None
    assert fuse(random_network(method="attention-model")) is None, "its logits are clipped"
    assert fuse(random_network(method="deepsets")) is None
    assert fuse(random_network().double()) is None


PROGRAM = """
import torch
from networks.observations import random_network, random_observations
from rllib_scale.networks.compiled.fused import FusedPointer
from rllib_scale.networks.compiled.inference import compile_network
network, obs = random_network(), random_observations(64, 16)
features, logits = FusedPointer(network)(obs)
(features.square().sum() + logits.square().sum()).backward()
values = [torch.from_numpy(compile_network(network)(obs.numpy())), features, logits]
print(hash(b"".join(t.detach().numpy().tobytes() for t in [*values, *(p.grad for p in network.parameters())])))
"""


def test_the_process_that_compiles_computes_what_later_ones_do(tmp_path: Path) -> None:
    """Else the first training on a machine would differ from its repetition."""
    paths = os.pathsep.join((str(Path(__file__).parents[1]), str(Path(__file__).parent)))
    own = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    compiling, later = (
        subprocess.check_output([sys.executable, "-c", PROGRAM], env=os.environ | own, text=True) for _ in range(2)
    )
    assert compiling == later
