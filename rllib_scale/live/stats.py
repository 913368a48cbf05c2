"""State of a live cluster or a router: one record, and metrics of Ray, which its Prometheus endpoint shows."""

from __future__ import annotations

import math
import time
import weakref
from typing import Annotated, Any, NamedTuple, get_type_hints

from ray.util.metrics import Counter, Gauge

from rllib_scale.simulator.event_engine import EventEngine

EVERY_S = 0.5
"""Ray's metrics are brought up to date at most so often."""
GUARDS = ("none", "watching", "took over")
SUMS = ("waiting", "running", "started", "ended", "dropped", "rejected", "decisions", "rounds", "fallbacks")
"""Fields of LiveStats that add up."""
MOST_PAST = 100
"""Records of routers that are gone, before they are summed up."""


class LiveStats(NamedTuple):
    """Since the start, but for what waits and runs now. Tasks of a cluster, or requests of a router.

    Fields with a kind are metrics of Ray, too, of that kind and description.
    """

    servers: Annotated[int, Gauge, "servers or replicas that are there"]
    waiting: Annotated[int, Gauge, "tasks or requests that wait"]
    running: Annotated[int, Gauge, "tasks or requests that run"]
    started: Annotated[int, Counter, "attempts that have started"]
    ended: Annotated[int, Counter, "tasks that have ended well, or requests that were answered"]
    dropped: Annotated[int, Counter, "tasks or requests that were given up: cancelled, timed out, or failed for good"]
    rejected: Annotated[int, Counter, "requests that no replica can hold, or whose demand is wrong"]
    decisions: Annotated[int, Counter, "answers of the scheduler"]
    rounds: Annotated[int, Counter, "rounds of decisions, in which some were taken together"]
    wait_mean_s: float  # from ready to the start of an attempt, in the time of the problem; NaN: none has started
    round_mean_s: float  # that a round of decisions takes, on the wall clock; NaN: there was none
    guard: Annotated[str, Gauge, "0: no guard, 1: it watches, 2: it has taken over"]  # GUARDS
    guard_ratio: Annotated[
        float, Gauge, "stays over those with the guard, in its last window; NaN: it has seen none yet"
    ] = math.nan
    fallbacks: Annotated[
        int, Counter, "requests that handles routed by themselves, as the actor of the router did not answer"
    ] = 0


def stats_of(engine: EventEngine | None, guard: str, ratio: float, **counted: int) -> LiveStats:
    """The record of the engine that decides, or did last, and of what its owner counts; None: there was none yet."""
    started = 0 if engine is None else engine.num_started
    rounds = 0 if engine is None else engine.rounds
    return LiveStats(
        **counted,
        started=started,
        decisions=0 if engine is None else int(engine.outcomes.sum()),
        rounds=rounds,
        wait_mean_s=engine.waited_s / started if engine is not None and started else math.nan,
        round_mean_s=engine.deciding_s / rounds if engine is not None and rounds else math.nan,
        guard=guard,
        guard_ratio=ratio,
    )


def total(records: list[LiveStats]) -> LiveStats:
    """Merge records of routers of the same replicas, at least one."""
    counts = {name: sum(getattr(each, name) for each in records) for name in SUMS}
    started, rounds = max(1, counts["started"]), max(1, counts["rounds"])
    return records[0]._replace(
        **counts,
        servers=max(each.servers for each in records),
        wait_mean_s=sum(each.wait_mean_s * each.started for each in records if each.started) / started,
        round_mean_s=sum(each.round_mean_s * each.rounds for each in records if each.rounds) / rounds,
        guard=max((each.guard for each in records), key=GUARDS.index),
        guard_ratio=max((each.guard_ratio for each in records if each.guard_ratio > 0), default=math.nan),
    )


_SOURCES: dict[str, weakref.WeakSet[Any]] = {}
"""Routers of this process, by name; kept in this module, as Serve copies the module of a router with its data."""


_PAST: dict[str, list[LiveStats]] = {}
"""Counts of former routers of this process, by name."""


def remember(name: str, router: Any, own: Any = None) -> None:
    """Register a router for `remembered`, as long as it lives.

    Args:
        name: name of the deployment.
        router: router of a handle.
        own: counts its requests, unless another process does; its sums are kept after the router is gone.
    """
    _SOURCES.setdefault(name, weakref.WeakSet()).add(router)
    if own is not None:
        weakref.finalize(router, _keep, _PAST.setdefault(name, []), own).atexit = False


def _keep(past: list[LiveStats], own: Any) -> None:
    gone = own.stats()._replace(servers=0, waiting=0, running=0, guard=GUARDS[0], guard_ratio=math.nan)
    past.append(gone)
    if len(past) > MOST_PAST:  # each `pop` is atomic
        past.append(total([past.pop() for _ in range(MOST_PAST)]))


def remembered(name: str) -> tuple[list[Any], list[LiveStats]]:
    """All routers of that name, and what those that are gone had counted."""
    return list(_SOURCES.get(name, ())), list(_PAST.get(name, ()))


class Exporter:
    """Shows records as metrics of Ray.

    Args:
        name: value of the tag `name`, which distinguishes clusters and deployments.
    """

    def __init__(self, name: str) -> None:
        hints = get_type_hints(LiveStats, include_extras=True)
        kinds = {key: hint.__metadata__ for key, hint in hints.items() if hasattr(hint, "__metadata__")}
        kinds["wait_seconds"] = Counter, "sum of the waits of attempts"
        kinds["round_seconds"] = Counter, "sum of the time that rounds take"
        self._metrics = {
            key: kind(f"rllib_scale_{key}", what, tag_keys=("name",)) for key, (kind, what) in kinds.items()
        }
        for metric in self._metrics.values():
            metric.set_default_tags({"name": name})
        self._shown = dict.fromkeys(self._metrics, 0.0)  # of counters
        self.due_s = 0.0  # when it may be shown again, on the monotonic clock

    def show(self, stats: LiveStats) -> None:
        """Bring the metrics up to date."""
        self.due_s = time.monotonic() + EVERY_S
        values = stats._asdict()
        values["guard"] = GUARDS.index(stats.guard)
        values["wait_seconds"] = stats.wait_mean_s * stats.started if stats.started else 0.0
        values["round_seconds"] = stats.round_mean_s * stats.rounds if stats.rounds else 0.0
        for key, metric in self._metrics.items():
            if isinstance(metric, Gauge):
                metric.set(values[key])
            elif values[key] > self._shown[key]:
                metric.inc(values[key] - self._shown[key])
                self._shown[key] = values[key]
