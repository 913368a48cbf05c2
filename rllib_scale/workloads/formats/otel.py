"""Spans of calls of language models in OpenTelemetry, by its conventions `gen_ai.*` or those of OpenInference.

OTLP (`resourceSpans`, listed attributes, times in ns), spans of `ConsoleSpanExporter` one after the other, and flat
spans (attributes as a mapping, ISO times), alone, below `spans` or in a list. A span of CALLS, or of OpenInference's
kind LLM, is a call; `invoke_agent`, or the kind AGENT, is an agent. Spans of a conversation, else of a trace, are a
session; each trace is a turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, RootModel, model_validator

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.fields import Clock, Digits, Record, either
from rllib_scale.workloads.formats.log import Log
from rllib_scale.workloads.formats.mapping import SessionMapping
from rllib_scale.workloads.formats.records import UNITS_S, unit_s
from rllib_scale.workloads.formats.sessions import Sessions, session_format
from rllib_scale.workloads.formats.sources import read_json, read_part

CALLS = ("chat", "text_completion", "generate_content")
STATUSES = {"0": "unset", "1": "ok", "2": "error"}
"""Codes of OTLP; other sources have names."""
LEVELS = ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spans")
"""Keys of lists, from above."""
TRACES = ("traceId", "trace_id", "context", "context.trace_id")
"""Keys of a span's trace."""


class _Attributes(Record):
    operation: str | None = either("gen_ai.operation.name", default=None)
    kind: str | None = either("openinference.span.kind", default=None)
    conversation: str | None = either("gen_ai.conversation.id", "session.id", default=None)
    vendor: str | None = either("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", default=None)
    error: str | None = either("error.type", default=None)
    prompt: Digits | None = either(
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", default=None
    )
    answer: Digits | None = either(
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion", default=None
    )
    total: Digits | None = either("gen_ai.usage.total_tokens", "llm.token_count.total", default=None)
    cached: Digits | None = either(
        "gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read", default=None
    )
    written: Digits | None = either(
        "gen_ai.usage.cache_creation.input_tokens", "llm.token_count.prompt_details.cache_write", default=None
    )


def _by_key(value: Any) -> dict[str, Any]:
    """Attributes by name: OTLP lists each with the type of its value, and others nest them at their dots."""
    try:
        if isinstance(value, list):
            return {e["key"]: next(iter(e["value"].values())) for e in value}
        found, below = dict[str, Any](), list(value.items())
        while below:
            key, each = below.pop(0)
            if isinstance(each, dict) and each:
                below = [*((f"{key}.{name}", part) for name, part in each.items()), *below]
            else:
                found[key] = each
    except (TypeError, KeyError, AttributeError, StopIteration):
        raise ValueError("must be a mapping, or have a key and a value in each entry") from None
    return found


def _status(value: Any) -> Any:
    if isinstance(value, dict):
        value = value.get("status_code", value.get("code"))
    return STATUSES.get(str(value), value)


class _Span(Record):
    trace: str = either("traceId", "trace_id")
    id: str = either("spanId", "span_id")
    parent: str | None = either("parentSpanId", "parent_span_id", "parent_id", default=None)
    start: Clock = either("startTimeUnixNano", "start_time")
    end: Clock = either("endTimeUnixNano", "end_time")
    status: Annotated[Any, BeforeValidator(_status)] = either("status", "status_code", default=None)
    attributes: Annotated[_Attributes, BeforeValidator(_by_key)] = _Attributes()

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, data: Any) -> Any:
        """Attributes and ids in their own mappings, where a table has them in columns, or a context has the ids."""
        if not isinstance(data, dict):
            return data
        span, attributes = dict[str, Any](), dict[str, Any]()
        for key, value in data.items():
            place, _, name = key.partition(".")
            if key == "context" and isinstance(value, dict):
                span |= value
            elif place == "context" and name:
                span[name] = value
            elif place == "attributes" and name:
                attributes[name] = value
            else:
                span[key] = value
        return span | {"attributes": attributes} if attributes else span

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> _Span:
        if self.end < self.start:
            raise ValueError(f"span {self.id!r:.60} ends before it begins")
        return self

    @property
    def is_call(self) -> bool:
        return self.attributes.operation in CALLS or self.attributes.kind == "LLM"

    @property
    def is_agent(self) -> bool:
        return self.attributes.operation == "invoke_agent" or self.attributes.kind == "AGENT"


