"""Request traces of NVIDIA Dynamo (`dynamo.request.trace.v1` and `dynamo.agent.trace.v1`, github.com/ai-dynamo/dynamo).

JSON lines, one event per line, alone or as `event` beside the sink's `timestamp`. A `request_end` is a call; it began
at `request_received_ms`, or `total_time_ms` before the event. What was cached is `cached_tokens`, or what the hashes of
`replay` say. A trajectory is an agent, below its `parent_trajectory_id`. A finish reason other than `tool_calls` ends a
turn, and is the call's status. Events of tools are counted: their time is in the clocks of the calls.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import Field

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.fields import Amount, BlockSize, Record, Whole
from rllib_scale.workloads.formats.log import Log
from rllib_scale.workloads.formats.mapping import SessionMapping
from rllib_scale.workloads.formats.records import DATED_S
from rllib_scale.workloads.formats.sessions import Sessions, read_calls, session_format


class _Context(Record):
    session_id: str
    trajectory_id: str | None = None
    parent_trajectory_id: str | None = None


class _Replay(Record):
    trace_block_size: BlockSize
    input_length: Whole
    input_sequence_hashes: list[int]


class _Request(Record):
    request_id: str
    input_tokens: Whole | None = None
    output_tokens: Whole | None = None
    cached_tokens: Whole | None = None
    request_received_ms: Amount | None = None
    total_time_ms: Amount | None = None
    finish_reason_metadata: dict[str, Any] = Field(default_factory=dict)
    replay: _Replay | None = None


class _Event(Record):
    event_type: str | None = None
    event_time_unix_ms: Amount | None = None
    agent_context: _Context | None = None
    request: _Request | None = None
    event: _Event | None = None


def _add(line: _Event, where: str, log: Log, sessions: Sessions) -> None:
    event = line.event or line
    if event.event_type != "request_end":
        if event.event_type is None:
            raise UserError(f"{where}: event_type: field required, also below event")
        sessions.progress.counts[f"{event.event_type:.40} events, not tasks"] += 1
        return
    request, ended_ms = event.request, event.event_time_unix_ms
    if request is None or ended_ms is None:
        raise UserError(f"{where}: a request_end needs request and event_time_unix_ms")
    for key, ms in (("event_time_unix_ms", ended_ms), ("request_received_ms", request.request_received_ms or 0.0)):
        if DATED_S[0] <= ms <= DATED_S[1]:
            raise UserError(f"{where}: {key} {ms:.0f}: must be in milliseconds, and is a date in seconds")
    replay, context = request.replay, event.agent_context
    took_ms, began_ms = request.total_time_ms or 0.0, request.request_received_ms
    began_ms = max(0.0, ended_ms - took_ms) if began_ms is None else began_ms
    if began_ms > ended_ms:
        raise UserError(f"{where}: request_received_ms {began_ms:.0f}: after event_time_unix_ms {ended_ms:.0f}")
    session = context.session_id if context else where
    if sessions.progress.seen.is_repeated("requests", (context and context.session_id) or "", request.request_id):
        return
    tokens, block = request.input_tokens, None
    if replay:
        tokens = replay.input_length if tokens is None else tokens
        block = sessions.blocks.add(replay.input_sequence_hashes, replay.trace_block_size, tokens)
    reason = request.finish_reason_metadata.get("finish_reason")
    own = f"{session} {context.trajectory_id if context else None}"
    parent = context.parent_trajectory_id if context else None
    log.place(own, parent and f"{session} {parent}")
    call = sessions.call(
        *(began_ms / 1000, (took_ms or ended_ms - began_ms) / 1000, tokens, request.output_tokens),
        status=(reason,),
        cached=request.cached_tokens,
    )
    is_cached = request.cached_tokens is not None
    log.add(session, call, own, ends_turn=reason not in (None, "tool_calls"), block=block, is_cached=is_cached)


FORMAT = session_format(
    "dynamo",
    "request traces of NVIDIA Dynamo, one event per JSON line",
    SessionMapping,
    partial(read_calls, _Event, _add),
)
