"""Summary of a workload on a cluster: its span, load, gaps and bytes, and warnings about its times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from rllib_scale.config import ClusterConfig
from rllib_scale.workloads.model import Floats, Workload

MOSTLY_EMPTY = 0.5
"""Share of the span without any workflow in progress from which on it is a warning."""
LATE_S, LATE_SPANS = 3600.0, 10.0
"""A first arrival after more than both, of the span of all arrivals, is a date or a time of day."""
UNIX_S, UNIX_MS = 1e8, 1e11
"""Clocks from here on are taken for Unix time in s, and in ms."""


@dataclass(frozen=True)
class Summary:
    """Numbers of a workload that is played from clock 0 on a cluster.

    Attributes:
        span_s: from clock 0 until the last workflow would be done if each ran alone on the slowest server [s].
        empty_share: part of that span without any workflow in progress.
        largest_gap_s: between two arrivals, or before the first [s].
        gap_from_s: when that gap began [s].
        load: work over capacity while workflows arrive; None where all arrive at once.
        work_s: work over the capacity of all servers [s].
        moved_gb: bytes along edges [GB].
        too_large: tasks that fit no server.
    """

    span_s: float
    empty_share: float
    largest_gap_s: float
    gap_from_s: float
    load: float | None
    work_s: float
    moved_gb: float
    too_large: int

    def rows(self) -> Iterator[tuple[str, str]]:
        """Names and values, with units, for a table."""
        yield "span", duration_text(self.span_s)
        yield "largest gap between arrivals", f"{duration_text(self.largest_gap_s)} from {self.gap_from_s:,.6g} s on"
        yield "load", "all arrive at once" if self.load is None else f"{self.load:.3g}"
        yield "work over capacity", duration_text(self.work_s)
        yield "moved along edges", f"{self.moved_gb:,.4g} GB"

    def warnings(self) -> Iterator[str]:
        """Warnings about probable mistakes, one line each."""
        if self.load is not None and self.load > 1:
            yield f"load {self.load:.3g}: more work arrives than the servers can do; waits grow as long as it arrives"
        if self.empty_share > MOSTLY_EMPTY:
            yield (
                f"no workflow is in progress for {self.empty_share:.0%} of {duration_text(self.span_s)}; the largest "
                f"gap is {duration_text(self.largest_gap_s)} from {self.gap_from_s:,.6g} s on: times are read as "
                "seconds of one clock"
            )
        if self.too_large:
            yield f"{self.too_large:,} tasks fit no server of this cluster"


def summarise(workload: Workload, cluster: ClusterConfig) -> Summary:
    """The summary of a workload with at least one workflow on a cluster."""
    slowest = min(tier.compute_gflops for tier in cluster.tiers)
    alone_s = np.add.reduceat(workload.compute_gflop / slowest + workload.delay_s, workload.task_offsets[:-1])
    until_s = np.maximum.accumulate(workload.arrival_s + alone_s)
    empty_s = np.maximum(0.0, workload.arrival_s - np.append(0.0, until_s[:-1]))
    gaps_s = np.diff(workload.arrival_s, prepend=0.0)
    widest = int(np.argmax(gaps_s))
    return Summary(
        span_s=float(until_s[-1]),
        empty_share=float(empty_s.sum() / until_s[-1]) if until_s[-1] > 0 else 0.0,
        largest_gap_s=float(gaps_s[widest]),
        gap_from_s=float(workload.arrival_s[widest] - gaps_s[widest]),
        load=recorded_load(workload, cluster.total_gflops),
        work_s=float(workload.compute_gflop.sum()) / cluster.total_gflops,
        moved_gb=float(workload.moved_gb.sum()),
        too_large=int((~workload.fits_somewhere(cluster)).sum()),
    )


def recorded_load(workload: Workload, total_gflops: float) -> float | None:
    """Work of a workload over the capacity of a cluster while it arrives; None where all of it arrives at once."""
    lasts = float(workload.arrival_s[-1] - workload.arrival_s[0])
    return (workload.num_workflows - 1) / lasts * workload.mean_gflop / total_gflops if lasts > 0 else None


def is_dated(arrival_s: Floats) -> bool:
    """Whether arrivals (W,), non-decreasing, count from a date or from midnight instead of from the first one."""
    first, lasts = float(arrival_s[0]), float(arrival_s[-1] - arrival_s[0])
    return first > LATE_S and first > LATE_SPANS * lasts


def shift_text(first_s: float) -> str:
    """Note on arrivals that were shifted to the first one, which came at `first_s`."""
    text = f"arrivals count from the first one, which came at {first_s:,.10g} s"
    if first_s >= UNIX_MS:
        return f"{text}: milliseconds? Times are read as seconds"
    if first_s >= UNIX_S:
        return f"{text} ({datetime.fromtimestamp(first_s, UTC):%Y-%m-%d %H:%M:%S} UTC, if since 1970)"
    return text


def duration_text(seconds: float) -> str:
    """Seconds, and from two minutes on in a larger unit as well."""
    for unit, size in (("years", 31_557_600.0), ("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds:,.0f} s ({seconds / size:,.1f} {unit})"
    return f"{seconds:,.3g} s"
