"""HEFT and CPOP from the formulas of their paper (Topcuoglu et al. 2002, sec. 3 and 4), slowly and recursively."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

Placed = dict[int, tuple[int, float, float]]
"""Task -> server, actual start (AST) and finish time (AFT)."""


class Textbook:
    """Tasks n with costs w [n][p] and mean costs, edges with communication costs c; no cost on one server."""

    def __init__(self, w: np.ndarray, edges: np.ndarray, c: np.ndarray) -> None:
        self.w, self.tasks, self.servers = w, range(w.shape[0]), range(w.shape[1])
        self.c = {(int(i), int(j)): float(cost) for (i, j), cost in zip(edges, c, strict=True)}
        self.mean = [float(np.mean(w[n])) for n in self.tasks]
        self.succ = {n: [j for i, j in self.c if i == n] for n in self.tasks}
        self.pred = {n: [i for i, j in self.c if j == n] for n in self.tasks}
        self.rank_u: Callable[[int], float] = cache(self._rank_u)
        self.rank_d: Callable[[int], float] = cache(self._rank_d)

    def _rank_u(self, n: int) -> float:
        """Eq. 2 and 3: w_i + max over successors of c_ij + rank_u (n_j)."""
        return self.mean[n] + max((self.c[n, j] + self.rank_u(j) for j in self.succ[n]), default=0.0)

    def _rank_d(self, n: int) -> float:
        """Eq. 4: max over predecessors of rank_d (n_j) + w_j + c_ji."""
        return max((self.rank_d(i) + self.mean[i] + self.c[i, n] for i in self.pred[n]), default=0.0)

    def est(self, n: int, p: int, placed: Placed) -> float:
        """Eq. 5, insertion-based: the first slot of w [n][p] once the data of all predecessors are there."""
        ready = max((placed[m][2] + self.c[m, n] * (placed[m][0] != p) for m in self.pred[n]), default=0.0)
        busy = sorted((start, end) for server, start, end in placed.values() if server == p)
        for at in sorted({ready, *(end for _, end in busy if end > ready)}):
            if all(at + self.w[n, p] <= start or end <= at for start, end in busy):
                return at
        raise AssertionError("there is a slot after the last task")

    def place(self, n: int, servers: list[int], placed: Placed) -> None:
        """To the server of the least EFT (eq. 6)."""
        p = min(servers, key=lambda p: self.est(n, p, placed) + self.w[n, p])
        placed[n] = (p, self.est(n, p, placed), self.est(n, p, placed) + self.w[n, p])

    def heft(self) -> Placed:
        """Fig. 3."""
        placed: Placed = {}
        for n in sorted(self.tasks, key=self.rank_u, reverse=True):
            self.place(n, list(self.servers), placed)
        return placed

    def cpop(self) -> Placed:
        """Fig. 4; of several entry tasks, which the paper joins by a pseudo entry, the path leads from the longest."""
        priority = {n: self.rank_u(n) + self.rank_d(n) for n in self.tasks}
        length = max(priority[n] for n in self.tasks if not self.pred[n])
        at = next(n for n in self.tasks if not self.pred[n] and priority[n] == length)
        critical = [at]
        while self.succ[at]:
            at = max(self.succ[at], key=lambda j, i=at: self.c[i, j] + self.rank_u(j))  # type: ignore[misc]
            critical.append(at)
            assert np.isclose(priority[at], length)  # |CP|, as the paper says it
        p_cp = min(self.servers, key=lambda p: float(self.w[critical, p].sum()))
        placed: Placed = {}
        while len(placed) < len(self.tasks):
            ready = [n for n in self.tasks if n not in placed and all(m in placed for m in self.pred[n])]
            n = max(ready, key=lambda n: priority[n])
            self.place(n, [p_cp] if n in critical else list(self.servers), placed)
        return placed
