"""Rounds of coding agents as TraceLab normalises them (github.com/uw-syfi/TraceLab, data CC BY 4.0).

JSON lines, one call of a model per line: `session_id`, `input_tokens_total`, `newly_append_tokens`, `output_tokens` and
`timing_events` (`event_type`, `timestamp`). The rounds of a session are contiguous and ordered by time. A call began at
the last `user_message` or `tool_result` before the model's first `reasoning`, `text` or `tool_call`, and ended with the
last of these; without such an input its duration is not recorded. A `user_message` begins a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import model_validator

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sessions import Call, SessionMapping, Sessions
from rllib_scale.workloads.formats.sources import Record, Timestamp, Whole, read_json
from rllib_scale.workloads.model import Workload

INPUTS = ("user_message", "tool_result")
OUTPUTS = ("reasoning", "text", "tool_call")


class _Event(Record):
    event_type: str
    timestamp: Timestamp


class _Round(Record):
    session_id: str
    input_tokens_total: Whole
    newly_append_tokens: Whole
    output_tokens: Whole
    timing_events: list[_Event]

    @model_validator(mode="after")
    def _new_of_total(self) -> _Round:
        new, total = self.newly_append_tokens, self.input_tokens_total
        if new > total:
            raise ValueError(f"newly_append_tokens must be at most the {total} of input_tokens_total (got {new})")
        return self


def read_workload(sources: Sequence[Path], mapping: SessionMapping, progress: Progress) -> Workload:
    """Read rounds line by line, a session at a time."""
    sessions = Sessions(mapping, progress)
    seen: set[str] = set()
    session: str | None = None
    calls: list[Call] = []

    def add(data: _Round, where: str) -> None:
        nonlocal session, calls
        if data.session_id != session:
            if data.session_id in seen:
                why = "has rounds further up: the rounds of a session must be contiguous"
                raise UserError(f"{where}: session_id {data.session_id!r:.60} {why}")
            if calls:
                sessions.add_dated(calls)
            calls, session = [], data.session_id
            seen.add(session)
        calls.append(_call(data, calls, where))

    read_json(sources, _Round, add, progress)
    if calls:
        sessions.add_dated(calls)
    return Workload.collected(sessions.workflows, sources, progress)


def _call(data: _Round, before: list[Call], where: str) -> Call:
    inputs = [event.timestamp for event in data.timing_events if event.event_type in INPUTS]
    outputs = [event.timestamp for event in data.timing_events if event.event_type in OUTPUTS]
    ready = [time for time in inputs if not outputs or time <= min(outputs)]
    if not ready and not outputs:
        raise UserError(f"{where}: timing_events have neither a {' nor a '.join(INPUTS)}, nor any output of the model")
    start_s = max(ready) if ready else min(outputs)
    if before and start_s < before[-1].start_s:
        raise UserError(
            f"{where}: timing_events: the call begins {before[-1].start_s - start_s:g} s before the one of the round "
            "above: the clock runs backwards"
        )
    duration_s = max(outputs) - start_s if ready and outputs else None
    asked = any(event.event_type == "user_message" for event in data.timing_events)
    turn = before[-1].turn + asked if before else 0
    total, new = data.input_tokens_total, data.newly_append_tokens
    return Call(start_s, duration_s or None, total, data.output_tokens, new, turn)


FORMAT = Format(
    "tracelab",
    "rounds of coding agents, one per JSON line, sessions contiguous (github.com/uw-syfi/TraceLab)",
    SessionMapping,
    read_workload,
)
