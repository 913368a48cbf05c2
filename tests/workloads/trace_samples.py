"""Small recordings made for the tests, in each format that is imported. No one else's data."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st


def request(t: float, tokens: int, answer: int, took: float | None = None, stop: str = "tool_use", **more: Any) -> dict:
    """A request of kv-cache-tester."""
    timing = {} if took is None else {"api_time": took}
    return {"t": t, "type": "n", "model": "m", "in": tokens, "out": answer, "stop": stop, **timing, **more}


def subagent(t: float, duration_ms: float | None, *requests: dict) -> dict:
    """A subagent of kv-cache-tester, whose result came at `t`."""
    return {"t": t, "type": "subagent", "agent_id": "a", "duration_ms": duration_ms, "requests": list(requests)}


def kv_session(*requests: dict) -> dict:
    """A session of kv-cache-tester."""
    return {"id": "made", "models": ["m"], "block_size": 64, "requests": list(requests)}


def kv_sample() -> dict:
    """Two turns: four calls, beside them a subagent with two; then one. The third call has no duration."""
    return kv_session(
        request(0.0, 1000, 100, 4.0),
        request(10.0, 1300, 200, 5.5),
        subagent(40.0, 24000, request(0.0, 500, 50, 3.0), request(8.0, 800, 20, 10.0)),
        request(41.0, 1800, 30, None, stop=""),
        request(42.0, 1900, 40, 2.0, stop="end_turn"),
        request(100.0, 900, 10, 3.0, stop="end_turn"),
    )


def copilot_call(clock: str, duration_ms: float | None, prompt: int, completion: int, cached: int) -> dict:
    """A call of Copilot on 2 June 2026."""
    return {
        "message_id": clock,
        "timestamp": f"2026-06-02T{clock}+00:00",
        "duration_ms": duration_ms,
        "initiator_type": "agent",
        "model": "Model A",
        "result": "Success",
        "status_code": "OK",
        "tokens": {"total": prompt + completion, "prompt": prompt, "completion": completion, "cached": cached},
    }


def copilot_sample() -> dict:
    """Two turns of two calls and one; the second call stands first."""
    batch = {"timestamp": "2026-06-02T10:00:05+00:00", "duration_ms": 900.0, "function_calls": []}
    first = [copilot_call("10:00:06.5", 2000.0, 1500, 100, 1000), copilot_call("10:00:00", 4500.0, 1000, 200, 0)]
    second = [copilot_call("10:01:00", 3000.0, 1700, 50, 1600)]
    turns = [{"turn_id": "a", "llm_calls": first, "tool_batches": [batch]}, {"turn_id": "b", "llm_calls": second}]
    return {"session_id": "made", "date": "2026-06-02", "turns": turns}


def tracelab_round(session: str, total: int, new: int, answer: int, *events: tuple[str, str]) -> dict:
    """A round of TraceLab with events (type, clock) on 1 June 2026."""
    timing = [{"event_type": kind, "timestamp": f"2026-06-01T{clock}Z"} for kind, clock in events]
    return {
        "provider": "p",
        "session_id": session,
        "input_tokens_total": total,
        "prefix_tokens": total - new,
        "newly_append_tokens": new,
        "output_tokens": answer,
        "timing_events": timing,
        "tools": [],
    }


def tracelab_sample() -> list[dict]:
    """A session of two turns, and one that began a minute before it."""
    return [
        tracelab_round(
            "one", 1000, 1000, 90, ("user_message", "05:00:00.5"), ("text", "05:00:03"), ("tool_call", "05:00:04")
        ),
        tracelab_round("one", 1200, 110, 60, ("tool_result", "05:00:09"), ("text", "05:00:11")),
        tracelab_round("one", 1300, 40, 20, ("user_message", "05:01:00"), ("reasoning", "05:01:02.25")),
        tracelab_round("two", 700, 700, 30, ("user_message", "04:59:00.5"), ("text", "04:59:01.5")),
    ]


def mooncake_sample() -> list[dict]:
    """A prompt of three blocks, one that shares two of them, and two turns of a conversation."""
    return [
        {"timestamp": 27482, "input_length": 1500, "output_length": 52, "hash_ids": [46, 47, 48]},
        {"timestamp": 30535, "input_length": 1200, "output_length": 26, "hash_ids": [46, 47, 50]},
        {"timestamp": 31000, "input_length": 700, "output_length": 10, "hash_ids": [60, 61], "session_id": "s"},
        {"delay": 500, "input_length": 900, "output_length": 20, "hash_ids": [60, 62], "session_id": "s"},
    ]


def dynamo_request(session: str, began_ms: int, took_ms: int, tokens: int, **more: Any) -> dict:
    """A call of Dynamo; `agent` is its trajectory and `parent` the one above."""
    context = {"session_id": session, "trajectory_id": more.pop("agent", session)}
    context |= {"parent_trajectory_id": more.pop("parent")} if "parent" in more else {}
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": began_ms + took_ms,
        "agent_context": context,
        "request": {"request_id": str(began_ms), "input_tokens": tokens, "output_tokens": 50, "total_time_ms": took_ms}
        | more,
    }


def dynamo_sample() -> list[dict]:
    """Two turns; in the first a subagent between two calls, in the order in which they ended; and a tool."""
    base = 1_777_312_800_000
    tool = {"tool_call_id": "c", "tool_class": "search", "status": "succeeded", "duration_ms": 420.5}
    return [
        dynamo_request("run", base, 2000, 1000, finish_reason_metadata={"finish_reason": "tool_calls"}),
        {"timestamp": 3, "event": {"event_type": "tool_end", "event_time_unix_ms": base + 2500, "tool": tool}},
        {
            "timestamp": 9,
            "event": dynamo_request("run", base + 3000, 4000, 500, agent="sub", parent="run", cached_tokens=100),
        },
        dynamo_request("run", base + 8000, 1000, 1600, finish_reason_metadata={"finish_reason": "stop"}),
        dynamo_request(
            "run",
            base + 60_000,
            2000,
            1700,
            replay={"trace_block_size": 64, "input_length": 1700, "input_sequence_hashes": list(range(27))},
        ),
    ]


def otel_span(trace: str, span: str, parent: str | None, operation: str, start: int, end: int, **usage: Any) -> dict:
    """A span of OTLP from second to second; `usage` are tokens."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": {"stringValue": operation}}
    attributes |= {f"gen_ai.usage.{name}": {"intValue": str(count)} for name, count in usage.items()}
    above = {} if parent is None else {"parentSpanId": parent}
    return {
        "traceId": trace,
        "spanId": span,
        "startTimeUnixNano": str((1_777_312_800 + start) * 10**9),
        "endTimeUnixNano": (1_777_312_800 + end) * 10**9,
        "attributes": [{"key": key, "value": value} for key, value in attributes.items()],
        **above,
    }


