"""A live cluster in virtual time: every task takes exactly as long as it should, or times as long. No Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.live.flows import Flow
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.model import Workload


class VirtualBackend:
    """What a guard asks of a `RayBackend`.

    Args:
        env: the problem.
        workload: what arrives.
        times: how many times as long as it should an attempt takes.
        given_up_s: when some of the workflows are given up, by their numbers [s].
    """

    def __init__(
        self,
        env: EnvConfig,
        workload: Workload,
        times: Callable[[Attempt], float] = lambda attempt: 1.0,
        given_up_s: dict[int, float] | None = None,
    ) -> None:
        self.engine, self.times = EventEngine(env), times
        self.flows = {number: Flow.of(workload, number, env.cluster) for number in range(workload.num_workflows)}
        self.pending = [(flow.arrival_s, number) for number, flow in self.flows.items()]
        self.leaving = sorted((at, number) for number, at in (given_up_s or {}).items())
        self.guard, self.comparison = "none", None
        self.tell: Any = lambda what, about, now: None

    @property
    def now(self) -> float:
        return self.engine.now

    def more(self) -> bool:
        engine = self.engine
        given_s = [queue[0][0] if queue else np.inf for queue in (self.pending, self.leaving)]
        if not engine.attempts and min(engine.next_release_s, given_s[0]) == np.inf:
            engine.start_any()
        ends = [(a.start_s + a.expected_s * self.times(a), a) for a in engine.running()]
        now = min([engine.next_release_s, *given_s, *(end for end, _ in ends)])
        if now == np.inf:
            return False
        engine.advance(now)
        for end, attempt in ends:
            if end <= now:
                engine.ended(attempt)
                self.tell("ended", attempt, now)
                if not engine.is_under_way(attempt.workflow):
                    del self.flows[attempt.workflow]
        while self.leaving and self.leaving[0][0] <= now:
            self.give_up(self.leaving.pop(0)[1])
        while self.pending and self.pending[0][0] <= now:
            flow = self.flows[self.pending.pop(0)[1]]
            engine.arrive(flow.number, flow.arrival_s, flow.demands, flow.edges, flow.edge_gb)
            self.tell("arrive", flow, now)
        self.tell("round", None, now)
        return True

    def give_up(self, number: int) -> None:
        """Of a workflow that is under way; what runs of it stops at once."""
        if self.engine.is_under_way(number):
            runs = self.engine.give_up(number)
            self.tell("give_up", (self.flows.pop(number), runs), self.now)
            for attempt in runs:
                self.engine.stopped(attempt)
                self.tell("stopped", attempt, self.now)
