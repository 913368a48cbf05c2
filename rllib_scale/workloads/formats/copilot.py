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

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sessions import Agent, Call, Session, SessionMapping, read_sessions
from rllib_scale.workloads.model import Workload


class CopilotMapping(SessionMapping):
    """How sessions of Copilot become workflows."""


def read_workload(sources: Sequence[Path], mapping: CopilotMapping, progress: Progress) -> Workload:
    """Read shards line by line."""
    return read_sessions(sources, mapping, progress, _session)


def _session(data: dict[str, Any], where: str, progress: Progress) -> Session:
    calls: list[Call] = []
    turn = batches = without = 0
    for i, entry in enumerate(read.items(data, "turns", where)):
        at = f"{where}, turn {i}"
        turn_data = read.mapping(entry, at)
        batches += len(read.items(turn_data, "tool_batches", at)) if turn_data.get("tool_batches") is not None else 0
        own = [
            _call(read.mapping(call, f"{at}, call {c}"), turn, f"{at}, call {c}")
            for c, call in enumerate(read.items(turn_data, "llm_calls", at))
        ]
        if not own:
            continue
        own.sort(key=lambda call: call.start_s)
        if calls and own[0].start_s < calls[-1].start_s and own[0].start_s < _first_of_turn(calls):
            raise UserError(f"{at}: timestamp: the turn begins before the turn above: the clock runs backwards")
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


def _call(data: dict[str, Any], turn: int, where: str) -> Call:
    started_s = read.timestamp(data, "timestamp", where)
    duration_ms = read.seconds_if_any(data, "duration_ms", where)
    tokens = data.get("tokens")
    if tokens is None:
        prompt = completion = cached = 0
    else:
        tokens = read.mapping(tokens, f"{where}: tokens")
        prompt, completion, cached = (
            read.tokens(tokens, key, f"{where}: tokens") if tokens.get(key) is not None else 0
            for key in ("prompt", "completion", "cached")
        )
    if cached > prompt:
        raise UserError(f"{where}: tokens: cached must be at most the prompt's {prompt} (got {cached})")
    return Call(started_s, duration_ms and duration_ms / 1000, prompt, completion, prompt - cached, turn)


FORMAT = Format(
    "copilot",
    "GitHub Copilot coding agents of June 2026, shards of JSON lines (github.com/Azure/AzurePublicDataset)",
    CopilotMapping,
    read_workload,
)
