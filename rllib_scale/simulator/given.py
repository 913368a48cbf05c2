"""Given workloads, in place of those that are drawn as they arrive: rows of arrays that all have the same room.

Row 0 is the one that a whole batch was given. Where a config says that workloads come from a trace or a fitted table,
environment b plays row 1 + b, which is written whenever it begins an episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_scale.simulator.state import Problem
from rllib_scale.workloads.generators import TASK_DEMAND
from rllib_scale.workloads.model import Workload


def no_workloads() -> dict[str, np.ndarray]:
    """The fields of `Problem` that hold given workloads, empty."""
    return {
        "given_count": np.zeros(1, dtype=np.int64),
        "given_arrival": np.zeros((1, 0)),
        "given_tasks": np.zeros((1, 0), dtype=TASK_DEMAND),
        "given_task_offsets": np.zeros((1, 1), dtype=np.int64),
        "given_edges": np.zeros((1, 0, 2), dtype=np.int64),
        "given_edge_offsets": np.zeros((1, 1), dtype=np.int64),
    }


def with_workloads(problem: Problem, workloads: Mapping[int, Workload]) -> Problem:
    """The problem with workloads in some rows, overwritten in place but where more room is needed.

    Also with room in which the largest workflow of any row is linked.
    """
    rows = max(len(problem.given_count), 1 + max(workloads, default=0))
    most, tasks, edges = (
        max((count(w) for w in workloads.values()), default=0)
        for count in (lambda w: w.num_workflows, lambda w: w.num_tasks, lambda w: len(w.edges))
    )
    problem = problem._replace(
        given_count=_with_room(problem.given_count, rows),
        given_arrival=_with_room(problem.given_arrival, rows, most),
        given_tasks=_with_room(problem.given_tasks, rows, tasks),
        given_task_offsets=_with_room(problem.given_task_offsets, rows, most + 1),
        given_edges=_with_room(problem.given_edges, rows, edges, 2),
        given_edge_offsets=_with_room(problem.given_edge_offsets, rows, most + 1),
    )
    for row, workload in workloads.items():
        count = workload.num_workflows
        problem.given_count[row] = count
        problem.given_arrival[row, :count] = workload.arrival_s
        problem.given_task_offsets[row, : count + 1] = workload.task_offsets
        problem.given_edge_offsets[row, : count + 1] = workload.edge_offsets
        problem.given_edges[row, : len(workload.edges)] = workload.edges
        demand = problem.given_tasks[row, : workload.num_tasks]
        demand["compute"], demand["memory"] = workload.compute_gflop, workload.memory_gb
        demand["output"], demand["delay"] = workload.output_gb, workload.delay_s
    largest, widest = len(problem.order_scratch[0]), len(problem.edge_scratch)
    for row in workloads or range(rows):
        count = problem.given_count[row]
        largest = max(largest, int(np.diff(problem.given_task_offsets[row, : count + 1]).max(initial=0)))
        widest = max(widest, int(np.diff(problem.given_edge_offsets[row, : count + 1]).max(initial=0)))
    if largest > len(problem.order_scratch[0]):
        problem = problem._replace(order_scratch=np.zeros((2, largest), dtype=np.int64))
    if widest > len(problem.edge_scratch):
        problem = problem._replace(edge_scratch=np.zeros((widest, 2), dtype=np.int64))
    return problem


def _with_room(array: np.ndarray, *sizes: int) -> np.ndarray:
    """The array itself, or a copy of at least those sizes: along the second axis at least twice what it was."""
    if all(have >= need for have, need in zip(array.shape, sizes, strict=True)):
        return array
    shape: list[Any] = [max(have, need) for have, need in zip(array.shape, sizes, strict=True)]
    if len(shape) > 1 and shape[1] > array.shape[1]:
        shape[1] = max(shape[1], 2 * array.shape[1])
    larger = np.zeros(shape, dtype=array.dtype)
    larger[tuple(slice(n) for n in array.shape)] = array
    return larger
