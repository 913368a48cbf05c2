"""A live cluster in virtual time: every task takes exactly as long as it should, or times as long. No Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.live.flows import Flow
from rllib_scale.simulator.event_engine import Attempt, EventEngine
from rllib_scale.workloads.model import Workload


class VirtualBackend:
    """What a guard asks of a `RayBackend`."""

    def __init__(
        self, env: EnvConfig, workload: Workload, times: Callable[[Attempt], float] = lambda attempt: 1.0
    ) -> None:
        self.engine, self.times = EventEngine(env), times
        self.flows = {number: Flow.of(workload, number, env.cluster) for number in range(workload.num_workflows)}
        self.pending = [(flow.arrival_s, number) for number, flow in self.flows.items()]
        self.guard = "none"
        self.tell: Any = lambda what, about, now: None

    @property
    def now(self) -> float:
        return self.engine.now

    def more(self) -> bool:
        engine = self.engine
        arrival_s = self.pending[0][0] if self.pending else np.inf
        if not engine.attempts and min(engine.next_release_s, arrival_s) == np.inf:
            engine.start_any()
        ends = [(a.start_s + a.expected_s * self.times(a), a) for a in engine.running()]
        now = min([engine.next_release_s, arrival_s, *(end for end, _ in ends)])
        if now == np.inf:
            return False
        engine.advance(now)
        for end, attempt in ends:
            if end <= now:
                engine.ended(attempt)
                self.tell("end", (self.flows[attempt.workflow], attempt), now)
                if not engine.is_under_way(attempt.workflow):
                    del self.flows[attempt.workflow]
        while self.pending and self.pending[0][0] <= now:
            flow = self.flows[self.pending.pop(0)[1]]
            engine.arrive(flow.number, flow.arrival_s, flow.demands, flow.edges, flow.edge_gb)
        return True
