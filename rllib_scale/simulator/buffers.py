"""The arrays of a batch: sized for a start, doubled when full."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.simulator import state as layout
from rllib_scale.simulator.writers import write_static

FIRST_SLOTS = 8
FIRST_LOG_ROWS = 128


def allocate(config: EnvConfig, num_envs: int, problem: layout.Problem) -> layout.State:
    """Arrays for that many environments, none of which has begun."""
    b, n, k, hosts = num_envs, config.cluster.num_slots, config.decision.offered, len(problem.at_random)
    slots = FIRST_SLOTS
    tasks = slots << (len(problem.order_scratch[0]) - 1).bit_length()
    moved = len(problem.edge_scratch) * (1 + int(problem.parameters[0]["from_all"]))
    edges = slots << (moved - 1).bit_length()
    observation = np.zeros((b, FEATURE_SETS[config.observation.feature_set].width(n, k)), dtype=np.float32)
    for features in observation:
        write_static(features, k, problem.servers, problem.parameters[0])
    env = np.zeros(b, dtype=layout.ENV)
    env["given"] = layout.FREE
    env["plays_next"] = layout.FREE if config.workload.drawn_on_arrival else layout.OWN + np.arange(b)
    return layout.State(
        env=env,
        slots=np.zeros((b, slots), dtype=layout.SLOT),
        tasks=np.zeros((b, tasks), dtype=layout.TASK),
        details=np.zeros((b, tasks), dtype=layout.DETAIL),
        edges=np.zeros((b, edges), dtype=np.int64),
        free=np.zeros((b, slots), dtype=np.int64),
        blocks=np.full((b, 2, layout.CLASSES), layout.FREE, dtype=np.int64),
        ready=np.zeros((b, tasks), dtype=np.int64),
        offered=np.zeros((b, k), dtype=np.int64),
        aside=np.zeros((b, tasks), dtype=np.int64),
        released=np.zeros((b, tasks), dtype=np.int64),
        hosts=np.zeros((b, hosts), dtype=layout.HOST),
        finish=np.full((b, n), np.inf),
        expected=np.full((b, n), np.inf),
        running=np.full((b, n), layout.FREE, dtype=np.int64),
        attempt=np.zeros((b, n), dtype=np.int64),
        room=np.full((b, n), -1.0),
        limit=np.full((b, n), -1.0),
        extra=np.zeros((b, n)),
        reserved=np.zeros((b, n), dtype=np.int64),
        queue=np.zeros((b, n), dtype=np.int64),
        busy=np.zeros((b, n)),
        log=np.zeros((b, FIRST_LOG_ROWS), dtype=layout.LOG),
        observation=observation,
        fit=np.zeros((b, k, n), dtype=np.uint8),
        outcome=np.zeros(b, dtype=np.int64),
        elapsed=np.zeros(b),
        reward=np.zeros(b),
        done=np.ones(b, dtype=bool),
    )


def grown(old: layout.State, need: int, plain: bool) -> layout.State:
    """The same with twice the room in the buffer that a kernel asks for: NEEDS_LOG, _EDGES, _TASKS or _SLOTS.

    Only what is in use is copied: memory that is not touched costs nothing. Of `plain` problems no details are in use.
    """
    env = old.env
    if need == layout.NEEDS_LOG:
        return old._replace(log=_enlarged(old.log, env["num_started"]))
    if need == layout.NEEDS_EDGES:
        return old._replace(edges=_enlarged(old.edges, env["edge_top"]))
    if need == layout.NEEDS_TASKS:
        return old._replace(
            tasks=_enlarged(old.tasks, env["task_top"]),
            details=_enlarged(old.details, env["task_top"] * (not plain)),
            ready=_enlarged(old.ready, env["num_ready"]),
            aside=_enlarged(old.aside, env["num_aside"]),
            released=_enlarged(old.released, env["num_released"]),
        )
    # New slots go below the free ones: which slot a workflow gets must not depend on the rest of the batch.
    slots = old.slots.shape[1]
    added = np.tile(np.arange(2 * slots - 1, slots - 1, -1), (len(env), 1))
    new_slots = _enlarged(old.slots, np.full(len(env), slots))
    new_slots["workflow"][:, slots:] = layout.FREE
    env["num_free"] += slots
    return old._replace(slots=new_slots, free=np.concatenate([added, old.free], axis=1))


def _enlarged(array: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Twice as wide along the second axis, with the first `used` (B,) of each row copied."""
    larger = np.zeros((array.shape[0], 2 * array.shape[1], *array.shape[2:]), dtype=array.dtype)
    for b, width in enumerate(used.tolist()):
        larger[b, :width] = array[b, :width]
    return larger
