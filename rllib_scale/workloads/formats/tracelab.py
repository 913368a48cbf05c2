"""Rounds of coding agents as TraceLab normalises them (github.com/uw-syfi/TraceLab, data CC BY 4.0).

JSON lines, one call of a model a line: `session_id`, `input_tokens_total`, `newly_append_tokens`, `output_tokens` and
`timing_events` (`event_type`, `timestamp`). The rounds of a session stand together, in the order of their time. A call
began at the last `user_message` or `tool_result` before the model's first `reasoning`, `text` or `tool_call`, and ended
with the last of these; without a first there is no recorded duration. A `user_message` begins a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import model_validator

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sessions import Agent, Call, Session, SessionMapping, SessionsToWorkload
from rllib_scale.workloads.model import Workload

INPUTS = ("user_message", "tool_result")
OUTPUTS = ("reasoning", "text", "tool_call")


class TraceLabMapping(SessionMapping):
    """How sessions of TraceLab become workflows."""


class _Event(read.Record):
    event_type: str
    timestamp: read.Timestamp


class _Round(read.Record):
    session_id: str
    input_tokens_total: read.Whole
    newly_append_tokens: read.Whole
    output_tokens: read.Whole
    timing_events: list[_Event]

    @model_validator(mode="after")
    def _new_of_total(self) -> _Round:
        new, total = self.newly_append_tokens, self.input_tokens_total
        if new > total:
            raise ValueError(f"newly_append_tokens must be at most the {total} of input_tokens_total (got {new})")
        return self


def read_workload(sources: Sequence[Path], mapping: TraceLabMapping, progress: Progress) -> Workload:
    """Read rounds line by line, a session at a time."""
    out = SessionsToWorkload(mapping, progress)
    seen: set[str] = set()
    name: str | None = None
    calls: list[Call] = []
    for path in read.find_files(sources):
        for where, record in read.records(path):
            try:
                data = read.checked(_Round, record, where)
                session = data.session_id
                if session != name:
                    if session in seen:
                        why = "stood further up: the rounds of a session must stand together"
                        raise UserError(f"{where}: session_id {session!r:.60} {why}")
                    _finish(calls, out)
                    calls, name = [], session
                    seen.add(session)
                calls.append(_call(data, calls, where))
            except UserError as error:
                progress.bad(error)
            progress.advance(str(path))
    _finish(calls, out)
    return out.workflows.workload(", ".join(map(str, sources)), from_zero=True)


def _finish(calls: list[Call], out: SessionsToWorkload) -> None:
    if calls:
        start_s = calls[0].start_s
        for call in calls:
            call.start_s -= start_s
        out.add(Session(start_s, Agent(calls)))


def _call(data: _Round, before: list[Call], where: str) -> Call:
    inputs = [event.timestamp for event in data.timing_events if event.event_type in INPUTS]
    outputs = [event.timestamp for event in data.timing_events if event.event_type in OUTPUTS]
    ready = [moment for moment in inputs if not outputs or moment <= min(outputs)]
    if not ready and not outputs:
        raise UserError(f"{where}: timing_events hold neither a {' nor a '.join(INPUTS)}, nor any output of the model")
    start_s = max(ready) if ready else min(outputs)
    if before and start_s < before[-1].start_s:
        late_s = before[-1].start_s - start_s
        raise UserError(
            f"{where}: timing_events: by its timestamp {late_s:g} s before the round above: the clock runs backwards"
        )
    duration_s = max(outputs) - start_s if ready and outputs else None
    asked = any(event.event_type == "user_message" for event in data.timing_events)
    turn = before[-1].turn + asked if before else 0
    total, new = data.input_tokens_total, data.newly_append_tokens
    return Call(start_s, duration_s or None, total, data.output_tokens, new, turn)


FORMAT = Format(
    "tracelab",
    "rounds of coding agents, one a JSON line, sessions together (github.com/uw-syfi/TraceLab)",
    TraceLabMapping,
    read_workload,
)
