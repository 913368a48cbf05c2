"""The servers of a live cluster: one Ray actor each, pinned to its node, with a thread for each place."""

from __future__ import annotations

import os
import pickle
import re
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rllib_scale.config import ClusterConfig, EnvConfig, TierConfig, WorkloadConfig
from rllib_scale.config.cluster import MAX_LABELS
from rllib_scale.errors import UserError
from rllib_scale.live.worker import Packed, Server, sleep_for
from rllib_scale.simulator.outside_state import check_information

GFLOPS_LABEL, NODE_ID_LABEL = "gflops", "ray.io/node-id"
"""Label of a Ray node that says how fast each of its CPUs is [GFLOPS]; without it: 1."""
BYTES_PER_GB = 1e9
SERVER_BYTES = 5e7
"""Memory of one actor's process that it shares with no other."""
_ACTOR = ray.remote(concurrency_groups={"control": 2})(Server)


class Call(NamedTuple):
    """A call on a server: a function and its arguments, object references among them."""

    function: Any  # a callable, the reference of one, or a Packed one
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}  # noqa: RUF012 (never written to)
    seconds: float | None = None  # for which it sleeps, where it is a surrogate
    timeout_s: float | None = None  # after so long its workflow is given up


class Servers:
    """The actors of a cluster. Servers are dealt out to the nodes in turn.

    Args:
        cluster: what servers there are.
        nodes: identities of the Ray nodes on which they are; None: all that are alive.

    Raises:
        UserError: there is no node.
    """

    def __init__(self, cluster: ClusterConfig, nodes: list[str] | None = None) -> None:
        nodes = alive() if nodes is None else nodes
        if not nodes:
            raise UserError("the Ray cluster has no node that is alive")
        self._places = [tier.max_concurrent for tier in cluster.tiers for _ in range(tier.count)]
        self.node = [nodes[number % len(nodes)] for number in range(len(self._places))]
        self._actors = [self._started(server) for server in range(len(self.node))]

    def _started(self, server: int) -> Any:
        return _ACTOR.options(
            num_cpus=0,
            max_concurrency=self._places[server],
            enable_task_events=False,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self.node[server], soft=False),
        ).remote()

    def ready(self, server: int) -> Any:
        """Reference to a Report, which is there once the server is, and has run a call."""
        return self.run(server, -1, Call(sleep_for, (0.0, 0)))[0]

    def run(self, server: int, attempt: int, call: Call) -> tuple[Any, Any]:
        """Start a call; returns references to its Report and to its output."""
        values, content = (*call.arguments, *call.keywords.values()), None
        if isinstance(call.function, Packed):
            content = call.function.content
        else:
            values = (call.function, *values)
        # All of ours in one argument: Ray binds and packs each argument, which is most of the cost of a call.
        header = pickle.dumps((attempt, content, tuple(call.keywords)))
        report, output = self._actors[server].run.remote(header, *values)
        return report, output

    def stop(self, server: int, attempt: int) -> None:
        """Ask a call to end."""
        self._actors[server].stop.remote(attempt)

    def kill(self, server: int) -> None:
        """End a server and all that runs on it."""
        ray.kill(self._actors[server])

    def start_anew(self, server: int) -> bool:
        """Start a server again that is gone; False: so is its node."""
        if self.node[server] not in alive():
            return False
        self._actors[server] = self._started(server)
        return True

    def close(self) -> None:
        """End all servers."""
        for actor in self._actors:
            ray.kill(actor)


def alive() -> list[str]:
    """Identities of the nodes that are alive, in a fixed order."""
    return sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])


def check_room(servers: int) -> None:
    """Check that this machine has memory for the processes of a number of servers.

    Raises:
        UserError: it does not.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if servers * SERVER_BYTES > memory:
        raise UserError(
            f"{servers:,} servers: each is a process of {SERVER_BYTES / 1e6:.0f} MB, and this machine has "
            f"{memory / BYTES_PER_GB:.0f} GB; valid: at most {int(memory / SERVER_BYTES):,}, or more on a Ray cluster "
            "(--address)"
        )


def nodes_as_servers(env: EnvConfig) -> tuple[EnvConfig, list[str]]:
    """The problem on servers that are the nodes of the Ray cluster, and their identities.

    A node with CPUs is one server: it runs as many tasks at once as it has CPUs, each at the speed that its label
    `gflops` says, and has the memory that Ray has on it. Its other labels are the server's, as `key=value`; of more
    than MAX_LABELS, keys with the most values, as names of hosts, are left out.

    Raises:
        UserError: no node has a CPU, or a label is no speed.
    """
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if not nodes:
        raise UserError("no node of the Ray cluster has a CPU")
    nodes.sort(key=lambda node: node["NodeID"])
    tiers: list[TierConfig] = []
    for node, labels in zip(nodes, _labels_of([node.get("Labels", {}) for node in nodes]), strict=True):
        label, resources = node.get("Labels", {}).get(GFLOPS_LABEL, "1"), node["Resources"]
        if not re.fullmatch(r"\d+(\.\d+)?", label) or float(label) <= 0:
            raise UserError(f"Ray node {node['NodeID'][:8]}: label {GFLOPS_LABEL}={label!r} must be a number above 0")
        tier = TierConfig(
            name=f"node{len(tiers)}",
            count=1,
            max_concurrent=int(resources["CPU"]),
            compute_gflops=float(label),
            memory_gb=max(1e-3, resources.get("memory", 0.0) / BYTES_PER_GB),
            labels=labels,
        )
        tiers.append(tier)
    cluster = env.cluster.model_copy(update={"tiers": tuple(tiers)})
    return for_servers(env, cluster), [node["NodeID"] for node in nodes]


def _labels_of(nodes: list[dict[str, str]]) -> list[tuple[str, ...]]:
    """Labels of servers from those of their nodes; see `nodes_as_servers`."""
    values: dict[str, set[str]] = {}
    for labels in nodes:
        for key in labels.keys() - {GFLOPS_LABEL, NODE_ID_LABEL}:
            values.setdefault(key, set()).add(labels[key])
    kept, left = set[str](), MAX_LABELS
    for key in sorted(values, key=lambda key: (len(values[key]), key)):
        left -= len(values[key])
        if left >= 0:
            kept.add(key)
    return [tuple(f"{key}={labels[key]}" for key in sorted(kept & labels.keys())) for labels in nodes]


def for_servers(env: EnvConfig, cluster: ClusterConfig) -> EnvConfig:
    """The problem on other servers; of its workload only what could be drawn, which must fit them, is another."""
    largest = cluster.largest_memory_gb
    memory_gb = {"mean": largest / 2, "std": largest / 4, "low": largest / 1000, "high": largest}
    workload = WorkloadConfig.model_validate(env.workload.model_dump() | {"memory_gb": memory_gb})
    return env.model_copy(update={"cluster": cluster, "workload": workload})


def check_live(env: EnvConfig) -> None:
    """Refuse a problem that has something which a live cluster has not.

    Raises:
        UserError: naming the setting.
    """
    if not env.cluster.changes.none:
        valid = "none: servers come and go as their Ray nodes do"
        raise UserError(f"cluster.changes: is not supported on a live cluster; valid: {valid}")
    check_information(env)
