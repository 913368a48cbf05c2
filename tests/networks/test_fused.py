"""The fused pass: values and gradients of the torch modules, whatever is done with passes in between."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from marks import slow
from networks.observations import perturbed, random_mask, random_network, random_observations
from rllib_scale.networks.compiled.fused import FusedPointer, fuse, tiles
from rllib_scale.networks.inputs import MASKED


def gradients(network: torch.nn.Module, outputs: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients of a fixed random functional of features and open logits."""
    features, logits = outputs
    generator = torch.Generator().manual_seed(1)
    into_f = torch.randn(features.shape, generator=generator).to(features.dtype)
    into_logits = torch.randn(logits.shape, generator=generator).to(logits.dtype) * (logits.detach() > MASKED / 2)
    network.zero_grad()
    torch.autograd.backward((features, logits), (into_f, into_logits))
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def assert_same_gradients(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        scale = float(gradient.abs().max())
        assert scale > 0, f"{name} must matter for the test to mean anything"
        torch.testing.assert_close(actual[name], gradient, atol=1e-5 * scale, rtol=0, msg=name)


@pytest.mark.parametrize(  # half a minute of compilation for each number of blocks
    "sizes",
    [
        {},
        {"skip": "linear"},
        slow({"embedding_dim": 6, "num_heads": 2, "num_blocks": 1}),
        slow({"num_blocks": 3}),
    ],
    ids=str,
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("servers", "batch"), [(4, 1), (16, 64), (33, 7)])
def test_equal_to_the_modules(servers: int, batch: int, masked: bool, sizes: dict[str, Any]) -> None:
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


def traced_bytes(work: Callable[[], None]) -> tuple[int, int]:
    """Bytes of arrays that `work` leaves, and most that stood at once while it ran, without those before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("training", [False, True])
def test_passes_take_turns_in_one_workspace(training: bool) -> None:
    network = random_network().requires_grad_(training)
    fused, obs = FusedPointer(network), random_observations(64, 128)

    def passes() -> None:
        for _ in range(3):
            network.zero_grad()
            features, logits = fused(obs)
            if training:
                (features.square().mean() + logits.square().mean()).backward()

    _, first = traced_bytes(passes)
    assert first > 2**20, "the test sees workspaces"
    assert traced_bytes(passes)[1] < first / (10 if training else 50)


@torch.no_grad()
def test_workspaces_of_batches_of_all_sizes_do_not_pile_up() -> None:
    fused = FusedPointer(random_network())
    one, _ = traced_bytes(lambda: fused(random_observations(40, 64)) and None)
    assert one > 2**18, "the test sees workspaces"
    assert traced_bytes(lambda: [fused(random_observations(size, 64)) for size in range(41, 71)] and None)[0] < 5 * one


def test_what_it_cannot_differentiate_is_refused() -> None:
    network = random_network()
    fused, obs = FusedPointer(network), random_observations(8, 16)
    with pytest.raises(RuntimeError, match="no gradient of observations"):
        fused(obs.clone().requires_grad_())
    with torch.no_grad():
        torch.testing.assert_close(fused(obs.clone().requires_grad_()), network(obs), atol=1e-5, rtol=1e-5)
    loss = fused(obs)[1].sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a second backward"):
        loss.backward()
    loss = fused(obs)[1].sum()
    torch.nn.init.ones_(next(network.parameters()))
    with pytest.raises(RuntimeError, match="changed between forward and backward"):
        loss.backward()


@pytest.mark.parametrize("batch", [64, 200])
def test_tiles_of_a_minibatch_of_many_servers(batch: int) -> None:
    network = random_network()
    fused, obs = FusedPointer(network), random_observations(batch, 512, seed=batch, empty=0.3)
    mask = random_mask(batch, 512)
    assert len(tiles(batch, 512, 16)) == -(-batch // 64)
    assert len(tiles(batch, 16, 16)) == 1, "the sums of the paper's problem are taken in one piece"
    expected, actual = network(obs, mask), fused(obs, mask)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    exact = copy.deepcopy(network).double()  # float32 sums of 10^5 terms in torch's order are too far off to compare
    expected_gradients = gradients(exact, exact(obs.double(), mask))
    assert_same_gradients(gradients(network, actual), {name: g.float() for name, g in expected_gradients.items()})
    with torch.no_grad():
        for one, other in zip(fused(obs, mask), actual, strict=True):
            assert torch.equal(one, other)


def test_follows_the_weights_changed_in_place_or_replaced() -> None:
    network = random_network()
    fused, obs = FusedPointer(network), random_observations(8, 16)
    before = fused(obs)[1]
    perturbed(network)
    assert not torch.allclose(fused(obs)[1], before)
    torch.testing.assert_close(fused(obs)[1], network(obs)[1], atol=1e-5, rtol=1e-5)
    for parameter in network.parameters():
        parameter.data = 1.1 * parameter.data
    torch.testing.assert_close(fused(obs)[1], network(obs)[1], atol=1e-5, rtol=1e-5)


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
print([t.tolist() for t in [*values, *(p.grad for p in network.parameters())]])
"""


@pytest.mark.slow
def test_the_process_that_compiles_computes_what_later_ones_do(tmp_path: Path) -> None:
    """Else the first training on a machine would differ from its repetition."""
    own = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
    compiling, later = (
        subprocess.check_output([sys.executable, "-c", PROGRAM], env=os.environ | own, text=True) for _ in range(2)
    )
    assert compiling == later
