"""From calls to what they are parts of: turns and sessions in progress, and the contexts that are active meanwhile."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.simulator.replicas.scripts import Scripts
from rllib_scale.simulator.replicas.state import CALL, NONE, RECORD, Fleet

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


def active_token_s(
    calls: NDArray[Any], sessions: Spans, scripts: Scripts, active_for_s: float, from_s: float, to_s: float
) -> float:
    """Integral of the tokens of active agents between two times, a prefix that some share at a replica counted once.

    An agent is active where its last call was sent: with the prompt until it is answered, then with prompt and answer
    for `active_for_s`, or to the end of its session. Of what comes in one moment answers are the first, then the order
    in the session counts.
    """
    tasks, ended_s = scripts.tasks[scripts.first_task[calls["script"]] + calls["call"]], np.zeros(len(calls))
    if len(calls):
        ended_s = sessions.end_s[np.searchsorted(sessions.session, calls["session"])]
    sent, answered = np.flatnonzero(calls["placed_s"] >= 0), np.flatnonzero(np.isfinite(calls["end_s"]))
    at, is_sent = np.concatenate([answered, sent]), np.repeat([False, True], [len(answered), len(sent)])
    begin_s = np.concatenate([calls["end_s"][answered], calls["placed_s"][sent]])
    end_s = np.where(is_sent, np.inf, begin_s + active_for_s)
    tokens = calls["prompt"][at] + np.where(is_sent, 0, calls["output"][at])
    order = np.lexsort((calls["call"][at], is_sent, begin_s, tasks["agent"][at], calls["session"][at]))
    at, begin_s, end_s, tokens = at[order], begin_s[order], end_s[order], tokens[order]
    session, agent = calls["session"][at], tasks["agent"][at]
    goes_on = (session[1:] == session[:-1]) & (agent[1:] == agent[:-1])
    end_s[:-1][goes_on] = np.minimum(end_s[:-1], begin_s[1:])[goes_on]
    begin_s, end_s = np.maximum(begin_s, from_s), np.minimum(np.minimum(end_s, ended_s[at]), to_s)
    chosen = end_s > begin_s
    at, begin_s, end_s, tokens = at[chosen], begin_s[chosen], end_s[chosen], tokens[chosen]
    replica, prefix, end = calls["replica"][at], tasks["prefix"][at], tasks["prefix_tokens"][at]
    own, shared = float(((tokens - end) * (end_s - begin_s)).sum()), list[tuple[Any, ...]]()
    while (some := prefix != NONE).any():
        replica, prefix, end, begin_s, end_s = (each[some] for each in (replica, prefix, end, begin_s, end_s))
        before = scripts.tree["before"][prefix]
        shared.append((replica * len(scripts.tree) + prefix, begin_s - from_s, end_s - from_s, end - before))
        end, prefix = before, scripts.tree["above"][prefix]
    return own + (_union(*map(np.concatenate, zip(*shared, strict=True))) if shared else 0.0)


def _union(group: NDArray[np.int64], begin_s: Floats, end_s: Floats, tokens: NDArray[np.int64]) -> float:
    """Integral of the tokens of groups, each counted once where intervals of it overlap; times from 0 on."""
    order = np.lexsort((begin_s, group))
    shift_s = group[order] * (end_s.max(initial=0.0) + 1.0)
    begin_s, end_s = begin_s[order] + shift_s, end_s[order] + shift_s
    covered_s = np.append(0.0, np.maximum.accumulate(end_s))[:-1]
    return float((tokens[order] * np.maximum(0.0, end_s - np.maximum(begin_s, covered_s))).sum())
