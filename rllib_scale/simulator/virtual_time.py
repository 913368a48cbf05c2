"""Virtual time for an engine whose events come from outside: a live cluster without Ray, as it should be."""

from __future__ import annotations

import math
from collections.abc import Callable

from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.model import Workload


class VirtualTime:
    """Tells an engine when workflows arrive and tasks end: what `EventEngine.play` waits for.

    Args:
        engine: of the cluster.
        workload: what arrives.
        end_s: of an attempt [s]; by default it takes as long as it should.
        horizon_s: end of the run [s]; inf: when all workflows have ended.
    """

    def __init__(
        self,
        engine: EventEngine,
        workload: Workload,
        end_s: Callable[[Attempt], float] = lambda attempt: attempt.expected_end_s,
        horizon_s: float = math.inf,
    ) -> None:
        self.engine, self.workload, self.end_s, self.horizon_s = engine, workload, end_s, horizon_s

    @property
    def _next_arrival_s(self) -> float:
        number = self.engine.next_number
        return float(self.workload.arrival_s[number]) if number < self.workload.num_workflows else math.inf

    def __call__(self) -> bool:
        """Let time run to the next event; False: there is none any more."""
        engine = self.engine
        if not engine.attempts and min(engine.next_release_s, self._next_arrival_s) == math.inf:
            engine.start_any()
        ends = [(self.end_s(attempt), attempt) for attempt in engine.running()]
        now = min([engine.next_release_s, self._next_arrival_s, *(end for end, _ in ends)])
        if now == math.inf:
            return False
        engine.advance(min(now, self.horizon_s))
        if now >= self.horizon_s:
            return False
        for end, attempt in ends:
            if end <= now:
                engine.ended(attempt)
        while self._next_arrival_s <= now:
            number = engine.next_number
            engine.arrive(number, self._next_arrival_s, *self.workload.demands_and_edges(number, engine.config.cluster))
        return True
