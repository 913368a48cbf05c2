"""Where trainings fit: the CPUs of the cluster's nodes, now and as far as its autoscaler may add some."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rllib_scale.config import TrialResources
from rllib_scale.errors import UserError
from rllib_scale.experiments.plan import cpus_per_trial


@dataclass(frozen=True)
class Room:
    """CPUs of the nodes that trainings may come to run on.

    Attributes:
        nodes: CPUs of each node.
        grows: whether an autoscaler may add nodes; with `nodes` those of the cluster at its largest, or, where its
            limits are not known, those that are there.
        limit_known: whether there will never be more than `nodes`.
    """

    nodes: tuple[float, ...]
    grows: bool = False
    limit_known: bool = True

    def __str__(self) -> str:
        counts = {cpus: self.nodes.count(cpus) for cpus in sorted(set(self.nodes), reverse=True) if cpus > 0}
        nodes = ", ".join(f"{count} x {cpus:g}" for cpus, count in counts.items())
        return f"{sum(self.nodes):g} CPUs ({nodes or 'none'})" + (" at its largest" if self.grows else "")


def cluster_room() -> Room:
    """The room of the Ray that this process is connected to."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    there = tuple(float(node["Resources"].get("CPU", 0.0)) for node in nodes)
    config = ray._private.state.state.get_cluster_config()
    groups = [group for group in config.node_group_configs if group.max_count] if config is not None else []
    if groups:
        largest = [float(group.resources.get("CPU", 0)) for group in groups for _ in range(group.max_count)]
        heads = (float(n["Resources"].get("CPU", 0.0)) for n in nodes if "node:__internal_head__" in n["Resources"])
        return Room((*heads, *largest), grows=True)
    # Autoscalers that report no limits mark their nodes with the group that they belong to.
    if any(node.get("Labels", {}).get("ray.io/node-group") for node in nodes):
        return Room(there, grows=True, limit_known=False)
    return Room(there)


def check_fits(resources: TrialResources, room: Room) -> None:
    """Refuse a sweep no training of which could ever start.

    Raises:
        UserError: with the numbers.
    """
    if trials_at_once(resources, room) != 0:
        return
    largest = max(room.nodes, default=0.0)
    if resources.cpus > largest:
        raise UserError(
            f"resources.cpus: a training needs {resources.cpus:g} CPUs on one node, "
            f"the largest node has {math.floor(largest)}" + (" at the cluster's largest" if room.grows else "")
        )
    raise UserError(
        f"resources: a training needs {cpus_per_trial(resources):g} CPUs, {resources.cpus:g} for its learner and 1 for "
        f"each of its {resources.env_runners} environment runners; the cluster has {room}"
    )


def trials_at_once(resources: TrialResources, room: Room) -> int | None:
    """How many trainings fit side by side; None where nobody knows how far the cluster grows.

    A training's learner goes to one node, its environment runners, of one CPU each, wherever there is one.
    """
    if not room.limit_known:
        return None
    free, count = list(room.nodes), 0
    while _place(resources, free):
        count += 1
    return count


def _place(resources: TrialResources, free: list[float]) -> bool:
    """Take one training's CPUs from `free`, where it fits: its learner first, then its runners beside it, if possible.

    The learner takes the node with the least room that leaves the most whole CPUs in all.
    """
    best: tuple[int, float, int] | None = None
    for index, cpus in enumerate(free):
        if cpus >= resources.cpus:
            whole = sum(map(math.floor, free)) - math.floor(cpus) + math.floor(cpus - resources.cpus)
            if whole >= resources.env_runners and (best is None or (-whole, cpus) < best[:2]):
                best = (-whole, cpus, index)
    if best is None:
        return False
    learner = best[2]
    free[learner] -= resources.cpus
    wanted = resources.env_runners
    for index in sorted(range(len(free)), key=lambda i: (i != learner, free[i])):
        taken = min(wanted, math.floor(free[index]))
        free[index] -= taken
        wanted -= taken
    return True


def why_waiting(resources: TrialResources, at_once: int | None) -> Callable[[int], str]:
    """A function that says, given how many trainings run, what the others wait for."""

    def say(running: int) -> str:
        if at_once is not None and running >= at_once:
            return f"{at_once} at once"
        import ray

        available = ray._private.state.available_resources_per_node()
        free = [float(node.get("CPU", 0.0)) for node in available.values()]
        return (
            f"needs {cpus_per_trial(resources):g} CPUs, the largest node has {max(free, default=0.0):g} free, "
            f"all nodes {sum(free):g}"
        )

    return say
