"""Spans of language models in every shape that exporters and tools write."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.otel import FORMAT
from rllib_scale.workloads.model import Workload
from workloads.trace_samples import otel_sample, otel_span, write_lines

GB = 0.16e-3
"""Of a token of context, by default."""


def read(path: Path, *, skip_bad: bool = False, **mapping: Any) -> tuple[Workload, Progress]:
    progress = Progress(skip_bad=skip_bad)
    return FORMAT.read([path], FORMAT.mapping(**mapping), progress), progress


def chat(span: str, parent: str | None, start: int, end: int, **usage: Any) -> dict[str, Any]:
    return otel_span("t", span, parent, "chat", start, end, **{"input_tokens": 1000, "output_tokens": 50} | usage)


def test_what_the_console_exporter_prints_is_read(tmp_path: Path) -> None:
    """Objects over several lines, one after the other; a failed span; times are those of the clock here."""
    printed, provider = io.StringIO(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=printed)))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("agent", attributes={"openinference.span.kind": "AGENT"}):
        for prompt in (100, 200):
            usage = {"llm.token_count.prompt": prompt, "llm.token_count.completion": 7}
            tracer.start_span("llm", attributes={"openinference.span.kind": "LLM"} | usage).end()
        failed = tracer.start_span("llm", attributes={"openinference.span.kind": "LLM", "llm.token_count.prompt": 300})
        failed.set_status(Status(StatusCode.ERROR))
        failed.end()
    for name in ("spans.json", "spans.log"):
        (tmp_path / name).write_text(printed.getvalue())
        found, progress = read(tmp_path / name, unit="session")
        np.testing.assert_allclose(found.memory_gb, np.array([107, 207]) * GB)
        assert found.edges.tolist() == [[0, 1]]
        assert progress.counts["calls that failed, left out"] == 1
        assert progress.counts["AGENT spans, not tasks"] == 1


def test_a_table_of_spans_is_read(tmp_path: Path) -> None:
    """A JSON array with a column for each attribute, or nested ones, whole numbers as floats and times in ms."""
    flat = {
        "context.trace_id": "t",
        "context.span_id": "s",
        "parent_id": None,
        "start_time": 1_777_312_800_000,
        "end_time": 1_777_312_804_000,
        "status_code": "OK",
        "attributes.openinference.span.kind": "LLM",
        "attributes.llm.token_count.prompt": 1000.0,
        "attributes.llm.token_count.completion": 50.0,
        "attributes.llm.token_count.prompt_details.cache_read": 400.0,
    }
    nested = {"openinference": {"span": {"kind": "LLM"}}, "llm": {"token_count": {"prompt": 700, "completion": 20}}}
    other = {"context": {"trace_id": "u", "span_id": "s"}, "attributes": nested}
    other |= {"start_time": "2026-04-27T18:01:00Z", "end_time": "2026-04-27T18:01:02Z"}
    (tmp_path / "spans.json").write_text(json.dumps([flat, other]))
    found, progress = read(tmp_path / "spans.json", duration="recorded")
    np.testing.assert_allclose(found.compute_gflop, [4, 2])
    np.testing.assert_allclose(found.arrival_s, [0, 60])
    np.testing.assert_allclose(found.memory_gb, np.array([1050, 720]) * GB)
    assert progress.counts["new input tokens"] == 600 + 700
    assert progress.counts["calls whose times are in 0.001 s, not in ns"] == 1


@pytest.mark.parametrize("unit", ["1", "1e3", "1e6"])
def test_times_in_another_unit_are_the_same_times(unit: str, tmp_path: Path) -> None:
    sample = otel_sample()
    expected, _ = read(write_lines(tmp_path / "ns.jsonl", sample), duration="recorded")
    for span in sample["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("startTimeUnixNano", "endTimeUnixNano"):
            span[key] = int(span[key]) * int(float(unit)) // 10**9
    found, progress = read(write_lines(tmp_path / "other.jsonl", sample), duration="recorded")
    assert found.equals(expected)
    assert sum(count for what, count in progress.counts.items() if "not in ns" in what) == 4


def test_tokens_of_a_cache_beside_the_prompt_are_part_of_the_context(tmp_path: Path) -> None:
    """10,000 tokens of cache beside 106 of prompt are 1.6 GB. So are those of all calls of the vendor."""
    usage = [(106, 10_000, 50), (4, 0, 9000), (5000, 3000, 0), (90, 12_000, 0)]
    spans = [
        chat(f"s{i}", None, 10 * i, 10 * i + 2, input_tokens=prompt) | {"traceId": f"t{i}"}
        for i, (prompt, _, _) in enumerate(usage)
    ]
    for span, (_, read_tokens, written) in zip(spans, usage, strict=True):
        for key, value in (("cache_read", read_tokens), ("cache_creation", written)):
            span["attributes"].append({"key": f"gen_ai.usage.{key}.input_tokens", "value": {"intValue": value}})
    found, progress = read(write_lines(tmp_path / "s.jsonl", {"spans": spans}))
    np.testing.assert_allclose(found.memory_gb, np.array([10_206, 9054, 8050, 12_140]) * GB)
    assert progress.counts["new input tokens"] == 156 + 9004 + 5000 + 90
    assert progress.counts["calls whose cached tokens are counted beside the prompt"] == 4


def test_of_layers_the_innermost_counts_and_what_came_one_after_the_other_is_two_calls(tmp_path: Path) -> None:
    layers = [
        chat("proxy", None, 0, 9, input_tokens=3000, output_tokens=150),  # the sum of all inside
        chat("client", "proxy", 0, 4),
        otel_span("t", "http", "client", "other", 1, 4),
        chat("server", "http", 1, 3),
        chat("next", "proxy", 5, 8),
        chat("late", "next", 8, 9),  # below, but after
    ]
    found, progress = read(write_lines(tmp_path / "s.jsonl", {"spans": layers}), duration="recorded")
    np.testing.assert_allclose(found.compute_gflop, [2, 3, 1])
    assert progress.counts["calls that a layer above recorded, too"] == 2
    other = [chat("outer", None, 0, 9, input_tokens=3000), chat("inner", "outer", 1, 3)]
    found, progress = read(write_lines(tmp_path / "s.jsonl", {"spans": other}))
    assert (found.num_tasks, progress.counts["calls inside another call, kept"]) == (2, 1)


def test_spans_without_a_call_or_without_tokens_are_one_line_that_names_the_key(tmp_path: Path) -> None:
    spans = [chat(f"s{i}", None, i, i + 1) for i in range(3)]
    for span in spans:
        span["attributes"] = span["attributes"][:1]
    path = write_lines(tmp_path / "s.jsonl", {"spans": spans})
    with pytest.raises(UserError, match=r"3 spans, 3 of them calls .* none of which has gen_ai\.usage\.input_tokens"):
        read(path)
    assert read(path, duration="recorded")[1].counts["calls without tokens"] == 3
    for span in spans:
        span["attributes"] = []
    with pytest.raises(UserError, match=r"3 spans, none of them a call.*gen_ai\.operation\.name.*other spans"):
        read(write_lines(path, {"spans": spans}))
    with pytest.raises(UserError, match=r"line 1: neither a span, which has trace_id or traceId, nor a list"):
        read(write_lines(path, {"data": spans}))


def test_only_a_bad_span_is_skipped(tmp_path: Path) -> None:
    spans = [chat(f"s{i}", None, 10 * i, 10 * i + 1) for i in range(4)]
    bad = copy.deepcopy(spans)
    bad[2]["endTimeUnixNano"] = 1
    found, progress = read(write_lines(tmp_path / "s.jsonl", {"spans": bad}), skip_bad=True)
    assert (found.num_tasks, progress.skipped) == (3, 1)
    with pytest.raises(UserError, match=r"line 1: spans\.2: .*span 's2' ends before it begins"):
        read(tmp_path / "s.jsonl")
