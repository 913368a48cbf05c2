"""Tasks that do nothing but take the time that they should, and pass on bytes for their outputs."""

from __future__ import annotations

from typing import Any

from rllib_scale.config import ClusterConfig
from rllib_scale.errors import UserError
from rllib_scale.live.servers import Call
from rllib_scale.live.worker import sleep_for
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.model import Workload

MAX_S = 1e7
"""The longest that a run may wait for one thing: 116 days."""
MAX_BYTES = 1e10
"""The largest output."""


class Surrogates:
    """Makes the call of an attempt: it sleeps for the demand.

    Args:
        time_scale: seconds that one second of the problem takes.
        bytes_per_gb: that really are in an output for each GB of it in the problem.
    """

    def __init__(self, time_scale: float = 1.0, bytes_per_gb: float = 1e6) -> None:
        self.time_scale, self.bytes_per_gb = time_scale, bytes_per_gb

    def check(self, workload: Workload, cluster: ClusterConfig, source: str) -> None:
        """Check that no wait is too long and no output too large to be meant.

        Raises:
            UserError: naming the longest wait, or the largest output.
        """
        slowest = min(tier.compute_gflops / (1 + tier.slowdown * (tier.max_concurrent - 1)) for tier in cluster.tiers)
        arrival_s, delay_s, compute_gflop, moved_gb = (
            float(values.max(initial=0.0))
            for values in (workload.arrival_s, workload.delay_s, workload.compute_gflop, workload.moved_gb)
        )
        for what, seconds in (
            ("the last workflow arrives after", arrival_s),
            ("the longest release delay is", delay_s),
            ("the longest task takes", compute_gflop / slowest),
            ("the longest transfer takes", moved_gb / cluster.bandwidth_gb_s),
        ):
            if seconds * self.time_scale > MAX_S:
                raise UserError(
                    f"{source}: {what} {seconds * self.time_scale:.3g} s at time scale {self.time_scale:g}; "
                    f"valid: at most {MAX_S:g} s"
                )
        largest = float(workload.output_gb.max(initial=0.0)) * self.bytes_per_gb
        if largest > MAX_BYTES:
            raise UserError(
                f"{source}: the largest output has {largest:.3g} bytes at {self.bytes_per_gb:g} bytes for each GB; "
                f"valid: at most {MAX_BYTES:g}"
            )

    def __call__(self, attempt: Attempt, inputs: list[Any]) -> Call:
        """See `backend.Work`."""
        seconds = attempt.expected_s * self.time_scale
        size = int(attempt.output_gb * self.bytes_per_gb)
        return Call(sleep_for, (seconds, size, *inputs), seconds=seconds)
