"""What a workload must be: its shapes, its numbers and its edges; and why a task fits no server."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import ClusterConfig
from rllib_scale.config.base import MAX_NUMBER
from rllib_scale.config.cluster import MAX_LABELS
from rllib_scale.errors import UserError, choice_error
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS

if TYPE_CHECKING:
    from rllib_scale.workloads.model import Workload


def check_shapes(workload: Workload) -> None:
    """Check that its arrays belong together, and that each workflow has a task.

    Raises:
        UserError: naming the first mistake.
    """
    for name, offsets, rows in (
        ("task_offsets", workload.task_offsets, workload.num_tasks),
        ("edge_offsets", workload.edge_offsets, len(workload.edges)),
    ):
        if offsets.shape != (workload.num_workflows + 1,) or offsets[0] != 0 or offsets[-1] != rows:
            raise UserError(f"{name} must hold {workload.num_workflows + 1} values from 0 to {rows}")
        if (np.diff(offsets) < 0).any():
            raise UserError(f"{name} must not decrease")
    for name in (*TASK_FIELDS, "labels", "places"):
        if getattr(workload, name).shape != (workload.num_tasks,):
            raise UserError(f"{name} must hold {workload.num_tasks} values, one a task")
    for name in ("session", "deadline_s"):
        if getattr(workload, name).shape != (workload.num_workflows,):
            raise UserError(f"{name} must hold {workload.num_workflows} values, one a workflow")
    if workload.edge_gb.shape != (len(workload.edges),):
        raise UserError(f"edge_gb must hold {len(workload.edges)} values, one an edge")
    for workflow in np.flatnonzero(np.diff(workload.task_offsets) == 0)[:1]:
        raise UserError(f"workflow {workflow}: no tasks: at least one is needed")


def check_values(workload: Workload) -> None:
    """Check that its numbers are possible.

    Raises:
        UserError: naming the first mistake.
    """
    possible = (workload.arrival_s >= 0) & (workload.arrival_s <= MAX_NUMBER)
    for workflow in np.flatnonzero(~possible)[:1]:
        value = workload.arrival_s[workflow]
        raise UserError(f"workflow {workflow}: arrival_s must be from 0 to {MAX_NUMBER:g} (got {value})")
    for workflow in np.flatnonzero(workload.session < 0)[:1]:
        raise UserError(f"workflow {workflow}: session must be at least 0 (got {workload.session[workflow]})")
    if len(workload.label_names) > MAX_LABELS:
        raise UserError(f"{len(workload.label_names)} different labels of tasks; valid: at most {MAX_LABELS}")
    for row in np.flatnonzero(workload.labels >> len(workload.label_names))[:1]:
        task = workload.task_name(row)
        raise UserError(f"{task}: labels {workload.labels[row]:#b}: has a bit without a name in label_names")
    for row in np.flatnonzero(workload.places < 1)[:1]:
        raise UserError(f"{workload.task_name(row)}: places must be at least 1 (got {workload.places[row]})")
    for name in TASK_FIELDS:
        values = getattr(workload, name)
        least = 1 / MAX_NUMBER if name == "compute_gflop" else 0.0
        possible = (values == 0) | (values >= least) & (values <= MAX_NUMBER)
        for row in np.flatnonzero(~possible)[:1]:
            limits = f"{'0 or ' if least else ''}from {least:g} to {MAX_NUMBER:g}"
            raise UserError(f"{workload.task_name(row)}: {name} must be {limits} (got {values[row]})")
    for workflow in np.flatnonzero(~(workload.deadline_s >= 1 / MAX_NUMBER))[:1]:
        value = workload.deadline_s[workflow]
        raise UserError(f"workflow {workflow}: deadline_s must be at least {1 / MAX_NUMBER:g} (got {value})")


def check_edges(workload: Workload) -> None:
    """Check that its edges, which are sorted, are unique, name tasks and form no cycle.

    Raises:
        UserError: naming the first mistake.
    """
    workflow = workload.workflow_of_edge()
    num_tasks = np.diff(workload.task_offsets)[workflow]
    unknown = np.any((workload.edges < 0) | (workload.edges >= num_tasks[:, None]), axis=1)
    itself = workload.edges[:, 0] == workload.edges[:, 1]
    twice = np.zeros(len(workload.edges), dtype=bool)  # sorted: duplicates are neighbours
    twice[1:] = (workflow[1:] == workflow[:-1]) & np.all(workload.edges[1:] == workload.edges[:-1], axis=1)
    for row in np.flatnonzero(unknown | itself | twice)[:1]:
        edge, where = workload.edges[row].tolist(), f"workflow {workflow[row]}, edge {workload.edges[row].tolist()}"
        if unknown[row]:
            task = next(i for i in edge if not 0 <= i < num_tasks[row])
            raise UserError(f"{where}: unknown task {task}; valid: 0 to {num_tasks[row] - 1}")
        raise UserError(f"{where}: a task cannot need itself" if itself[row] else f"{where}: appears twice")
    for row in np.flatnonzero((workload.edge_gb < 0) | (workload.edge_gb > MAX_NUMBER))[:1]:
        where = f"workflow {workflow[row]}, edge {workload.edges[row].tolist()}"
        raise UserError(f"{where}: must move from 0 to {MAX_NUMBER:g} GB (got {workload.edge_gb[row]})")
    # Only a workflow with an edge to a lower index can have a cycle.
    for w in np.unique(workflow[workload.edges[:, 0] > workload.edges[:, 1]]):
        edges = workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]]
        cycle = find_cycle(edges, range(workload.task_offsets[w + 1] - workload.task_offsets[w]))
        if cycle:
            raise UserError(f"workflow {w}: the edges form a cycle: {cycle}")


def no_server_text(memory_gb: float, places: int, labels: Sequence[str], cluster: ClusterConfig) -> str:
    """Why a task fits no server of a cluster."""
    if missing := [label for label in labels if label not in cluster.label_names]:
        return str(choice_error("label", missing[0], cluster.label_names or ("none",)))
    alike = [tier for tier in cluster.tiers if set(labels) <= set(tier.labels)]
    if not alike:
        return f"labels are {', '.join(labels)}, and no server has them all"
    those = f"server with its labels ({', '.join(labels)})" if labels else "server"
    most = max(tier.max_concurrent for tier in alike)
    if places > most:
        return f"places is {places}, the largest {those} has max_concurrent {most}; tiers: {cluster.tier_counts}"
    largest = max(tier.memory_gb for tier in alike if tier.max_concurrent >= places)
    of_those = f"{those} of so many places" if places > 1 else those
    return f"memory_gb is {memory_gb}, the largest {of_those} has {largest}; tiers: {cluster.tier_counts}"


def find_cycle(edges: NDArray[np.int64], names: Sequence[Any]) -> str:
    """A cycle of edges (E, 2) by the names of its tasks, shortened if it is long; empty if there is none."""
    if (edges[:, 0] < edges[:, 1]).all():
        return ""
    graph: TopologicalSorter[int] = TopologicalSorter()
    for predecessor, successor in edges.tolist():
        graph.add(successor, predecessor)
    try:
        graph.prepare()
    except CycleError as error:
        cycle = error.args[1][:-1]
        first = cycle.index(min(cycle))
        shown = [f"{names[task]!s:.60}" for task in (*cycle[first:], *cycle[: first + 1])]
        if len(shown) > 10:
            shown = [*shown[:5], f"({len(shown) - 9} more)", *shown[-4:]]
        return " -> ".join(shown)
    return ""
