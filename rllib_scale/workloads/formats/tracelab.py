"""Rounds of coding agents as TraceLab normalises them (github.com/uw-syfi/TraceLab, data CC BY 4.0).

JSON lines, one call of a model per line: `session_id`, `turn_id`, `round_id`, `round_index`, `input_tokens_total`,
`prefix_tokens`, `newly_append_tokens`, `output_tokens` and `timing_events` (`event_type`, `timestamp`). A call began at
the last `user_message` or `tool_result` before the model's first `reasoning`, `text` or `tool_call`, and ended with the
last of these; without such an input its duration is not recorded. A `user_message` begins a turn.
"""

from __future__ import annotations

from functools import partial

from pydantic import model_validator

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.fields import Name, Record, Timestamp, Whole
from rllib_scale.workloads.formats.log import Log
from rllib_scale.workloads.formats.mapping import SessionMapping
from rllib_scale.workloads.formats.sessions import Sessions, read_calls, session_format

INPUTS = ("user_message", "tool_result")
OUTPUTS = ("reasoning", "text", "tool_call")


class _Event(Record):
    event_type: str
    timestamp: Timestamp


class _Round(Record):
    session_id: str
    turn_id: Name | None = None
    round_id: Name | None = None
    round_index: Name | None = None
    input_tokens_total: Whole
    prefix_tokens: Whole | None = None
    newly_append_tokens: Whole
    output_tokens: Whole
    timing_events: list[_Event]

    @model_validator(mode="after")
    def _new_of_total(self) -> _Round:
        new, total = self.newly_append_tokens, self.input_tokens_total
        if new > total:
            raise ValueError(f"newly_append_tokens must be at most the {total} of input_tokens_total (got {new})")
        return self


def _add(data: _Round, where: str, log: Log, sessions: Sessions) -> None:
    inputs = [event.timestamp for event in data.timing_events if event.event_type in INPUTS]
    outputs = [event.timestamp for event in data.timing_events if event.event_type in OUTPUTS]
    ready = [time for time in inputs if not outputs or time <= min(outputs)]
    if not ready and not outputs:
        raise UserError(f"{where}: timing_events have neither a {' nor a '.join(INPUTS)}, nor any output of the model")
    start_s = max(ready) if ready else min(outputs)
    duration_s = max(outputs) - start_s if ready and outputs else None
    seen = sessions.progress.seen
    if data.round_id is None:
        seen.is_equal("rounds the same as an earlier one, kept", repr(data))
    elif seen.is_repeated("rounds", data.session_id, data.round_id, str((data.turn_id, data.round_index))):
        return
    tokens = {"cached": data.prefix_tokens, "new": data.newly_append_tokens}
    call = sessions.call(start_s, duration_s, data.input_tokens_total, data.output_tokens, **tokens)
    asked = any(event.event_type == "user_message" for event in data.timing_events)
    log.add(data.session_id, call, begins_turn=asked)


FORMAT = session_format(
    "tracelab",
    "rounds of coding agents, one per JSON line (github.com/uw-syfi/TraceLab)",
    SessionMapping,
    partial(read_calls, _Round, _add),
)
