"""How many trainings fit on the nodes that Ray has now."""

from __future__ import annotations

from collections.abc import Callable

from rllib_scale.config import TrialResources
from rllib_scale.config.plan import cpus_per_trial
from rllib_scale.errors import UserError

STARTING = "imports, and compiles once after an installation, up to a minute"
"""What a training does that has its CPUs and no epoch yet."""


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


def waiting(resources: TrialResources, at_once: int | None) -> Callable[[int], tuple[int, str]]:
    """A function from the number of running trainings to how many start now, and why the others wait.

    Args:
        resources: of each training.
        at_once: how many trainings run side by side at most; None on a cluster without such a limit.
    """
    needed = cpus_per_trial(resources)
    each = f"each needs {needed:g} CPU" + ("" if needed == 1 else "s")

    def ask(running: int) -> tuple[int, str]:
        import ray

        starting = max(0, _placed() - running)
        if at_once is not None and running + starting >= at_once:
            return starting, f"{at_once} run at once"
        nodes, free = _cpus_of_nodes(), ray.available_resources().get("CPU", 0.0)
        largest = max(nodes, default=0.0)
        if largest == 0:
            return starting, f"no node has joined yet; {each}"
        if largest < resources.cpus:
            return starting, f"each needs a node with {resources.cpus:g} CPUs; the largest has {largest:g}"
        if free < needed:
            return starting, f"{each}; {free:g} of {sum(nodes):g} are free"
        return starting, "Ray is placing them"

    return ask


def _placed() -> int:
    """How many trainings of this process have got their CPUs."""
    import ray

    job = ray.get_runtime_context().get_job_id()  # with which the ids of its placement groups end
    groups = ray.util.placement_group_table().values()
    return sum(group["state"] == "CREATED" and group["placement_group_id"].endswith(job) for group in groups)


def _cpus_of_nodes() -> list[float]:
    import ray

    return [float(node["Resources"].get("CPU", 0.0)) for node in ray.nodes() if node["Alive"]]