_Any = RootModel[dict[str, Any]]


def _spans(data: Any, where: str, progress: Progress, level: int = 0) -> Iterator[tuple[str, Any]]:
    """Place and content of each span of a record, at any level."""
    lists = [key for key in LEVELS[level:] if isinstance(data, dict) and key in data]
    if not lists and level == 0 and not any(key in data for key in TRACES):
        raise UserError(f"{where}: neither a span, which has trace_id or traceId, nor a list of spans or resourceSpans")
    if not lists:
        yield where, data
    for key in lists:
        if not isinstance(data[key], list):
            raise UserError(f"{where}: {key}: must be a list")
        progress.counts["empty lists of spans"] += not data[key]
        for number, each in enumerate(data[key]):
            yield from _spans(each, f"{where}: {key}.{number}", progress, LEVELS.index(key) + 1)
    if lists:
        progress.count_unread(key for key in data if key not in (*LEVELS, *TRACES))


def collect(sources: Sequence[Path], sessions: Sessions) -> None:
    """Read spans record by record; what is above a span may come later, in another file."""
    log, calls, conversations = Log(), list[_Span](), dict[str, str]()
    progress, others = sessions.progress, Counter[str]()

    def add(record: _Any, where: str) -> None:
        for at, data in _spans(record.root, where, progress):
            span = read_part(_Span, data, at, progress)
            if span is None or progress.seen.is_repeated("spans", span.trace, span.id):
                continue
            of, above = span.attributes, span.parent and f"{span.trace} {span.parent}"
            log.place(f"{span.trace} {span.id}", above, span.is_agent)
            if of.conversation is not None:
                conversations.setdefault(span.trace, of.conversation)
            if not span.is_call:
                others[f"{of.operation or of.kind or 'other':.40} spans, not tasks"] += 1
                continue
            for part in (span, of):
                (part.model_extra or {}).clear()  # texts of prompts, which were counted as not read
            calls.append(span)

    read_json(sources, _Any, add, progress)
    progress.counts.update(others)
    _check(sources, sessions, calls, others)
    times: dict[str, list[float]] = {}
    for span in calls:
        times.setdefault(span.trace, []).extend((span.start, span.end))
    units = {trace: unit_s(of) for trace, of in times.items()}
    for span in calls:
        of, unit = span.attributes, units[span.trace]
        if unit != UNITS_S[0]:
            progress.counts[f"calls whose times are in {unit:g} s, not in ns"] += 1
        start_s, took_s = _seconds(span.start, unit), _seconds(span.end - span.start, unit)
        call = sessions.call(
            *(start_s, took_s, of.prompt, of.answer),
            status=(span.status, of.error and "error"),
            cached=of.cached,
            written=of.written,
            total=of.total,
        )
        session = conversations.get(span.trace, span.trace)
        log.add(session, call, f"{span.trace} {span.id}", span.trace, vendor=of.vendor or "")
    log.into(sessions)


def _seconds(time: float, unit: float) -> float:
    return time / round(1 / unit)


def _check(sources: Sequence[Path], sessions: Sessions, calls: Sequence[_Span], others: Counter[str]) -> None:
    """Refuse spans of which none is a call, or from whose calls no duration can be fitted."""
    where, count = ", ".join(map(str, sources)), len(calls) + others.total()
    if count and not calls:
        found = ", ".join(f"{name} ({number:,})" for name, number in others.most_common(5))
        raise UserError(
            f"{where}: {count:,} spans, none of them a call of a model: none has gen_ai.operation.name "
            f"({', '.join(CALLS)}) or openinference.span.kind LLM; found: {found}"
        )
    tokens = [of for of in (span.attributes for span in calls) if of.prompt is not None or of.answer is not None]
    if calls and not tokens and sessions.mapping.duration == "fitted":
        raise UserError(
            f"{where}: {count:,} spans, {len(calls):,} of them calls of a model, none of which has "
            "gen_ai.usage.input_tokens or llm.token_count.prompt; --set mapping.duration=recorded needs no tokens"
        )


FORMAT = session_format(
    "otel", "spans of language models in OpenTelemetry (gen_ai.*, OpenInference)", SessionMapping, collect
)
