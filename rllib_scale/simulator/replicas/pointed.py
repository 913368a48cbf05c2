"""Which held call goes, or none, where a pointer network says it: the one of the largest logit.

Its query is what HELD_CALLS (`observation/replicas.py`) has of the fleet. Its keys are the candidates and, behind them,
"none", which is closed while a candidate fits a replica that has nothing to do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import rare
from rllib_scale.observation.replicas import HELD_CALLS
from rllib_scale.simulator.pointer import PointerWeights, Scratch, point
from rllib_scale.simulator.replicas.line import step_back
from rllib_scale.simulator.replicas.release import find_candidates, write_terms
from rllib_scale.simulator.replicas.state import CANDIDATES, FLAGS, NONE


class Pointing(NamedTuple):
    """A network, room for its decisions, and the first ones of the episode, which are kept."""

    weights: PointerWeights
    scratch: Scratch
    task: NDArray[np.float32]
    logits: NDArray[np.float32]
    rows: NDArray[np.float32]  # (L, W) observations
    answers: NDArray[np.int64]  # (L, 2) candidate, CANDIDATES for none; and whether one has to go
    decided: NDArray[np.int64]  # (1,) of them, those that there are


def pointing(weights: PointerWeights, kept: int = 0) -> Pointing:
    """A network that has decided nothing.

    Args:
        weights: its arrays; of NO_NETWORK: a rule decides, and no network.
        kept: decisions to keep.
    """
    rows, d, wide = CANDIDATES + 1, len(weights.pointer), weights.inner.shape[-1]
    f32: Any = np.float32
    return Pointing(
        weights,
        Scratch(
            *(np.zeros(shape, f32) for shape in ((HELD_CALLS.server_dim, rows), (d, rows), rows, rows, (5, d), wide))
        ),
        np.zeros(HELD_CALLS.head(), f32),
        np.zeros(rows, f32),
        np.zeros((kept, HELD_CALLS.width(rows)), f32),
        np.zeros((kept, 2), np.int64),
        np.zeros(1, np.int64),
    )


_DIMENSIONS = (2, 1, 2, 1, 2, 1, 4, 3, 4, 2, 3, 3, 2, 3, 2, 3, 2, 1, 2, 1)
_nothing: list[Any] = [*(np.zeros((0,) * n, np.float32) for n in _DIMENSIONS), 0, np.float32(0), np.float32(0)]
NO_NETWORK = PointerWeights(*_nothing)


@rare
def pick_by(network, fleet, known, gate, how):  # type: ignore[no-untyped-def]
    """The held call that goes, which stepped out of the line; or NONE. See `find_candidates`."""
    count, must = find_candidates(fleet, known, gate, how)
    if count == 0:
        step_back(fleet)
        return NONE
    write_terms(fleet, known, count)
    columns, logits = network.scratch.columns, network.logits
    for k in range(len(network.task)):
        network.task[k] = fleet.fleet_terms[1 + k]
    for at in range(count + 1):
        columns[0, at], columns[1, at] = 1.0, 0.0
        for c in range(FLAGS, len(columns)):
            columns[c, at] = fleet.call_terms[at, c - FLAGS] if at < count else 0.0
    columns[1, count] = 1.0
    point(network.task, count + 1, network.weights, network.scratch, logits)
    best = 0
    for at in range(1, count if must else count + 1):
        if logits[at] > logits[best]:
            best = at
    _keep(network, count, best, must)
    if best == count:
        step_back(fleet)
        return NONE
    return fleet.candidates[best]


@rare
def _keep(network, count, best, must):  # type: ignore[no-untyped-def]
    """Keep a decision, if there is room for it."""
    at, columns = network.decided[0], network.scratch.columns
    if at == len(network.rows):
        return
    network.decided[0] += 1
    row, head = network.rows[at], len(network.task)
    for k in range(head):
        row[k] = network.task[k]
    for k in range(count + 1):
        place = head + len(columns) * (k if k < count else CANDIDATES)
        for c in range(len(columns)):
            row[place + c] = columns[c, k]
    network.answers[at, 0], network.answers[at, 1] = best if best < count else CANDIDATES, must