def otel_sample() -> dict:
    """A conversation of two traces: an agent with two calls, between them another agent and a tool; then one call."""
    spans = [
        otel_span("t1", "c1", "a", "chat", 0, 3, input_tokens=1000, output_tokens=40),
        otel_span("t1", "tool", "a", "execute_tool", 3, 4),
        otel_span("t1", "c2", "http", "chat", 5, 9, input_tokens=600, output_tokens=10),
        otel_span("t1", "http", "b", "other", 5, 9),
        otel_span("t1", "b", "a", "invoke_agent", 4, 9),
        otel_span("t1", "c3", "a", "chat", 10, 12, input_tokens=1500, output_tokens=30),
        otel_span("t1", "a", None, "invoke_agent", 0, 12),
        otel_span("t2", "c4", None, "chat", 50, 51, prompt_tokens=1600, completion_tokens=5),
    ]
    spans[0]["attributes"].append({"key": "gen_ai.conversation.id", "value": {"stringValue": "talk"}})
    spans[-1]["attributes"].append({"key": "gen_ai.conversation.id", "value": {"stringValue": "talk"}})
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}


def message(role: str, *path: int, conversation: int = 0) -> dict:
    """A message in a trace of scaffolding."""
    return {"event_type": "message", "branch_path": list(path), "conversation_id": conversation, "role": role}


