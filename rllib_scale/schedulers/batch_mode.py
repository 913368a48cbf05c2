"""Min-min and max-min: all waiting tasks are matched to servers one by one, anew at each event.

Sources: O. H. Ibarra, C. E. Kim, Heuristic algorithms for scheduling independent tasks on nonidentical processors,
Journal of the ACM 24(2), 1977; M. Maheswaran, S. Ali, H. J. Siegel, D. Hensgen, R. F. Freund, Dynamic mapping of a
class of independent tasks onto heterogeneous computing systems, JPDC 59(2), 1999: their batch mode, where a task that
waits for a server is matched again. Tasks of workflows are independent once they are ready.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.schedulers.reserving import Matching, MatchingDispatcher


class MinMin(MatchingDispatcher):
    """The task that can finish first is matched to where it does, and so on; ties go to the first arrival."""

    name = "min-min"
    description = "of all waiting tasks that which can finish first to where it does, busy servers awaited, and so on"
    last_first = False

    def match(self, matching: Matching) -> list[tuple[int, int, int]]:
        """See `MatchingDispatcher.match`."""
        ends, left = matching.ahead() + matching.lasts, np.asarray(matching.has_room.any(axis=1))
        answers = []
        while matching.servers.is_open.any() and left.any():
            best = ends.argmin(axis=1)
            earliest = ends[np.arange(len(ends)), best]
            if self.last_first:
                k = int(np.where(left, earliest, -np.inf).argmax())
            else:
                k = int(np.where(left, earliest, np.inf).argmin())
            j = int(best[k])
            answers.append(matching.give(k, j))
            left[k], at = False, slice(j, j + 1)
            # Only the server that was given away has changed.
            ends[:, at] = matching.ahead(at) + matching.lasts[:, at]
        return answers


class MaxMin(MinMin):
    """As min-min, but of the earliest finishes the latest is matched first: long tasks are not left to the end."""

    name = "max-min"
    description = "as min-min, but the task whose earliest finish is latest is matched first"
    last_first = True
