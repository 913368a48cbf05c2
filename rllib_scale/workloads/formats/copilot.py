"""Sessions of GitHub Copilot's coding agents, June 2026 (github.com/Azure/AzurePublicDataset, CC-BY).

Shards of JSON lines, gzip or not, one session per line: `{"session_id": ..., "turns": [{"turn_id": ..., "llm_calls":
[...], "tool_batches": [...]}]}`. Of a call, `message_id`, `timestamp` (its start), `duration_ms`, `result`,
`status_code` and `tokens` (`prompt`, `completion`, `cached`, `total`) are read. Calls of a turn are ordered by their
timestamps; calls that overlapped do so in the workflow. Gaps within a turn are those of tools, gaps between turns those
of a person.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rllib_scale.workloads.formats.base import Seen
from rllib_scale.workloads.formats.calls import Call
from rllib_scale.workloads.formats.fields import Amount, Name, Record, Timestamp, Whole
from rllib_scale.workloads.formats.mapping import SessionMapping
from rllib_scale.workloads.formats.records import in_time
from rllib_scale.workloads.formats.sessions import Sessions, read_sessions, session_format


class _Tokens(Record):
    prompt: Whole | None = None
    completion: Whole | None = None
    cached: Whole | None = None
    total: Whole | None = None


class _Call(Record):
    message_id: Name | None = None
    timestamp: Timestamp
    duration_ms: Amount | None = None
    result: Any = None
    status_code: Any = None
    tokens: _Tokens | None = None


class _Turn(Record):
    turn_id: Name | None = None
    llm_calls: list[_Call]
    tool_batches: list[Any] | None = None


class _Session(Record):
    session_id: Name | None = None
    turns: list[_Turn]


def _add(session: _Session, where: str, sessions: Sessions) -> None:
    counts, seen = sessions.progress.counts, sessions.progress.seen
    if session.session_id is None:
        seen.is_equal("sessions the same as an earlier one, kept", repr(session))
    own, calls, turn = Seen(counts), list[Call](), 0
    for entry in in_time(session.turns, _began_s, counts, "turns"):
        began = entry.llm_calls and _began_s(entry)
        if began and seen.is_repeated("turns", session.session_id, entry.turn_id or began):
            continue
        for call in entry.llm_calls:
            if call.message_id is None:
                own.is_equal("calls the same as an earlier one, kept", repr(call))
        made = [
            _call(call, turn, sessions) for call in entry.llm_calls if not own.is_repeated("calls", call.message_id)
        ]
        calls += sorted(made, key=lambda call: call.start_s)
        turn += any(call.is_work for call in made)
        counts["turns without calls"] += not entry.llm_calls
        counts["tool batches"] += len(entry.tool_batches or ())
    sessions.add_dated(calls)


def _began_s(turn: _Turn) -> float:
    return min((call.timestamp for call in turn.llm_calls), default=float("-inf"))


def _call(data: _Call, turn: int, sessions: Sessions) -> Call:
    tokens, took_s = data.tokens or _Tokens(), (data.duration_ms or 0.0) / 1000
    return sessions.call(
        *(data.timestamp, took_s, tokens.prompt, tokens.completion),
        status=(data.result, data.status_code),
        cached=tokens.cached,
        total=tokens.total,
        turn=turn,
    )


FORMAT = session_format(
    "copilot",
    "GitHub Copilot coding agents of June 2026, shards of JSON lines (github.com/Azure/AzurePublicDataset)",
    SessionMapping,
    partial(read_sessions, _Session, _add),
)
