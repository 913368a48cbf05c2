"""Placement of trainings on the nodes that Ray has now."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rllib_scale.config import TrialResources
from rllib_scale.config.plan import cpus_per_trial, needs
from rllib_scale.errors import UserError

STARTING = "imports, and compiles once after an installation, up to a minute"
"""Status text of a training that has its CPUs and no epoch yet."""


def trials_at_once(trainings: Iterable[TrialResources], joined: bool) -> int | None:
    """Maximum number of concurrent trainings on a local Ray; None on a cluster, which may grow.

    Args:
        trainings: the resources of each.
        joined: whether it is a cluster.

    Raises:
        UserError: one does not fit.
    """
    by_need = sorted(trainings, key=cpus_per_trial) or [TrialResources()]
    if joined:
        return None
    most, cpus = by_need[-1], sum(_cpus_of_nodes())
    if (needed := cpus_per_trial(most)) > cpus:
        raise UserError(
            f"resources: a training needs {needed:g} CPUs, {most.cpus:g} for its process and 1 for each of its "
            f"{most.env_runners} environment runners and {most.learners} remote learners; this machine has {cpus:g}"
        )
    return int(cpus / cpus_per_trial(by_need[0]))


def waiting(trainings: Iterable[TrialResources], at_once: int | None) -> Callable[[int], tuple[int, str]]:
    """A function from the number of running trainings to how many start now, and why the others wait.

    Args:
        trainings: the resources of each.
        at_once: how many trainings run side by side at most; None on a cluster without such a limit.
    """
    by_need = sorted(trainings, key=cpus_per_trial)
    least, process = cpus_per_trial(by_need[0]), min(resources.cpus for resources in by_need)
    each = f"each needs {needs(by_need)}"

    def ask(running: int) -> tuple[int, str]:
        import ray

        starting = max(0, _placed() - running)
        if at_once is not None and running + starting >= at_once:
            return starting, f"{at_once} run at once"
        nodes, free = _cpus_of_nodes(), ray.available_resources().get("CPU", 0.0)
        largest = max(nodes, default=0.0)
        if largest == 0:
            return starting, f"no node has joined yet; {each}"
        if largest < process:
            return starting, f"each needs a node with {process:g} CPUs; the largest has {largest:g}"
        if free < least:
            return starting, f"{each}; {free:g} of {sum(nodes):g} are free"
        return starting, "Ray is placing them"

    return ask


def _placed() -> int:
    """Number of this process's trainings that have their CPUs."""
    import ray

    job = ray.get_runtime_context().get_job_id()  # with which the ids of its placement groups end
    groups = ray.util.placement_group_table().values()
    return sum(group["state"] == "CREATED" and group["placement_group_id"].endswith(job) for group in groups)


def _cpus_of_nodes() -> list[float]:
    import ray

    return [float(node["Resources"].get("CPU", 0.0)) for node in ray.nodes() if node["Alive"]]
