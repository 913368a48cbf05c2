"""Sessions of GitHub Copilot's coding agents, June 2026 (github.com/Azure/AzurePublicDataset, CC-BY).

Shards of JSON lines, gzip or not, one session a line: `{"session_id": ..., "turns": [{"llm_calls": [...],
"tool_batches": [...]}]}`. Of a call are read `timestamp` (when it began), `duration_ms` and `tokens` (`prompt`,
`completion`, `cached`). Calls of a turn are brought in the order of their timestamps; what ran beside each other does
so in the workflow, too. Gaps within a turn are those of tools, gaps between turns a person's. A call that was
cancelled or failed took its time all the same; one without tokens has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import model_validator

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sessions import Agent, Call, Session, SessionMapping, read_sessions
from rllib_scale.workloads.model import Workload


class CopilotMapping(SessionMapping):
    """How sessions of Copilot become workflows."""


class _Tokens(read.Record):
    prompt: read.Whole | None = None
    completion: read.Whole | None = None
    cached: read.Whole | None = None

    @model_validator(mode="after")
    def _cached_of_prompt(self) -> _Tokens:
        if (self.cached or 0) > (self.prompt or 0):
            raise ValueError(f"cached must be at most the prompt's {self.prompt or 0} (got {self.cached})")
        return self


class _Call(read.Record):
    timestamp: read.Timestamp
    duration_ms: read.Seconds | None = None
    tokens: _Tokens | None = None


class _Turn(read.Record):
    llm_calls: list[_Call]
    tool_batches: list[Any] | None = None


class _Session(read.Record):
    turns: list[_Turn]


def read_workload(sources: Sequence[Path], mapping: CopilotMapping, progress: Progress) -> Workload:
    """Read shards line by line."""
    return read_sessions(sources, mapping, progress, _Session, _session)


def _session(data: _Session, where: str, progress: Progress) -> Session:
    calls: list[Call] = []
    turn = batches = without = 0
    for i, entry in enumerate(data.turns):
        batches += len(entry.tool_batches or ())
        own = sorted((_call(call, turn) for call in entry.llm_calls), key=lambda call: call.start_s)
        if not own:
            continue
        if calls and own[0].start_s < calls[-1].start_s and own[0].start_s < _first_of_turn(calls):
            raise UserError(
                f"{where}: turns.{i}: timestamp: the turn begins before the turn above: the clock runs backwards"
            )
        without += sum(not call.input_tokens for call in own)
        calls += own
        turn += 1
    progress.counts["tool batches"] += batches
    progress.counts["calls without tokens"] += without
    start_s = min((call.start_s for call in calls), default=0.0)
    for call in calls:
        call.start_s -= start_s
    calls.sort(key=lambda call: call.start_s)
    return Session(start_s, Agent(calls))


def _first_of_turn(calls: list[Call]) -> float:
    """When the turn of the last call began."""
    return min(call.start_s for call in reversed(calls) if call.turn == calls[-1].turn)


def _call(data: _Call, turn: int) -> Call:
    tokens = data.tokens or _Tokens()
    prompt, completion, cached = tokens.prompt or 0, tokens.completion or 0, tokens.cached or 0
    duration_s = data.duration_ms / 1000 if data.duration_ms else None
    return Call(data.timestamp, duration_s, prompt, completion, prompt - cached, turn)


FORMAT = Format(
    "copilot",
    "GitHub Copilot coding agents of June 2026, shards of JSON lines (github.com/Azure/AzurePublicDataset)",
    CopilotMapping,
    read_workload,
)
