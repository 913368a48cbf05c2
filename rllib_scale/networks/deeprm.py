"""The network of `deeprm`: an image of cluster and queue, one hidden layer, a choice of task and server, or none.

Source: H. Mao, M. Alizadeh, I. Menache and S. Kandula, Resource management with deep reinforcement learning, HotNets
2016, sec. 3. analysis/studies/league/README.md says what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rllib_scale.config import ClusterConfig, ObservationConfig
from rllib_scale.config.network import DeepRMConfig
from rllib_scale.networks.decima import entropy, pick
from rllib_scale.networks.inputs import MASKED
from rllib_scale.observation.starting import Starting


@dataclass(frozen=True, eq=False)
class Image:
    """The input of `deeprm` at one moment.

    Attributes:
        pixels: (2N + 2M + 1, T) float32, from 0 to 1: until when each server has no place free; its memory in use until
            its next task ends; demand and memory of the queue's tasks; how many wait beyond it.
        may: (M N + 1,) bool: which actions there are; task k of the queue on server j is k N + j, the last one is none.
        queue: (M,) the tasks of the queue, rows of `Snapshot.ready`; -1 where fewer wait.
    """

    pixels: np.ndarray
    may: np.ndarray
    queue: np.ndarray


@dataclass(frozen=True, eq=False)
class DeepRMStep:
    """One choice: the image before it, the action, the task (a row of `Snapshot.ready`; -1: none) and the server."""

    image: Image
    action: int
    task: int
    server: int


class DeepRM(nn.Module):
    """One hidden layer over the image, for N servers.

    Args:
        observation: normalisers of what it sees.
        cluster: whose servers it knows, by their number.
        sizes: of image and layer.
    """

    def __init__(self, observation: ObservationConfig, cluster: ClusterConfig, sizes: DeepRMConfig) -> None:
        super().__init__()
        self.sizes, self.num_servers = sizes, cluster.num_rows
        self.memory_gb = observation.memory_max_gb
        self.slowest = min(tier.compute_gflops for tier in cluster.tiers)
        self.step_s = sizes.step_s or observation.task_compute_max_gflop / self.slowest / sizes.time_steps
        cells = (2 * self.num_servers + 2 * sizes.queue + 1) * sizes.time_steps
        self.hidden = nn.Linear(cells, sizes.hidden)
        self.actions = nn.Linear(sizes.hidden, sizes.queue * self.num_servers + 1)

    def logs(self, images: Sequence[Image]) -> Tensor:
        """(B, M N + 1) log-probabilities of the actions; MASKED or less where there is none."""
        pixels = torch.from_numpy(np.stack([image.pixels for image in images])).flatten(1)
        logits = self.actions(torch.relu(self.hidden(pixels)))
        may = torch.from_numpy(np.stack([image.may for image in images]))
        return torch.log_softmax(torch.where(may, logits, MASKED), dim=1)

    # ------------------------------------------------------------------ as a policy asks it

    def look(self, now: Starting, before: DeepRMStep | None) -> Image:
        """The input at one moment; tasks started in it are in the image."""
        snapshot, servers, m = now.snapshot, now.servers, self.sizes.queue
        ready = snapshot.ready
        left = np.flatnonzero(now.waits)
        first = left[np.lexsort((ready["task"][left], ready["workflow"][left], ready["ready_s"][left]))]
        queue = np.full(m, -1)
        queue[: len(first)] = first[:m]
        there = queue >= 0
        columns, t = self.sizes.time_steps, np.arange(self.sizes.time_steps)
        runs = np.maximum(servers.wait, np.where(servers.next_end < np.inf, servers.next_end, 0.0))
        full, busy = (np.clip(times[:, None] / self.step_s - t, 0.0, 1.0) for times in (servers.wait, runs))
        in_use = 1.0 - servers.free / np.where(snapshot.memory_gb > 0, snapshot.memory_gb, np.inf)
        lengths = np.where(there, ready["compute_gflop"][queue], 0.0) / self.slowest / self.step_s
        sizes = np.where(there, ready["memory_gb"][queue], 0.0) / self.memory_gb * columns
        backlog = max(0, len(first) - m) / self.sizes.backlog * columns
        bars = np.concatenate([lengths, sizes, [backlog]])
        pixels = np.concatenate([full, busy * in_use[:, None], np.clip(bars[:, None] - t, 0.0, 1.0)])
        may = np.zeros(m * self.num_servers + 1, dtype=bool)
        may[:-1] = (now.can_start[queue] & there[:, None]).ravel()
        # Without running tasks no further event is certain, so waiting could deadlock.
        may[-1] = bool(now.started) or len(snapshot.running) > 0 or not may.any()
        return Image(pixels.astype(np.float32), may, queue)

    def choose(self, moments: Sequence[Starting], looks: Sequence[Image], draws: np.ndarray | None) -> list[DeepRMStep]:
        """One action in each moment, the likeliest or, with draws (B, 2) uniform in [0, 1), by its probability."""
        chosen = pick(self.logs(looks), None if draws is None else draws[:, 0])
        steps = []
        for image, action in zip(looks, chosen, strict=True):
            k, server = divmod(action, self.num_servers)
            none = action == len(image.may) - 1
            steps.append(DeepRMStep(image, action, -1 if none else int(image.queue[k]), -1 if none else server))
        return steps

    def log_probabilities(self, steps: Sequence[DeepRMStep]) -> tuple[Tensor, Tensor]:
        """(B,) log-probabilities of actions, and (B,) the entropies of their choice [nat]."""
        logs = self.logs([step.image for step in steps])
        return logs[torch.arange(len(steps)), torch.tensor([step.action for step in steps])], entropy(logs)
