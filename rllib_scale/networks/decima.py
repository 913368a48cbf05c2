"""The graph network of `decima`: which task starts next, then on which server.

Source: H. Mao, M. Schwarzkopf, S. B. Venkatakrishnan, Z. Meng and M. Alizadeh, Learning scheduling algorithms for data
processing clusters, SIGCOMM 2019, arXiv 1810.01963, sec. 5.1 and 5.2.
analysis/studies/league/README.md says what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from rllib_scale.config import ObservationConfig
from rllib_scale.config.network import DecimaConfig
from rllib_scale.networks.graph import NODE, PAIR, SERVER, Graph, after_start, graph_of, pairs_of
from rllib_scale.networks.inputs import MASKED
from rllib_scale.observation.starting import Starting


def layers(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """Linear layers with leaky ReLU between them."""
    sizes = [inputs, *hidden, outputs]
    parts: list[nn.Module] = []
    for before, after in pairwise(sizes):
        parts += [nn.Linear(before, after), nn.LeakyReLU()]
    return nn.Sequential(*parts[:-1])


def pass_messages(
    x: Tensor,
    edges: np.ndarray,
    level: np.ndarray,
    f: Callable[[Tensor], Tensor],
    g: Callable[[Tensor], Tensor],
) -> Tensor:
    """Embeddings e_v = g(sum of f(e_u) over the successors u of v) + x_v, sinks first [Decima, eq. 1]; of a sink x_v.

    Args:
        x: (V, d) what is known of each node alone.
        edges: (E, 2) predecessor, successor.
        level: (V,) edges on the longest path to a sink, or any numbers that fall along every edge.
        f: of embeddings (E, d), what a successor says.
        g: of sums (V, d), what is made of it.
    """
    e, of_edges = x, level[edges[:, 0]]
    for now in np.unique(of_edges):
        here = edges[of_edges == now]
        nodes, place = np.unique(here[:, 0], return_inverse=True)
        said = f(e[torch.from_numpy(here[:, 1])])
        total = said.new_zeros(len(nodes), said.shape[1]).index_add(0, torch.from_numpy(place.reshape(-1)), said)
        e = e.index_add(0, torch.from_numpy(nodes), g(total))
    return e


def sum_by(values: Tensor, group: np.ndarray, groups: int) -> Tensor:
    """(groups, d) sums of the rows of values (V, d) by their group (V,)."""
    return values.new_zeros(groups, values.shape[1]).index_add(0, torch.from_numpy(group), values)


@dataclass(frozen=True, eq=False)
class DecimaStep:
    """One start: the graph before it, the task (a row of `Snapshot.ready`), the server, and what decided on that."""

    graph: Graph
    task: int
    server: int
    pairs: np.ndarray  # (N, PAIR)
    can_start: np.ndarray  # (N,) bool


class Embedded:
    """Several graphs side by side, embedded. Shapes: B graphs, Rmax tasks that wait in one of them at most."""

    def __init__(self, network: Decima, graphs: Sequence[Graph]) -> None:
        sizes = np.array([len(graph.nodes) for graph in graphs])
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        jobs = np.array([int(graph.workflow.max()) + 1 for graph in graphs])
        first_job = np.concatenate([[0], np.cumsum(jobs)[:-1]])
        self.job = np.concatenate([g.workflow + start for g, start in zip(graphs, first_job, strict=True)])
        edges = np.concatenate([g.edges + start for g, start in zip(graphs, first, strict=True)])
        level = np.concatenate([g.level for g in graphs])
        nodes = torch.from_numpy(np.concatenate([g.nodes for g in graphs]))
        self.waiting = [g.waiting + start for g, start in zip(graphs, first, strict=True)]
        e = pass_messages(network.prepare(nodes), edges, level, network.f_node, network.g_node)
        self.e = torch.cat([nodes, e], dim=1)
        self.of_graph = np.repeat(np.arange(len(graphs)), jobs)
        self.y = network.g_job(sum_by(network.f_job(self.e), self.job, len(self.of_graph)))
        self.z = network.g_all(sum_by(network.f_all(self.y), self.of_graph, len(graphs)))

    def around(self, nodes: np.ndarray) -> Tensor:
        """(K, ...) what is known of some nodes: their own features and embedding, the workflow's, the whole's."""
        job = self.job[nodes]
        of = torch.from_numpy(self.of_graph[job])
        return torch.cat([self.e[torch.from_numpy(nodes)], self.y[torch.from_numpy(job)], self.z[of]], dim=1)


class Decima(nn.Module):
    """Scores tasks, and servers for the chosen one, of any number of workflows, tasks and servers.

    Args:
        observation: normalisers of what it sees.
        sizes: of its layers.
    """

    def __init__(self, observation: ObservationConfig, sizes: DecimaConfig) -> None:
        super().__init__()
        self.observation = observation
        d, hidden, around = sizes.embedding_dim, sizes.hidden, len(NODE) + 3 * sizes.embedding_dim
        self.prepare = layers(len(NODE), hidden, d)
        self.f_node, self.g_node = layers(d, hidden, d), layers(d, hidden, d)
        self.f_job, self.g_job = layers(len(NODE) + d, hidden, d), layers(d, hidden, d)
        self.f_all, self.g_all = layers(d, hidden, d), layers(d, hidden, d)
        self.score_task = layers(around, sizes.head_hidden, 1)
        self.score_row = layers(around + len(SERVER) + len(PAIR), sizes.head_hidden, 1)

    def task_logs(self, embedded: Embedded, graphs: Sequence[Graph]) -> Tensor:
        """(B, Rmax) log-probabilities of the tasks that wait; MASKED or less where no server is open for one."""
        widest = max(len(g.waiting) for g in graphs)
        scores = self.score_task(embedded.around(np.concatenate(embedded.waiting)))[:, 0]
        place = [row * widest + np.arange(len(g.waiting)) for row, g in enumerate(graphs)]
        closed = np.full(len(graphs) * widest, MASKED, dtype=np.float32)
        closed[np.concatenate(place)] = np.where(np.concatenate([g.startable for g in graphs]), 0.0, MASKED)
        logits = torch.from_numpy(closed).index_add(0, torch.from_numpy(np.concatenate(place)), scores)
        return torch.log_softmax(logits.view(len(graphs), widest), dim=1)

    def server_logs(self, around: Tensor, servers: np.ndarray, pairs: np.ndarray, can_start: np.ndarray) -> Tensor:
        """(K, N) log-probabilities of the servers for some tasks; MASKED or less where one is not open.

        Args:
            around: (K, ...) of the tasks, as `Embedded.around`.
            servers: (K, N, SERVER).
            pairs: (K, N, PAIR).
            can_start: (K, N) bool.
        """
        seen = torch.from_numpy(np.concatenate([servers, pairs], axis=2))
        logits = self.score_row(torch.cat([around[:, None].expand(-1, seen.shape[1], -1), seen], dim=2))[..., 0]
        return torch.log_softmax(torch.where(torch.from_numpy(can_start), logits, MASKED), dim=1)

    # ------------------------------------------------------------------ as a policy asks it

    def look(self, now: Starting, before: DecimaStep | None) -> Graph:
        """The input at one moment; `before` is the last start in it."""
        if before is None:
            return graph_of(now, self.observation)
        return after_start(before.graph, now, self.observation)

    def choose(self, moments: Sequence[Starting], looks: Sequence[Graph], draws: np.ndarray | None) -> list[DecimaStep]:
        """One start in each moment, the likeliest or, with draws (B, 2) uniform in [0, 1), by its probability."""
        embedded = Embedded(self, looks)
        draws_task, draws_server = (None, None) if draws is None else draws.T
        tasks = pick(self.task_logs(embedded, looks), draws_task)
        of_tasks = zip(moments, tasks, strict=True)
        pairs = np.concatenate([pairs_of(now, [task], self.observation) for now, task in of_tasks])
        can = np.stack([now.can_start[task] for now, task in zip(moments, tasks, strict=True)])
        nodes = np.array([w[task] for w, task in zip(embedded.waiting, tasks, strict=True)])
        logs = self.server_logs(embedded.around(nodes), np.stack([g.servers for g in looks]), pairs, can)
        chosen = pick(logs, draws_server)
        return [DecimaStep(*each) for each in zip(looks, tasks, chosen, pairs, can, strict=True)]

    def log_probabilities(self, steps: Sequence[DecimaStep]) -> tuple[Tensor, Tensor]:
        """(B,) log-probabilities of starts, and (B,) entropies of the choice of the task, then of its server [nat]."""
        graphs = [step.graph for step in steps]
        embedded = Embedded(self, graphs)
        of_tasks = self.task_logs(embedded, graphs)
        nodes = np.array([w[step.task] for w, step in zip(embedded.waiting, steps, strict=True)])
        servers = np.stack([g.servers for g in graphs])
        pairs, can = np.stack([step.pairs for step in steps]), np.stack([step.can_start for step in steps])
        of_servers = self.server_logs(embedded.around(nodes), servers, pairs, can)
        total = _at(of_tasks, [step.task for step in steps]) + _at(of_servers, [step.server for step in steps])
        return total, entropy(of_tasks) + entropy(of_servers)


def pick(logs: Tensor, draws: np.ndarray | None) -> list[int]:
    """One column of each row of log-probabilities (B, A): the likeliest, the first of equals, or by a draw (B,)."""
    if draws is None:
        return [int(at) for at in logs.argmax(dim=1)]
    total = np.cumsum(np.exp(logs.detach().double().numpy()), axis=1)
    return [int(np.searchsorted(line, draw * line[-1], side="right")) for line, draw in zip(total, draws, strict=True)]


def entropy(logs: Tensor) -> Tensor:
    """(B,) entropy of distributions by their log-probabilities (B, A) [nat]."""
    return -(logs.exp() * logs).sum(dim=1)


def _at(logs: Tensor, columns: Sequence[int]) -> Tensor:
    return logs[torch.arange(len(logs)), torch.tensor(columns)]
