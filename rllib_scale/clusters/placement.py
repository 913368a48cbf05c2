"""Where trainings fit: the CPUs of the cluster's nodes, to which an autoscaler may add some."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

from rllib_scale.config import TrialResources
from rllib_scale.config.plan import cpus_per_trial
from rllib_scale.errors import UserError

STARTING = "starting: Python's imports, and once after an installation its compiler, up to a minute"
"""Why a training that has its room reports no epoch yet."""


@dataclass(frozen=True)
class Room:
    """CPUs of the nodes that trainings run on.

    Attributes:
        nodes: CPUs of each node that is there.
        grows: whether an autoscaler may add nodes. Of what size and how many it tells nobody.
    """

    nodes: tuple[float, ...]
    grows: bool = False

    def __str__(self) -> str:
        counts = {cpus: self.nodes.count(cpus) for cpus in sorted(set(self.nodes), reverse=True) if cpus > 0}
        nodes = ", ".join(f"{count} x {cpus:g}" for cpus, count in counts.items())
        return f"{sum(self.nodes):g} CPUs ({nodes or 'none'})"


def cluster_room() -> Room:
    """The room of the Ray that this process is connected to."""
    import ray

    nodes = (float(node["Resources"].get("CPU", 0.0)) for node in ray.nodes() if node["Alive"])
    return Room(tuple(nodes), grows=_autoscales())


def _autoscales() -> bool:
    """Whether an autoscaler works for this Ray."""
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.autoscaler.v2.utils import is_autoscaler_v2
    from ray.experimental.internal_kv import _internal_kv_get

    if is_autoscaler_v2(fetch_from_server=True):  # that of `ray up` and KubeRay
        return True
    status = json.loads(_internal_kv_get(DEBUG_AUTOSCALING_STATUS) or "{}")
    types = (status.get("autoscaler_report") or {}).get("node_type_mapping") or {}
    # Where the first autoscaler only looks on, each node is a type of its own, named by the node.
    return any(kind != f"node_{node}" for node, kind in types.items())


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
            f"the largest node has {math.floor(largest)}"
        )
    raise UserError(
        f"resources: a training needs {cpus_per_trial(resources):g} CPUs, {resources.cpus:g} for its learner and 1 for "
        f"each of its {resources.env_runners} environment runners; the cluster has {room}"
    )


def trials_at_once(resources: TrialResources, room: Room) -> int | None:
    """How many trainings fit side by side; None where nobody knows how far the cluster grows.

    A training's learner goes to one node, its environment runners, of one CPU each, wherever there is one.
    """
    if room.grows:
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


def why_waiting(resources: TrialResources, at_once: int | None, room: Room) -> Callable[[int], str]:
    """A function that says, given how many trainings run, what the others wait for."""

    def say(running: int) -> str:
        if at_once is not None and running >= at_once:
            return f"{at_once} at once"
        import ray

        available = ray._private.state.available_resources_per_node()
        free = [float(node.get("CPU", 0.0)) for node in available.values()]
        if _place(resources, list(free)) or (_started_here() and _place(resources, list(room.nodes))):
            return STARTING
        text = (
            f"needs {cpus_per_trial(resources):g} CPUs, the largest node has {max(free, default=0.0):g} free, "
            f"all nodes {sum(free):g}"
        )
        if not room.grows:
            return text
        return text + (
            "; the autoscaler has no room for it either" if _turned_down() else "; the autoscaler may add nodes"
        )

    return say


def _started_here() -> bool:
    """Whether this process started its Ray: nobody else's work is in the room that is not free."""
    import ray

    node = ray._private.worker._global_node
    return node is not None and node.is_head()


def _turned_down() -> bool:
    """Whether the autoscaler, version 2, has no nodes to add for a training: they are too small, or all there are."""
    import ray
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    status = GetClusterStatusReply.FromString(ray._private.worker.global_worker.gcs_client.get_cluster_status())
    return bool(status.autoscaling_state.infeasible_gang_resource_requests)
