"""Min-min and max-min: all waiting tasks are matched to rows one by one, anew at each event.

Sources: O. H. Ibarra, C. E. Kim, Heuristic algorithms for scheduling independent tasks on nonidentical processors,
Journal of the ACM 24(2), 1977; M. Maheswaran, S. Ali, H. J. Siegel, D. Hensgen, R. F. Freund, Dynamic mapping of a
class of independent tasks onto heterogeneous computing systems, JPDC 59(2), 1999: their batch mode, where a task that
waits for a row is matched again. Tasks of workflows are independent once they are ready.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.schedulers.reserving import MatchingDispatcher, Rows


class MinMin(MatchingDispatcher):
    """The task that can finish first is matched to the row where it does, and so on; ties go to the first arrival."""

    name = "min-min"
    description = "of all waiting tasks that which can finish first to where it does, busy rows awaited, and so on"
    last_first = False

    def match(self, rows: Rows) -> list[tuple[int, int, int]]:
        """See `MatchingDispatcher.match`."""
        memory = rows.waiting["memory_gb"]

        def ends_on(js: np.ndarray) -> np.ndarray:
            """(R, J) seconds until each task would end on these rows; inf where it does not fit."""
            lacks_memory = rows.is_open[js] & (memory[:, None] > rows.free[rows.host[js]])
            next_end = rows.next_end[rows.host[js]]
            ahead = np.where(lacks_memory & np.isfinite(next_end), next_end, rows.wait[js])
            return np.where(rows.fits[:, js], ahead + rows.lasts[:, js], np.inf)

        ends = ends_on(np.arange(len(rows.capacity)))
        left = rows.fits.any(axis=1)
        answers = []
        while rows.is_open.any() and left.any():
            best = ends.argmin(axis=1)
            earliest = ends[np.arange(len(ends)), best]
            if self.last_first:
                k = int(np.where(left, earliest, -np.inf).argmax())
            else:
                k = int(np.where(left, earliest, np.inf).argmin())
            j = int(best[k])
            answers.append(rows.take(k, j))
            rows.is_open[j], left[k] = False, False
            rows.wait[j] += rows.lasts[k, j]
            neighbours = np.flatnonzero(rows.host == rows.host[j])
            ends[:, neighbours] = ends_on(neighbours)
        return answers


class MaxMin(MinMin):
    """As min-min, but of the earliest finishes the latest is matched first: long tasks are not left to the end."""

    name = "max-min"
    description = "as min-min, but the task whose earliest finish is latest is matched first"
    last_first = True
