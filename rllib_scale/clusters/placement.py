"""How many trainings fit on the nodes that Ray has now."""

from __future__ import annotations

from collections.abc import Callable

from rllib_scale.config import TrialResources
from rllib_scale.config.plan import cpus_per_trial
from rllib_scale.errors import UserError

STARTING = "starting: imports, and compilation once after an installation, up to a minute"
"""Why a training that has its CPUs reports no epoch yet."""


def trials_at_once(resources: TrialResources, joined: bool) -> int | None:
    """How many trainings fit side by side on a local Ray; None on a cluster, which may grow.

    Raises:
        UserError: not even one fits.
    """
    if joined:
        return None
    needed, cpus = cpus_per_trial(resources), sum(_cpus_of_nodes())
    if needed > cpus:
        raise UserError(
            f"resources: a training needs {needed:g} CPUs, {resources.cpus:g} for its process and 1 for each of its "
            f"{resources.env_runners} environment runners and {resources.learners} remote learners; this machine has "
            f"{cpus:g}"
        )
    return int(cpus / needed)


def why_waiting(resources: TrialResources, at_once: int | None) -> Callable[[int], str]:
    """A function from the number of running trainings to the reason why the others wait."""
    needed = cpus_per_trial(resources)

    def say(running: int) -> str:
        if at_once is not None:  # no other job uses a local Ray
            return f"{at_once} at once" if running >= at_once else STARTING
        import ray

        nodes, free = _cpus_of_nodes(), ray.available_resources().get("CPU", 0.0)
        largest = max(nodes, default=0.0)
        if free >= needed and largest >= resources.cpus:
            return STARTING
        return f"needs {needed:g} CPUs, {free:g} of {sum(nodes):g} are free, the largest node has {largest:g}"

    return say


def _cpus_of_nodes() -> list[float]:
    import ray

    return [float(node["Resources"].get("CPU", 0.0)) for node in ray.nodes() if node["Alive"]]
