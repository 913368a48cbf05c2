"""Servers to which tasks are given one after another in one moment, and what each of them changes for the next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rllib_scale.compiled import Direct, compiled
from rllib_scale.observation.snapshot import UP, Snapshot
from rllib_scale.workloads.fitting import fits


class Servers(NamedTuple):
    """N servers of one environment; the fields are those of `View`."""

    capacity: np.ndarray
    properties: np.ndarray
    limit: np.ndarray
    wait: np.ndarray
    free_places: np.ndarray
    is_open: np.ndarray
    free: np.ndarray
    next_end: np.ndarray


def servers_of(now: Snapshot) -> Servers:
    """The servers of a snapshot, contiguous for compiled code; what tasks change of them is in arrays of its own."""
    there = now.status == UP
    wait = np.where(there, now.available_at_s - now.clock_s, np.inf)
    return Servers(
        capacity=np.ascontiguousarray(now.capacity_gflops),
        properties=now.properties,
        limit=np.where(there, now.memory_gb, -1.0),
        wait=wait,
        free_places=now.max_concurrent - now.num_running,
        is_open=now.idle & (wait == 0.0),
        free=np.where(there, now.free_memory_gb, 0.0),
        next_end=np.where(there, np.maximum(0.0, now.expected_end_s - now.clock_s), np.inf),
    )


@compiled
def give(servers, j, memory, places, labels, lasts):  # type: ignore[no-untyped-def]
    """Give server j to a task that needs memory [GB], places and labels for `lasts` s; returns whether it starts.

    It starts where the server is open and has them free. Otherwise it waits, and the server is open to none.
    """
    server, free = servers.properties[j], servers.free_places[j]
    starts = servers.is_open[j] and fits(memory, places, labels, servers.free[j], free, server.labels)
    if starts:
        servers.free[j] -= memory
        servers.free_places[j] -= places
        servers.next_end[j] = min(servers.next_end[j], lasts)
    if servers.is_open[j] and (not starts or servers.free_places[j] == 0):
        servers.is_open[j] = False
        if servers.next_end[j] < np.inf:
            servers.wait[j] = servers.next_end[j]
    if not starts:
        servers.wait[j] += lasts * places / server.max_concurrent
    return starts


give_one = Direct(give)
"""`give` for code that is not compiled: servers, j, places and labels as int, memory and lasts as float."""


class Starting:
    """A snapshot and the starts that were decided on in it. Shapes: N servers, R tasks that wait in the snapshot.

    Attributes:
        snapshot: as it was before any start.
        servers: as they are after the starts.
        waits: (R,) bool: has not been started.
        can_start: (R, N) bool: the task waits, the server is open and has the memory, places and labels that it needs.
        transfer_s: (R, N) s to move the task's input there.
        execution_s: (R, N) s of execution; inf in an empty row.
        lasts_s: (R, N) s of transfer and execution.
        started: those of this state: row of `Snapshot.ready`, server.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, ready = snapshot, snapshot.ready
        self.servers = servers_of(snapshot)
        there = snapshot.capacity_gflops > 0
        capacity = np.where(there, snapshot.capacity_gflops, 1.0)
        self.waits = np.ones(len(ready), dtype=bool)
        self.transfer_s = snapshot.transfer_s
        self.execution_s = np.where(there, ready["compute_gflop"][:, None] / capacity, np.inf)
        self.lasts_s = self.transfer_s + self.execution_s
        self.can_start = self._room()
        self.started: list[tuple[int, int]] = []

    def _room(self) -> np.ndarray:
        """(R, N) bool: the server is open, and has what the task needs."""
        ready, servers = self.snapshot.ready, self.servers
        needs = (ready[name][:, None] for name in ("memory_gb", "places", "labels"))
        return servers.is_open & fits(*needs, servers.free, servers.free_places, servers.properties["labels"])

    def start(self, task: int, server: int) -> None:
        """Let a task (a row of `Snapshot.ready`) start on a server that is open for it.

        Raises:
            ValueError: it is not.
        """
        if not self.can_start[task, server]:
            raise ValueError(f"waiting task {task} cannot start on server {server}")
        needs = self.snapshot.ready[task]
        lasts_s = float(self.lasts_s[task, server])
        whole = int(needs["places"]), int(needs["labels"])
        give_one(self.servers, int(server), float(needs["memory_gb"]), *whole, lasts_s)
        self.waits[task] = False
        self.started.append((task, server))
        self.can_start &= self._room() & self.waits[:, None]

    def answers(self) -> np.ndarray:
        """(K, 3) workflow, task, server of what was started, as `Dispatcher.dispatch` gives it."""
        ready = self.snapshot.ready
        rows = [(ready["workflow"][task], ready["task"][task], server) for task, server in self.started]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)
