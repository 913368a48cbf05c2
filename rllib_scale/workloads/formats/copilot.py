"""Sessions of GitHub Copilot's coding agents, June 2026 (github.com/Azure/AzurePublicDataset, CC-BY).

Shards of JSON lines, gzip or not, one session per line: `{"session_id": ..., "turns": [{"llm_calls": [...],
"tool_batches": [...]}]}`. Of a call, `timestamp` (its start), `duration_ms` and `tokens` (`prompt`, `completion`,
`cached`) are read. Calls of a turn are ordered by their timestamps; calls that overlapped do so in the workflow. Gaps
within a turn are those of tools, gaps between turns those of a person. A call that was cancelled or failed has its
duration all the same; one without tokens has none.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import model_validator

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.sessions import Call, SessionMapping, Sessions, read_sessions, session_format
from rllib_scale.workloads.formats.sources import Amount, Record, Timestamp, Whole


class _Tokens(Record):
    prompt: Whole | None = None
    completion: Whole | None = None
    cached: Whole | None = None

    @model_validator(mode="after")
    def _cached_of_prompt(self) -> _Tokens:
        if (self.cached or 0) > (self.prompt or 0):
            raise ValueError(f"cached must be at most the prompt's {self.prompt or 0} (got {self.cached})")
        return self


class _Call(Record):
    timestamp: Timestamp
    duration_ms: Amount | None = None
    tokens: _Tokens | None = None


class _Turn(Record):
    llm_calls: list[_Call]
    tool_batches: list[Any] | None = None


class _Session(Record):
    turns: list[_Turn]


def _add(session: _Session, where: str, sessions: Sessions) -> None:
    calls: list[Call] = []
    turn, began_s = 0, float("-inf")
    for i, entry in enumerate(session.turns):
        if not entry.llm_calls:
            continue
        start_s = min(call.timestamp for call in entry.llm_calls)
        if start_s < began_s:
            raise UserError(
                f"{where}: turns.{i}: timestamp: the turn begins before the turn above: the clock runs backwards"
            )
        calls += [_call(call, turn) for call in sorted(entry.llm_calls, key=lambda call: call.timestamp)]
        turn, began_s = turn + 1, start_s
    counts = sessions.progress.counts
    counts["tool batches"] += sum(len(entry.tool_batches or ()) for entry in session.turns)
    counts["calls without tokens"] += sum(not call.input_tokens for call in calls)
    sessions.add_dated(calls)


def _call(data: _Call, turn: int) -> Call:
    tokens = data.tokens or _Tokens()
    prompt, completion, cached = tokens.prompt or 0, tokens.completion or 0, tokens.cached or 0
    duration_s = data.duration_ms / 1000 if data.duration_ms else None
    return Call(data.timestamp, duration_s, prompt, completion, prompt - cached, turn)


FORMAT = session_format(
    "copilot",
    "GitHub Copilot coding agents of June 2026, shards of JSON lines (github.com/Azure/AzurePublicDataset)",
    SessionMapping,
    partial(read_sessions, _Session, _add),
)
