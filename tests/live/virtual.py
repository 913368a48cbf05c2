"""The ledger as a backend in virtual time: every task takes exactly as long as it should, or times as long. No Ray."""

from __future__ import annotations

from collections.abc import Callable

from rllib_scale.config import EnvConfig
from rllib_scale.live.flows import Flow
from rllib_scale.live.ledger import Attempt, Ledger
from rllib_scale.observation.backend import Answer
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.workloads.model import Workload


class VirtualBackend:
    def __init__(
        self, env: EnvConfig, workload: Workload, times: Callable[[Attempt], float] = lambda attempt: 1.0
    ) -> None:
        self.ledger, self.now, self.times = Ledger(env), 0.0, times
        for number in range(workload.num_workflows):
            self.ledger.expect(Flow.of(workload, number))

    def wait(self) -> Snapshot | None:
        ledger = self.ledger
        ledger.close_round()
        if not ledger.runs and ledger.next_timer_s == float("inf"):
            ledger.start_any(self.now)
        while ledger.flows or ledger.pending:
            runs = ledger.running()
            ends = [a.start_s + (a.transfer_s + a.execution_s) * self.times(a) for a in runs]
            self.now = min([ledger.next_timer_s, *ends])
            for attempt, end in zip(runs, ends, strict=True):
                if end == self.now:
                    ledger.complete(attempt, self.now)
            ledger.ring(self.now)
            if ledger.waits:
                return ledger.snapshot(self.now)
        return None

    def snapshot(self) -> Snapshot:
        return self.ledger.snapshot(self.now)

    def apply(self, answer: Answer) -> str:
        return self.ledger.answer(*answer, self.now)[0]
