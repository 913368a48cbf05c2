"""From calls to what they are parts of: turns and sessions in progress."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.simulator.replicas.scripts import Scripts
from rllib_scale.simulator.replicas.state import CALL, RECORD, Fleet

Floats = NDArray[np.float64]


def open_calls(fleet: Fleet) -> NDArray[Any]:
    """Calls that are asked and not answered, RECORD; their end is inf, a time that has not come -1."""
    is_open, row = np.ones(len(fleet.calls), dtype=bool), int(fleet.now[0]["free_calls"])
    while row >= 0:
        is_open[row], row = False, int(fleet.calls[row]["next"])
    calls = fleet.calls[is_open]
    sessions, table = fleet.sessions[calls["session"]], np.zeros(len(calls), RECORD)
    for name in set(RECORD.names or ()) & set(CALL.names or ()):
        table[name] = calls[name]
    table["session"], table["script"], table["end_s"] = sessions["number"], sessions["script"], np.inf
    table["turn"] = fleet.tasks["turn"][fleet.first_task[sessions["script"]] + calls["call"]]
    has_begun = calls["first_s"] >= 0
    table["first_s"][has_begun] += fleet.replicas["request_s"][calls["replica"][has_begun]]
    return table


def open_s(asked_s: Floats, end_s: Floats, from_s: float, to_s: float) -> float:
    """Integral between two times [s] of what is open from when it is asked to its end; inf: none yet."""
    return float(np.maximum(0.0, np.minimum(end_s, to_s) - np.maximum(asked_s, from_s)).sum())


class Spans(NamedTuple):
    """Turns or sessions: each from its first call asked to its last answer; inf while it is in progress."""

    session: NDArray[np.int64]
    asked_s: Floats
    end_s: Floats
    is_whole: NDArray[np.bool_]
    """Whether it began with its first call, as those of a closed loop that begin in the middle do not."""

    def of_whole(self, from_s: float) -> Floats:
        """How long those took that are whole and ended after a time [s]."""
        chosen = self.is_whole & (self.end_s >= from_s) & np.isfinite(self.end_s)
        return (self.end_s - self.asked_s)[chosen]

    def ages(self, from_s: float, to_s: float) -> Floats:
        """How long those took that ended between two times, and those in progress so far [s]."""
        return (np.minimum(self.end_s, to_s) - self.asked_s)[self.end_s >= from_s]

    def open_s(self, from_s: float, to_s: float) -> float:
        """Integral of those in progress between two times [s]."""
        return open_s(self.asked_s, self.end_s, from_s, to_s)


def spans(calls: NDArray[Any], scripts: Scripts, starts: NDArray[Any], of_turn: bool) -> Spans:
    """The turns, or the sessions, of all calls that were asked, RECORD; `starts` of the sessions, START."""
    script = np.repeat(np.arange(len(scripts)), scripts.lengths)
    turn = scripts.tasks["turn"] if of_turn else np.zeros(len(script), np.int64)
    own = calls["turn"] if of_turn else np.zeros(len(calls), np.int64)
    turns, most = int(turn.max(initial=0)) + 1, int(scripts.lengths.max(initial=0)) + 1
    numbers = np.sort((script * turns + turn) * most + np.arange(len(script)) - scripts.first_task[script])
    _, first, unit, count = np.unique(
        calls["session"] * turns + own, return_index=True, return_inverse=True, return_counts=True
    )
    asked_s, end_s = np.full(len(first), np.inf), np.full(len(first), -np.inf)
    np.minimum.at(asked_s, unit, calls["asked_s"])
    np.maximum.at(end_s, unit, calls["end_s"])
    session, start = calls["session"][first], (calls["script"][first] * turns + own[first]) * most
    begin, at, end = (np.searchsorted(numbers, start + plus) for plus in (0, starts["skipped"][session], most))
    return Spans(session, asked_s, np.where(count == end - at, end_s, np.inf), at == begin)
