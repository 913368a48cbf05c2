"""Execution traces of TensorRT-LLM's scaffolding (github.com/NVIDIA/TensorRT-LLM, examples/scaffolding, Apache-2.0).

A file is a trace. A message of the `assistant` is a call; a `tool_call` delays what follows on its `branch_path`. A
`parallel_start` forks; the next event of its own path joins. A `user` who speaks after an answer begins a turn. There
is no clock: calls take their fitted time. Of a full and a compact file of one `trace_id`, the first one counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from rllib_scale.workloads.formats.base import Seen
from rllib_scale.workloads.formats.fields import Amount, Record, Whole
from rllib_scale.workloads.formats.log import Log
from rllib_scale.workloads.formats.mapping import UndatedSessions
from rllib_scale.workloads.formats.sessions import Sessions, session_format
from rllib_scale.workloads.formats.sources import read_json

ROLES = ("system", "user", "assistant", "tool")


class _Event(Record):
    event_type: Literal["message", "tool_call", "parallel_start", "parallel_end", "drop_kv_cache"]
    branch_path: tuple[Whole, ...] = Field(default=(), strict=False)
    conversation_id: int | None = None
    role: str | None = None
    prompt_tokens: Whole | None = None
    completion_tokens: Whole | None = None
    duration_ms: Amount = 0.0
    children: list[_Event] = Field(default_factory=list)


class _Trace(Record):
    trace_id: str
    events: list[_Event]


class _Clock:
    """Plays the events of a trace, each branch by its own clock."""

    def __init__(self, trace: str, start_s: float, sessions: Sessions, log: Log) -> None:
        self.trace, self.sessions, self.log = trace, sessions, log
        self.seen = Seen(sessions.progress.counts)
        self.now_s: dict[tuple[int, ...], float] = {(): start_s}
        self.names: dict[tuple[int, ...], str] = {(): ""}
        self.context, self.turn, self.answered = dict[int | None, int](), 0, False

    def play(self, event: _Event, path: tuple[int, ...]) -> None:
        while path not in self.now_s and path[:-1] not in self.now_s:
            path = path[:-1]
        if path not in self.now_s:
            self.now_s[path] = self.now_s[path[:-1]]
            self.names[path] = f"{self.trace} {path} {self.now_s[path]}"
            self.log.place(self.names[path], self.names[path[:-1]])
        for below in [each for each in self.now_s if len(each) > len(path) and each[: len(path)] == path]:
            self.now_s[path] = max(self.now_s[path], self.now_s.pop(below))
        if event.event_type == "tool_call":
            self.now_s[path] += event.duration_ms / 1000
        elif event.role == "assistant":
            tokens = event.prompt_tokens, event.completion_tokens
            self.seen.is_equal("answers the same as an earlier one, kept", path, event.conversation_id, *tokens)
            cached = min(tokens[0] or 0, self.context.get(event.conversation_id, 0))
            call = self.sessions.call(self.now_s[path], None, *tokens, cached=cached)
            call.duration_s = self.sessions.mapping.fitted_s(call) if call.is_work else None
            self.log.add(self.trace, call, self.names[path], str(self.turn))
            if call.is_work:
                self.context[event.conversation_id] = call.input_tokens + call.output_tokens
            self.now_s[path] += call.duration_s or 0.0
            self.answered |= not path
        elif event.event_type == "message" and event.role not in ROLES:
            self.sessions.progress.counts[f"messages of role {event.role!r:.40}, not tasks"] += 1
        elif event.role == "user" and not path and self.answered:
            self.turn, self.answered = self.turn + 1, False
        for i, child in enumerate(event.children):
            self.play(child, (*path, i))


def collect(sources: Sequence[Path], sessions: Sessions) -> None:
    """Read traces, one per .json file or one per line of .jsonl files."""
    log, progress = Log(), sessions.progress
    traces = itertools.count()

    def add(trace: _Trace, where: str) -> None:
        if progress.seen.is_repeated("traces", trace.trace_id):
            return
        clock = _Clock(trace.trace_id, next(traces) * sessions.mapping.arrival_gap_s, sessions, log)
        progress.counts["traces without events"] += not trace.events
        for event in trace.events:
            progress.counts[f"{event.event_type} events"] += 1
            clock.play(event, event.branch_path)

    read_json(sources, _Trace, add, progress)
    log.into(sessions)


FORMAT = session_format("scaffolding", "traces of TensorRT-LLM's scaffolding", UndatedSessions, collect)
