"""Random observations of the right size, and networks to read them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rllib_scale.config import METHODS, TrialConfig
from rllib_scale.networks.build import Network, build_network, input_spec
from rllib_scale.observation.answers import CLOSED, OPEN, TAKEN

torch.set_num_threads(1)  # tests run side by side
NETWORKS = [
    name
    for name, preset in METHODS.items()
    if preset.algorithm["name"] in ("ppo", "dqn", "sac") and "copies" not in preset.algorithm
]
"""Methods for servers of fixed speed whose policy is a network over an observation."""
SPEC = input_spec(TrialConfig.of())


def random_observations(batch: int, servers: int, seed: int = 0, empty: float = 0.0) -> Tensor:
    """(batch, 5 + 5 * servers): tasks and servers of three tiers, about half of them busy, a share of slots empty."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    task = torch.tensor(SPEC.task_mean) + torch.tensor(SPEC.task_std) * (uniform(batch, 5) - 0.5) * 3
    tier = torch.randint(3, (batch, servers), generator=generator)
    busy = uniform(batch, servers) < 0.5
    server = torch.stack(
        (
            torch.tensor([0.25, 0.5, 1.0])[tier],
            torch.tensor([0.1, 0.4, 1.0])[tier],
            uniform(batch, servers) * 10 * busy,
            torch.where(busy, torch.tensor([100.0, 200.0, 400.0])[tier], torch.tensor([30.0, 50.0, 80.0])[tier]),
            0.06 * (uniform(batch, servers) < 0.8),
        ),
        dim=-1,
    )
    server[:, 1:][uniform(batch, servers - 1) < empty] = 0
    return torch.cat((task, server.flatten(1)), 1)


def random_rows(method: str, batch: int, servers: int, seed: int = 0, empty: float = 0.0) -> Tensor:
    """(batch, width) of the feature set that a method sees, about the means of its features; a share of slots empty."""
    spec, generator = input_spec(TrialConfig.of(method)), torch.Generator().manual_seed(seed)
    task, server = (
        torch.tensor(mean) + torch.tensor(std) * torch.randn(*shape, len(mean), generator=generator)
        for mean, std, shape in (
            (spec.task_mean, spec.task_std, (batch,)),
            (spec.server_mean, spec.server_std, (batch, servers)),
        )
    )
    server[:, :, spec.server_capacity] = server[:, :, spec.server_capacity].abs() + 0.1
    server[:, 1:][torch.rand(batch, servers - 1, generator=generator) < empty] = 0
    return torch.cat((task, server.flatten(1)), 1)


def fit_of(obs: Tensor) -> np.ndarray:
    """(batch, 1, servers) uint8: how each server of `random_observations` is for the task."""
    server = obs[:, 5:].unflatten(1, (-1, 5)).numpy()
    large = (server[..., 0] > 0) & (server[..., 1] >= obs[:, 1, None].numpy())
    return np.where(large, np.where(server[..., 2] > 0, TAKEN, OPEN), CLOSED).astype(np.uint8)[:, None]


def random_mask(batch: int, servers: int, seed: int = 0) -> Tensor:
    """(batch, servers) bool, about half of it True; row 0 is all False."""
    mask = torch.rand(batch, servers, generator=torch.Generator().manual_seed(seed)) < 0.5
    mask[0] = False
    return mask


def random_network(seed: int = 0, method: str = "scale", **sizes: float) -> Network:
    """The network of a trial with every parameter drawn, biases and norms too, so that each has an effect."""
    torch.manual_seed(seed)
    return perturbed(build_network(TrialConfig.of(method, network=sizes)))


def perturbed(network: Network, by: float = 0.1) -> Network:
    """The same, after a random step of each parameter."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return network
