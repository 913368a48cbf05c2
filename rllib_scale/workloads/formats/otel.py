"""Spans of generative AI in OpenTelemetry (semantic conventions `gen_ai.*`, opentelemetry.io).

OTLP (`resourceSpans`, listed attributes, times in ns) or flat (`spans`, attributes as a mapping, ISO times). A span of
CALLS is a call, `invoke_agent` an agent. Spans of a conversation, else of a trace, are a session; each trace is a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from rllib_scale.workloads.formats.sessions import Call, Log, SessionMapping, Sessions, session_format
from rllib_scale.workloads.formats.sources import Clock, Digits, Record, either, read_json

CALLS = ("chat", "text_completion", "generate_content")


def _by_key(value: Any) -> Any:
    """Attributes by name; OTLP lists each with the type of its value."""
    try:
        return {e["key"]: next(iter(e["value"].values())) for e in value} if isinstance(value, list) else value
    except (TypeError, KeyError, AttributeError, StopIteration):
        raise ValueError("must have a key and a value in each entry") from None


class _Attributes(Record):
    operation: str | None = either("gen_ai.operation.name", default=None)
    conversation: str | None = either("gen_ai.conversation.id", default=None)
    prompt: Digits = either("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", default=0)
    answer: Digits = either("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", default=0)
    cached: Digits = either("gen_ai.usage.cache_read.input_tokens", default=0)


class _Span(Record):
    trace: str = either("traceId", "trace_id")
    id: str = either("spanId", "span_id")
    parent: str | None = either("parentSpanId", "parent_span_id", default=None)
    start: Clock = either("startTimeUnixNano", "start_time")
    end: Clock = either("endTimeUnixNano", "end_time")
    attributes: Annotated[_Attributes, BeforeValidator(_by_key)] = _Attributes()

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> _Span:
        if self.end < self.start:
            raise ValueError(f"span {self.id!r:.60} ends {self.start - self.end:g} s before it begins")
        return self


class _File(Record):
    """Of any level: a file, a resource or a scope."""

    spans: list[_Span] = Field(default_factory=list)
    below: list[_File] = either("resourceSpans", "scopeSpans", default_factory=list)

    def all_spans(self) -> list[_Span]:
        return [*self.spans, *(span for part in self.below for span in part.all_spans())]


def collect(sources: Sequence[Path], sessions: Sessions) -> None:
    """Read spans record by record; what is above a span may come later, in another file."""
    log, calls, conversations = Log(), list[tuple[_Span, Call]](), dict[str, str]()

    def add(file: _File, where: str) -> None:
        for span in file.all_spans():
            of, above = span.attributes, span.parent and f"{span.trace} {span.parent}"
            log.place(f"{span.trace} {span.id}", above, of.operation == "invoke_agent")
            if of.conversation is not None:
                conversations.setdefault(span.trace, of.conversation)
            if of.operation not in CALLS:
                sessions.progress.counts[f"{of.operation or 'other':.40} spans, not tasks"] += 1
                continue
            sessions.progress.counts["calls without tokens"] += of.prompt == 0
            took_s, new = span.end - span.start or None, max(0, of.prompt - of.cached)
            calls.append((span, Call(span.start, took_s, of.prompt, of.answer, new, 0)))

    read_json(sources, _File, add, sessions.progress)
    for span, call in calls:
        log.add(conversations.get(span.trace, span.trace), call, f"{span.trace} {span.id}", span.trace)
    log.into(sessions)


FORMAT = session_format("otel", "spans of generative AI in OpenTelemetry (gen_ai.*)", SessionMapping, collect)