def scaffolding_sample() -> dict:
    """A call, a tool, a fork into two branches with a call each and a tool in one, the join, and a second turn."""

    def answer(prompt: int, *path: int, conversation: int = 0) -> dict:
        counts = {"prompt_tokens": prompt, "completion_tokens": 100}
        return message("assistant", *path, conversation=conversation) | counts

    def tool(ms: float, *path: int) -> dict:
        return {"event_type": "tool_call", "branch_path": list(path), "tool_name": "t", "duration_ms": ms}

    return {
        "trace_id": "made",
        "events": [
            message("system"),
            message("user"),
            answer(1000),
            tool(500),
            {"event_type": "parallel_start", "branch_path": [], "num_branches": 2},
            answer(300, 0, conversation=1),
            answer(400, 1, conversation=2),
            tool(250, 1),
            {"event_type": "parallel_end", "branch_path": []},
            answer(1500),
            message("user"),
            answer(1700),
        ],
    }


def csv_sample() -> tuple[list[dict], list[dict]]:
    """Rows of tasks and of edges: a diamond, and a single task that arrived before it."""
    tasks = [
        {"workflow": "b", "task": name, "arrival_s": "2.5", "compute_gflop": work, "memory_gb": "1", "output_gb": "0.5"}
        for name, work in (("start", "4"), ("left", "2"), ("right", "3"), ("end", "1"))
    ]
    tasks.append(
        {"workflow": "a", "task": "x", "arrival_s": "1", "compute_gflop": "7", "memory_gb": "2", "output_gb": "0"}
    )
    pairs = [("left", "end"), ("start", "left"), ("start", "right"), ("right", "end")]
    return tasks, [{"workflow": "b", "predecessor": p, "successor": s} for p, s in pairs]


def write_lines(path: Path, *records: Any) -> Path:
    """JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_csv(path: Path, rows: list[dict]) -> Path:
    """A CSV file with the columns of the first row."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


tenths = st.integers(0, 600).map(lambda n: n / 10)
token_counts = st.integers(1, 5000)


@st.composite
def chains(draw: Any, longest: int) -> tuple[list[dict], float]:
    """Requests one after the other, each with the `gap` before it, and when the last one ended."""
    requests, now = [], 0.0
    for i in range(draw(st.integers(1, longest))):
        gap, took = draw(tenths) if i else 0.0, draw(tenths) + 0.5
        requests.append(request(now + gap, draw(token_counts), draw(token_counts), took, gap=gap))
        now = now + gap + took
    return requests, now


@st.composite
def kv_sessions(draw: Any) -> dict:
    """A chain of calls, with subagents after some of them; `gap` is what lay before a call of the chain."""
    requests: list[dict] = []
    now = 0.0
    for i in range(draw(st.integers(1, 6))):
        subagents = []
        if i and requests[-1]["stop"] == "tool_use":
            ended = now
            for own, took in draw(st.lists(chains(3), max_size=2)):
                returned = ended + draw(tenths) + took
                subagents.append(subagent(returned, took * 1000, *own) | {"agent_id": f"{i} {len(subagents)}"})
                now = max(now, returned)
        gap, took = draw(tenths) if i else 0.0, draw(tenths) + 0.5
        stop = draw(st.sampled_from(["tool_use", "end_turn"]))
        requests += sorted(subagents, key=lambda entry: entry["t"])
        requests.append(request(now + gap, draw(token_counts), draw(token_counts), took, stop, gap=gap))
        now = now + gap + took
    return kv_session(*requests)
