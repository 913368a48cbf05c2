"""What happens to all environments that play one workload alike, and so is nobody's merit.

Arrivals move a queue, and with it values, far more than any one decision does. Environments that are given the same
workload see the same arrivals: what their values gain and lose beyond expectation at one time, on average, is a
baseline that depends on the input and on nobody's own actions. Source: Mao, Venkatakrishnan, Schwarzkopf and
Alizadeh, Variance reduction for reinforcement learning in input-driven environments, ICLR 2019; here of residuals, so
that a baseline of the state stays what it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def common_part(
    residuals: NDArray[np.float64],
    clocks: NDArray[np.float64],
    elapsed: NDArray[np.float64],
    lengths: NDArray[np.int64],
    workloads: Sequence[int],
    done: Sequence[bool],
) -> NDArray[np.float64]:
    """(T,) of each step's residual: the mean of the others' of the same workload in the same time.

    Answers within a round take no time and have no part in it. Of those whose piece ends before a step does nothing is
    known then; where that holds for all others, or there are none, the part is 0.

    Args:
        residuals: (T,) reward and discounted next value, less the value.
        clocks: (T,) time at the end of the step, from the beginning of its episode [s].
        elapsed: (T,) time that the step took [s].
        lengths: (E,) steps of each piece of an episode; they sum to T.
        workloads: (E,) what each piece plays: pieces of one number share arrivals.
        done: (E,) whether the episode ended with the piece, so that nothing happens to it any more.
    """
    ends = np.cumsum(lengths)
    pieces = [slice(end - length, end) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
    sharing = defaultdict(list)
    for e, workload in enumerate(workloads):
        sharing[workload].append(e)
    moves = [np.flatnonzero(elapsed[piece] > 0) + piece.start for piece in pieces]
    sums = [np.concatenate([[0.0], np.cumsum(residuals[rows])]) for rows in moves]
    common = np.zeros(len(residuals))
    for e, rows in enumerate(moves):
        until = clocks[rows]
        since = np.concatenate([[-np.inf], until[:-1]])
        total, count = np.zeros(len(rows)), np.zeros(len(rows))
        for other in sharing[workloads[e]]:
            at = clocks[moves[other]]
            if other == e or not len(at):
                continue
            known = (until <= at[-1]) | done[other]
            gained = sums[other][np.searchsorted(at, until, "right")] - sums[other][np.searchsorted(at, since, "right")]
            total += np.where(known, gained, 0.0)
            count += known
        common[rows] = total / np.maximum(count, 1)
    return common
