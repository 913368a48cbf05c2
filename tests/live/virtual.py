"""The ledger as a backend in virtual time: every task takes exactly as long as it should. No Ray."""

from __future__ import annotations

from rllib_scale.config import EnvConfig
from rllib_scale.live.flows import Flow
from rllib_scale.live.ledger import Ledger
from rllib_scale.observation.backend import Answer
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.workloads.model import Workload


class VirtualBackend:
    def __init__(self, env: EnvConfig, workload: Workload) -> None:
        self.ledger, self.now = Ledger(env), 0.0
        for number in range(workload.num_workflows):
            self.ledger.expect(Flow.of(workload, number))

    def wait(self) -> Snapshot | None:
        ledger = self.ledger
        ledger.close_round()
        if not ledger.runs and ledger.next_timer_s == float("inf"):
            ledger.start_any(self.now)
        while ledger.flows or ledger.pending:
            runs = ledger.running()
            self.now = min(ledger.next_timer_s, min((a.expected_end_s for a in runs), default=float("inf")))
            for attempt in runs:
                if attempt.expected_end_s == self.now:
                    ledger.complete(attempt, self.now)
            ledger.ring(self.now)
            if ledger.waits:
                return ledger.snapshot(self.now)
        return None

    def snapshot(self) -> Snapshot:
        return self.ledger.snapshot(self.now)

    def apply(self, answer: Answer) -> str:
        return self.ledger.answer(*answer, self.now)[0]
