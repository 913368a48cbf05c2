"""Tasks that do nothing but take the time that they should, and pass on bytes for their outputs."""

from __future__ import annotations

from typing import Any

from rllib_scale.live.ledger import Attempt
from rllib_scale.live.servers import Call
from rllib_scale.live.worker import sleep_for


class Surrogates:
    """Makes the call of an attempt: it sleeps for the demand.

    Args:
        time_scale: seconds that one second of the problem takes.
        bytes_per_gb: that really are in an output for each GB of it in the problem.
    """

    def __init__(self, time_scale: float = 1.0, bytes_per_gb: float = 1e6) -> None:
        self.time_scale, self.bytes_per_gb = time_scale, bytes_per_gb

    def __call__(self, attempt: Attempt, inputs: list[Any]) -> Call:
        """See `backend.Work`."""
        seconds = (attempt.transfer_s + attempt.execution_s) * self.time_scale
        size = int(attempt.flow.output_gb[attempt.task] * self.bytes_per_gb)
        return Call(sleep_for, (seconds, size, *inputs), seconds=seconds)
