"""What decima and deeprm would do in a moment, in one table."""

from __future__ import annotations

import numpy as np
import torch

from rllib_scale.networks.decima import Decima, Embedded
from rllib_scale.networks.deeprm import DeepRM
from rllib_scale.networks.graph import graph_of, pairs_of
from rllib_scale.observation.starting import Starting


@torch.no_grad()
def probabilities(network: Decima | DeepRM, now: Starting) -> tuple[np.ndarray, float]:
    """(R, N) of each task that waits on each server, and of none of them; together 1 where some task can start."""
    if isinstance(network, DeepRM):
        image = network.look(now, None)
        p = torch.exp(network.logs([image]))[0].double().numpy()
        found, there = np.zeros(now.can_start.shape), image.queue >= 0
        found[image.queue[there]] = p[:-1].reshape(-1, found.shape[1])[there]
        return found, float(p[-1])
    graph = graph_of(now, network.observation)
    embedded = Embedded(network, [graph])
    everyone = np.arange(len(graph.waiting))
    servers = np.broadcast_to(graph.servers, (len(everyone), *graph.servers.shape))
    pairs = pairs_of(now, everyone, network.observation)
    of_servers = network.server_logs(embedded.around(graph.waiting), servers, pairs, now.can_start)
    of_tasks = network.task_logs(embedded, [graph])[0][:, None]
    return np.where(graph.startable[:, None], torch.exp(of_tasks + of_servers).double().numpy(), 0.0), 0.0
