"""The arrays of a batch, which are enlarged where an episode needs more room."""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.simulator import state as layout
from rllib_scale.simulator.writers import write_static
from rllib_scale.workloads.arrivals import end_of_arrivals

FIRST_LOG_ROWS = 128
OF_TASKS = ("tasks", "details", "ready", "aside", "released")
"""Arrays with an entry for each task of an environment."""


def allocate(config: EnvConfig, num_envs: int, problem: layout.Problem) -> layout.State:
    """Arrays for that many environments, none of which has begun."""
    servers, candidates = len(problem.servers), config.decision.offered
    width = FEATURE_SETS[config.observation.feature_set].width(servers, candidates)
    sizes = {"B": num_envs, "N": servers, "P": len(problem.server_of), "K": candidates, "L": FIRST_LOG_ROWS, "X": width}
    sizes |= {"W": 1, "T": len(problem.demand), "E": _edges(len(problem.edges), problem)}
    arrays = {}
    for name, (dimensions, kind, first) in layout.arrays_in(layout.State).items():
        arrays[name] = np.zeros([sizes[each] for each in dimensions], dtype=kind)
        if first:
            arrays[name][...] = first
    for features in arrays["observation"]:
        write_static(features, candidates, problem.static_columns, problem.static, problem.parameters[0])
    return layout.State(**arrays)


def expected_sizes(config: EnvConfig, problem: layout.Problem) -> tuple[int, int, int]:
    """Workflows, tasks and edges that hardly any episode exceeds; of edges a bound."""
    # Arrivals are Poisson: four standard deviations above the mean number, sqrt(mean), are hardly ever passed.
    mean = config.arrival_rate * min(config.episode.horizon_s, end_of_arrivals(config))
    workflows = int(mean + 4 * math.sqrt(mean)) + 2
    tasks = workflows * (config.workload.min_tasks + config.workload.max_tasks) // 2 + len(problem.demand)
    return workflows, tasks, tasks * len(problem.edges) // len(problem.demand) + len(problem.edges)


def with_room(state: layout.State, problem: layout.Problem, workflows: int, tasks: int, edges: int) -> layout.State:
    """The arrays, enlarged to at least this number of workflows, tasks and edges in each environment."""
    edges = _edges(edges, problem)
    widths = {"workflows": workflows, "edges": edges, "moved": edges} | dict.fromkeys(OF_TASKS, tasks)
    larger = {
        name: _enlarged(array, width)
        for name, width in widths.items()
        if (array := getattr(state, name)).shape[1] < width
    }
    return state._replace(**larger) if larger else state


def with_log(state: layout.State, attempts: int) -> layout.State:
    """The arrays, with room for this number of attempts in each environment."""
    return state._replace(log=_enlarged(state.log, attempts))


def _edges(count: int, problem: layout.Problem) -> int:
    """Positions that this number of edges takes."""
    # Successors, and where input comes from all predecessors, these too.
    return count * (1 + int(problem.parameters[0]["from_all"]))


def _enlarged(array: np.ndarray, width: int) -> np.ndarray:
    """At least that wide along the second axis, and twice as wide as before; memory that is not touched costs none."""
    larger = np.zeros((len(array), max(width, 2 * array.shape[1])), dtype=array.dtype)
    larger[:, : array.shape[1]] = array
    return larger


def keep_unfinished(state: layout.State, per_edge: int) -> tuple[np.ndarray, int, int]:
    """Move the workflows of environment 0 that have not ended, or whose tasks still run, to the front, in their order.

    Args:
        state: with nothing on offer; its arrays are changed in place.
        per_edge: positions that an edge takes.

    Returns:
        Their former rows (K,), and how many task rows and edge positions they take.
    """
    env, workflows, tasks, details = state.env[0], state.workflows[0], state.tasks[0], state.details[0]
    running = state.running[0]
    arrived = workflows[: env["workflows_arrived"]]
    unfinished = arrived["num_completed"] < arrived["num_tasks"]
    unfinished[tasks["workflow"][running[running >= 0]]] = True  # given up, and not stopped yet
    kept = np.flatnonzero(unfinished)
    counts, former = arrived["num_tasks"][kept], arrived["first_task"][kept]
    rows = _ranges(former, counts)
    # How many edges each kept workflow has: the successors of its tasks.
    links = np.bincount(np.repeat(np.arange(len(kept)), counts), tasks["num_successors"][rows], len(kept))
    links = per_edge * links.astype(np.int64)
    edges = _ranges(tasks["first_successor"][former].astype(np.int64), links)
    row_of = np.full(len(tasks) + 1, layout.NONE, dtype=np.int64)  # of each former row; the last one is NONE's
    row_of[rows] = np.arange(len(rows))
    # By how much the edges of each workflow move: where they begin now, less where they began.
    shift = np.repeat(np.cumsum(links) - links - tasks["first_successor"][former], counts)
    state.edges[0, : len(edges)], state.moved[0, : len(edges)] = row_of[state.edges[0, edges]], state.moved[0, edges]
    tasks[: len(rows)], details[: len(rows)] = tasks[rows], details[rows]
    tasks, details = tasks[: len(rows)], details[: len(rows)]
    tasks["first_successor"] += shift.astype(np.int32)
    details["predecessors"] += shift.astype(np.int32)
    # All that names a task row is renamed; a row of NONE stays NONE, as the last entry says.
    tasks["first_predecessor"] = row_of[tasks["first_predecessor"]]
    tasks["workflow"] = np.repeat(np.arange(len(kept)), counts)
    for array, count in (("ready", "num_ready"), ("released", "num_released"), ("aside", "num_aside")):
        used = getattr(state, array)[0, : env[count]]
        used[:] = row_of[used]
    running[:] = row_of[running]
    workflows[: len(kept)] = arrived[kept]
    workflows["first_task"][: len(kept)] = np.cumsum(counts) - counts
    env["num_workflows"] = env["workflows_arrived"] = len(kept)
    live = workflows[: len(kept)]
    live = np.flatnonzero(live["num_completed"] < live["num_tasks"])
    env["first_live"] = live[0] if len(live) else len(kept)
    return kept, len(rows), len(edges)


def keep_running(state: layout.State) -> None:
    """Forget the attempts of environment 0 that have ended."""
    places = np.flatnonzero(state.running[0] >= 0)
    # The log stays in the order of start: attempts are told by their row.
    places = places[np.argsort(state.attempt[0, places])]
    state.log[0, : len(places)] = state.log[0, state.attempt[0, places]]
    state.attempt[0, places] = np.arange(len(places))
    state.env["num_started"][0] = len(places)


def _ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers first[k] to first[k] + counts[k] - 1 of each k, one behind the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - counts), counts)
