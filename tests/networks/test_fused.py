"""The fused pass: values and gradients of the torch modules, whatever is done with passes in between."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from marks import slow
from networks.observations import random_mask, random_network, random_observations, random_rows
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
    "sizes", [{}, slow({"embedding_dim": 6, "num_heads": 2, "num_blocks": 1}), slow({"num_blocks": 3})]
)
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


@pytest.mark.parametrize("masked", [False, True])
def test_the_way_past_the_encoder_is_that_of_the_modules(masked: bool) -> None:
    network = random_network(method="crossattn-r")
    obs = random_rows("crossattn-r", 9, 16, empty=0.3)
    mask = random_mask(9, 16) if masked else None
    expected, actual = network(obs, mask), FusedPointer(network)(obs, mask)
    closed = expected[1] < MASKED / 2
    torch.testing.assert_close(actual[1][~closed], expected[1][~closed], atol=1e-4, rtol=1e-5)
    wanted = gradients(network, expected)
    assert {"skip.weight", "skip.bias"} <= set(wanted)
    assert_same_gradients(gradients(network, actual), wanted)


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


def traced_bytes(work: Callable[[], None]) -> int:
    """Most bytes of arrays that stood at once while `work` ran and did not stand before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_passes_without_gradients_take_turns_in_one_workspace() -> None:
    fused, obs = FusedPointer(random_network()), random_observations(64, 128)

    @torch.no_grad()
    def passes() -> None:
        for _ in range(3):
            fused(obs)

    first = traced_bytes(passes)
    assert first > 2**20, "the test sees workspaces"
    assert traced_bytes(passes) < first / 50
    for parameter in fused.network.parameters():
        parameter.requires_grad_(False)
    assert traced_bytes(lambda: [fused(obs) for _ in range(3)] and None) < first / 50


def test_training_takes_one_workspace_for_all_minibatches() -> None:
    network = random_network()
    fused, obs = FusedPointer(network), random_observations(64, 128)

    def updates() -> None:
        for _ in range(3):
            network.zero_grad()
            features, logits = fused(obs)
            (features.square().mean() + logits.square().mean()).backward()

    first = traced_bytes(updates)
    assert traced_bytes(updates) < first / 10


def test_workspaces_of_batches_of_all_sizes_do_not_pile_up() -> None:
    fused = FusedPointer(random_network())

    def kept_after(sizes: range) -> int:
        tracemalloc.start()
        try:
            with torch.no_grad():
                for size in sizes:
                    fused(random_observations(size, 64))
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    one = kept_after(range(40, 41))
    assert one > 2**18, "the test sees workspaces"
    assert kept_after(range(41, 71)) < 5 * one


def test_a_gradient_of_the_observation_is_refused() -> None:
    network = random_network()
    fused, obs = FusedPointer(network), random_observations(8, 16).requires_grad_()
    with pytest.raises(RuntimeError, match="no gradient of observations"):
        fused(obs)
    with torch.no_grad():
        torch.testing.assert_close(fused(obs), network(obs), atol=1e-5, rtol=1e-5)


def test_a_second_backward_is_refused() -> None:
    _, logits = FusedPointer(random_network())(random_observations(8, 16))
    loss = logits.sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a second backward"):
        loss.backward()


@pytest.mark.parametrize("batch", [64, 200, 256])
def test_tiles_of_a_minibatch_of_many_servers(batch: int) -> None:
    network = random_network()
    fused, obs = FusedPointer(network), random_observations(batch, 512, seed=batch, empty=0.3)
    mask = random_mask(batch, 512)
    assert len(tiles(batch, 512, 16)) == -(-batch // 64)
    expected, actual = network(obs, mask), fused(obs, mask)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    exact = copy.deepcopy(network).double()  # float32 sums of 10^5 terms in torch's order are too far off to compare
    expected_gradients = gradients(exact, exact(obs.double(), mask))
    assert_same_gradients(gradients(network, actual), {name: g.float() for name, g in expected_gradients.items()})
    with torch.no_grad():
        for one, other in zip(fused(obs, mask), actual, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(("batch", "servers"), [(1, 4), (256, 512), (1000, 128), (7, 100_000), (1041, 16)])
def test_tiles_are_every_row_once_in_order_and_of_nearly_one_size(batch: int, servers: int) -> None:
    parts = tiles(batch, servers, 16)
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(batch))
    sizes = {part.stop - part.start for part in parts}
    assert max(sizes) - min(sizes) <= len(parts)
    assert len(parts) == 1 or servers > 16, "the sums of the paper's problem are taken in one piece"


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


@pytest.mark.slow
def test_the_process_that_compiles_computes_what_later_ones_do(tmp_path: Path) -> None:
    """Else the first training on a machine would differ from its repetition."""
    paths = os.pathsep.join((str(Path(__file__).parents[1]), str(Path(__file__).parent)))
    own = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    compiling, later = (
        subprocess.check_output([sys.executable, "-c", PROGRAM], env=os.environ | own, text=True) for _ in range(2)
    )
    assert compiling == later
