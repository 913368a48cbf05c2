"""Recorded sessions become workflows: literal instances, and what is conserved."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_scale.config.yaml_files import build_model
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.registry import find_format
from workloads.trace_samples import (
    copilot_call,
    copilot_sample,
    csv_sample,
    dynamo_request,
    dynamo_sample,
    kv_sample,
    kv_session,
    kv_sessions,
    mooncake_sample,
    otel_sample,
    request,
    scaffolding_sample,
    subagent,
    tracelab_round,
    tracelab_sample,
    write_csv,
    write_lines,
)


def read(name, *sources, progress=None, **mapping):
    chosen = find_format(name)
    return chosen.read(list(sources), build_model(chosen.mapping, mapping, "test"), progress or Progress())


def edges_of(workload, w):
    return workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]].tolist()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "source.jsonl"


# ---------------------------------------------------------------------- kv-cache-tester


def test_a_turn_is_a_workflow_with_its_subagent(path):
    progress = Progress()
    read_ = read("kv-cache-tester", write_lines(path, kv_sample()), duration="recorded", progress=progress)
    np.testing.assert_array_equal(read_.arrival_s, [0, 100])
    np.testing.assert_array_equal(read_.session, [0, 0])
    # The call without a duration is given 1.19 + 0.038 x 0.3 + 15.2 x 0.03 s, cut to the 1 s until the next began.
    np.testing.assert_allclose(read_.compute_gflop, [4, 5.5, 1, 2, 3, 10, 3], rtol=1e-12)
    np.testing.assert_allclose(read_.delay_s, [0, 6, 7, 0, 0.5, 5, 0], rtol=1e-12)
    assert edges_of(read_, 0) == [[0, 1], [1, 2], [1, 4], [2, 3], [4, 5], [5, 2]]
    assert edges_of(read_, 1) == []
    assert {key: count for key, count in progress.counts.items() if count} == {
        **{"sessions": 1, "turns": 2, "calls": 7, "subagents": 1, "input tokens": 8200, "output tokens": 450},
        **{"new input tokens": 1000 + 200 + 300 + 70 + 500 + 250 + 900},
        **{"calls without a duration": 1, "calls cut at the next start": 1},
    }


def test_a_session_is_a_workflow_with_the_persons_gaps(path):
    write_lines(path, kv_sample())
    one = read("kv-cache-tester", path, unit="session", duration="recorded")
    assert one.num_workflows == 1
    np.testing.assert_allclose(one.compute_gflop, [4, 5.5, 1, 2, 3, 3, 10], rtol=1e-12)
    np.testing.assert_allclose(one.delay_s, [0, 6, 7, 0, 56, 0.5, 5], rtol=1e-12)
    assert edges_of(one, 0) == [[0, 1], [1, 2], [1, 5], [2, 3], [3, 4], [5, 6], [6, 2]]
    progress = Progress()
    capped = read("kv-cache-tester", path, unit="session", tool_gap_cap_s=5.5, think_gap_cap_s=50, progress=progress)
    np.testing.assert_allclose(capped.delay_s, [0, 5.5, 5.5, 0, 50, 0.5, 5], rtol=1e-12)
    assert progress.counts["gaps cut to their cap"] == 3


def test_demands_follow_from_tokens(path):
    write_lines(path, kv_sample())
    fitted = read("kv-cache-tester", path)
    seconds = [2.748, 4.2376, 1.6574, 1.80066, 1.969, 1.5035, 1.19 + 0.0342 + 0.152]
    context = np.array([1100, 1500, 1830, 1940, 550, 820, 910])
    np.testing.assert_allclose(fitted.compute_gflop, seconds, rtol=1e-12)
    np.testing.assert_allclose(fitted.memory_gb, context * 0.16e-3, rtol=1e-12)
    np.testing.assert_allclose(fitted.output_gb, context * 0.16e-3, rtol=1e-12)
    progress = Progress()
    fit = {"base_s": 1, "s_per_1k_new": 0, "s_per_1k_output": 10, "s_per_1k_context": 1, "reference_gflops": 2}
    memory = {"weights_gb": 0.5, "kv_mb_per_token": 1, "max_memory_gb": 2.3}
    other = read("kv-cache-tester", path, progress=progress, **fit, **memory)
    np.testing.assert_allclose(other.compute_gflop[:2], [2 * (1 + 1 + 1), 2 * (1 + 2 + 1.3)], rtol=1e-12)
    np.testing.assert_allclose(other.memory_gb, np.minimum(context / 1000 + 0.5, 2.3), rtol=1e-12)
    np.testing.assert_allclose(other.output_gb, context / 1000, rtol=1e-12)
    assert progress.counts["calls clipped to max_memory_gb"] == 2


def test_a_person_may_speak_where_a_tool_was_asked_for(path):
    interrupted = kv_session(
        request(0, 10, 10, 1),
        request(5, 30, 10, 1, input_types=["text"]),
        request(9, 50, 10, 1, input_types=["tool_result"]),
    )
    np.testing.assert_array_equal(read("kv-cache-tester", write_lines(path, interrupted)).arrival_s, [0, 5])


BESIDE = [request(0, 10, 10, 10), request(2, 10, 10, 4), request(20, 10, 10, 1), request(20, 10, 10, 1)]
OVERLAP = [request(0, 10, 10, 4.6), request(4, 10, 10, 1)]
OUTLASTING = [
    request(0, 10, 10, 4),
    subagent(5, None, request(0, 10, 10, 20)),
    request(6, 10, 10, 2),
    request(30, 10, 10, 1),
]


@pytest.mark.parametrize(
    ("requests", "tolerance_s", "seconds", "delays", "edges", "beside"),
    [
        (BESIDE, 1, [10, 4, 1, 1], [0, 2, 10, 10], [[0, 2], [0, 3], [1, 2]], 2),  # the last after the latest to end
        (OVERLAP, 1, [4, 1], [0, 0], [[0, 1]], 0),  # the clock explains it
        (OVERLAP, 0.5, [4.6, 1], [0, 4], [], 1),
        (OUTLASTING, 1, [4, 2, 1, 20], [0, 2, 5, 1], [[0, 1], [0, 3], [1, 2], [3, 2]], 0),
    ],
)
def test_calls_that_overlap(path, requests, tolerance_s, seconds, delays, edges, beside):
    settings = {"unit": "session", "duration": "recorded", "clock_tolerance_s": tolerance_s}
    progress = Progress()
    one = read("kv-cache-tester", write_lines(path, kv_session(*requests)), **settings, progress=progress)
    np.testing.assert_allclose(one.compute_gflop, seconds, rtol=1e-12)
    np.testing.assert_allclose(one.delay_s, delays, rtol=1e-12)
    assert edges_of(one, 0) == edges
    assert progress.counts["calls beside another"] == beside


EARLY = [
    request(0, 10, 10, 100, stop="end_turn"),
    request(12, 10, 10, 4, stop="end_turn"),
    request(20, 10, 10, 1),
]
"""Two turns began while the first one, of 100 s, still ran; the third came 4 s after the end of the second."""


def test_a_turn_is_played_after_the_previous_one_of_its_session(path):
    write_lines(path, kv_session(*EARLY))
    overlapping = "turns that began before the previous one had ended"
    progress = Progress()
    turns = read("kv-cache-tester", path, duration="recorded", progress=progress)
    np.testing.assert_allclose(turns.arrival_s, [0, 100, 108])
    assert progress.counts[overlapping] == 1
    whole = read("kv-cache-tester", path, duration="recorded", unit="session")
    assert edges_of(whole, 0) == [[0, 1], [1, 2]]
    np.testing.assert_allclose(whole.delay_s, [0, 0, 4])
    progress = Progress()
    recorded = read("kv-cache-tester", path, duration="recorded", overlapping_turns="as-recorded", progress=progress)
    np.testing.assert_allclose(recorded.arrival_s, [0, 12, 20])
    assert progress.counts[overlapping] == 2


@given(st.lists(kv_sessions(), min_size=1, max_size=3), st.sampled_from(["turn", "session"]))
def test_calls_and_tokens_are_conserved(tmp_path_factory, sessions, unit):
    """When they begin is seen in tests/simulator/test_recorded_replay.py."""
    sessions = [session | {"id": str(number)} for number, session in enumerate(sessions)]
    path = write_lines(tmp_path_factory.mktemp("sessions") / "s.jsonl", *sessions)
    progress = Progress()
    workload = read("kv-cache-tester", path, unit=unit, kv_mb_per_token=1, progress=progress)
    chains = [[entry for entry in session["requests"] if "in" in entry] for session in sessions]
    agents = [entry for session in sessions for entry in session["requests"] if "requests" in entry]
    calls = [call for chain in [*chains, *(agent["requests"] for agent in agents)] for call in chain]
    turns = sum(1 + sum(call["stop"] == "end_turn" for call in chain[:-1]) for chain in chains)
    counts = [progress.counts[what] for what in ("sessions", "turns", "calls", "subagents")]
    assert counts == [len(sessions), turns, len(calls), len(agents)]
    assert workload.num_workflows == (turns if unit == "turn" else len(sessions))
    assert sorted(set(workload.session.tolist())) == list(range(len(sessions)))
    tokens = [call["in"] + call["out"] for call in calls]
    np.testing.assert_allclose(np.sort(workload.output_gb), np.sort(tokens) / 1000, atol=1e-9)


# ---------------------------------------------------------------------- copilot, tracelab, csv


def test_copilot(path):
    write_lines(path, copilot_sample())
    one = read("copilot", path, duration="recorded", unit="session")
    np.testing.assert_allclose(one.compute_gflop, [4.5, 2, 3], rtol=1e-9)
    np.testing.assert_allclose(one.delay_s, [0, 2, 51.5], rtol=1e-6)
    np.testing.assert_allclose(one.memory_gb, [0.192, 0.256, 0.28], rtol=1e-9)
    assert edges_of(one, 0) == [[0, 1], [1, 2]]
    turns = read("copilot", path)
    np.testing.assert_allclose(turns.arrival_s, [0, 60], atol=1e-6)
    new = np.array([1000, 500, 100])
    np.testing.assert_allclose(
        turns.compute_gflop, 1.19 + 0.038e-3 * new + 15.2e-3 * np.array([200, 100, 50]), rtol=1e-9
    )


def test_copilot_calls_beside_each_other_and_without_tokens(path):
    beside = copilot_sample()
    beside["turns"][0]["llm_calls"].append(copilot_call("10:00:01", 1000.0, 300, 10, 0) | {"tokens": None})
    beside["turns"].insert(1, {"turn_id": "c", "llm_calls": []})
    progress = Progress()
    one = read("copilot", write_lines(path, beside), unit="session", duration="recorded", progress=progress)
    assert edges_of(one, 0) == [[0, 2], [1, 2], [2, 3]]
    np.testing.assert_allclose(one.delay_s, [0, 1, 2, 51.5], atol=1e-5)
    np.testing.assert_allclose(one.output_gb[1], 0)
    assert (progress.counts["calls without tokens"], progress.counts["turns"]) == (1, 2)


def test_copilot_shards_in_folders(tmp_path):
    for day in (1, 2):
        folder = tmp_path / f"date=2026-06-0{day}"
        folder.mkdir()
        sample = json.dumps(copilot_sample()).replace("2026-06-02", f"2026-06-0{day}")
        sample = sample.replace('"made"', f'"made {day}"') + "\n\n" + sample.replace('"made"', f'"other {day}"') + "\n"
        (folder / "shard-0000.jsonl.gz").write_bytes(gzip.compress(sample.encode()))
    workload = read("copilot", tmp_path, unit="session")
    np.testing.assert_allclose(workload.arrival_s, [0, 0, 86400, 86400], atol=1e-5)
    np.testing.assert_array_equal(workload.session, [0, 1, 2, 3])


def test_tracelab(path):
    write_lines(path, *tracelab_sample())
    both = read("tracelab", path, unit="session", duration="recorded")
    np.testing.assert_allclose(both.arrival_s, [0, 60], atol=1e-6)
    np.testing.assert_array_equal(both.session, [1, 0])
    np.testing.assert_allclose(both.compute_gflop, [1, 3.5, 2, 2.25], atol=1e-6)
    np.testing.assert_allclose(both.delay_s, [0, 0, 5, 49], atol=1e-6)
    turns = read("tracelab", path)
    np.testing.assert_allclose(turns.arrival_s, [0, 60, 119.5], atol=1e-6)
    np.testing.assert_array_equal(turns.session, [1, 0, 0])
    new = np.array([700, 1000, 110, 40])
    np.testing.assert_allclose(turns.compute_gflop, 1.19 + 0.038e-3 * new + 15.2e-3 * np.array([30, 90, 60, 20]))


def test_tracelab_rounds_may_come_in_any_order(path):
    records = tracelab_sample()
    in_order = read("tracelab", write_lines(path, *records), duration="recorded")
    mixed = read("tracelab", write_lines(path, *(records[i] for i in (1, 3, 0, 2))), duration="recorded")
    assert mixed.equals(in_order)


def test_tracelab_takes_the_last_input_before_the_first_output(path):
    late = tracelab_round(
        "one", 9, 9, 9, ("user_message", "05:00:00"), ("tool_result", "05:00:02"), ("text", "05:00:03"),
        ("tool_result", "05:00:04"), ("usage_report", "05:00:09"), ("tool_call", "05:00:05"),
    )  # fmt: skip
    np.testing.assert_allclose(
        read("tracelab", write_lines(path, late), duration="recorded").compute_gflop, [3], atol=1e-6
    )


def test_mooncake(path):
    found = read("mooncake", write_lines(path, *mooncake_sample()), s_per_1k_context=0.5)
    new = np.array([1500, 1200 - 2 * 512, 700, 900 - 512])
    context, output = np.array([1500, 1200, 700, 900]), np.array([52, 26, 10, 20])
    seconds = 1.19 + 0.038e-3 * new + 15.2e-3 * output + 0.5e-3 * context
    np.testing.assert_allclose(found.compute_gflop, seconds, rtol=1e-12)
    np.testing.assert_allclose(found.arrival_s, [0, 3.053, 3.518, 3.518 + seconds[2] + 0.5], rtol=1e-9)
    assert found.session.tolist() == [0, 1, 2, 2]
    small = [request | {"input_length": request["input_length"] // 32} for request in mooncake_sample()]
    cached = read("mooncake", write_lines(path, *small), block_size=16).compute_gflop[1]
    np.testing.assert_allclose(cached, 1.19 + 0.038e-3 * (37 - 32) + 15.2e-3 * 26)


def test_dynamo(path):
    progress = Progress()
    turns = read("dynamo", write_lines(path, *dynamo_sample()), duration="recorded", progress=progress)
    np.testing.assert_allclose(turns.arrival_s, [0, 60])
    np.testing.assert_allclose(turns.compute_gflop, [2, 1, 4, 2])
    np.testing.assert_allclose(turns.delay_s, [0, 1, 1, 0])
    assert edges_of(turns, 0) == [[0, 1], [0, 2], [2, 1]]
    assert (progress.counts["tool_end events, not tasks"], progress.counts["subagents"]) == (1, 1)
    assert progress.counts["new input tokens"] == 1000 + 400 + 1600 + 1700
    again = read("dynamo", write_lines(path, *reversed(dynamo_sample())), duration="recorded")
    assert again.equals(turns), "records may come in any order"


def test_otel(path):
    progress = Progress()
    turns = read("otel", write_lines(path, otel_sample()), duration="recorded", progress=progress)
    np.testing.assert_allclose(turns.arrival_s, [0, 50], atol=1e-6)
    np.testing.assert_allclose(turns.compute_gflop, [3, 2, 4, 1], atol=1e-6)
    np.testing.assert_allclose(turns.output_gb, np.array([1040, 1530, 610, 1605]) * 0.16e-3)
    assert edges_of(turns, 0) == [[0, 1], [0, 2], [2, 1]]
    assert turns.session.tolist() == [0, 0]
    assert progress.counts["execute_tool spans, not tasks"] == 1
    spans = otel_sample()["resourceSpans"][0]["scopeSpans"][0]["spans"]
    flat = [
        {
            "trace_id": span["traceId"],
            "span_id": span["spanId"],
            "parent_span_id": span.get("parentSpanId"),
            "start_time": f"2026-04-27T18:00:{int(span['startTimeUnixNano']) // 10**9 - 1_777_312_800:02}.000000",
            "end_time": f"2026-04-27T18:00:{int(span['endTimeUnixNano']) // 10**9 - 1_777_312_800:02}Z",
            "attributes": {
                entry["key"]: int(value) if value.isdigit() else value
                for entry in span["attributes"]
                for value in entry["value"].values()
            },
        }
        for span in spans
    ]
    write_lines(path, *({"trace_id": span["trace_id"], "spans": [span]} for span in reversed(flat)))
    np.testing.assert_allclose(read("otel", path, duration="recorded").delay_s, turns.delay_s, atol=1e-6)


def test_scaffolding(path):
    progress = Progress()
    write_lines(path, scaffolding_sample(), scaffolding_sample())
    turns = read("scaffolding", path, progress=progress)
    new = np.array([1000, 400, 300, 400, 100])
    fitted = 1.19 + 0.038e-3 * new + 15.2e-3 * 100
    np.testing.assert_allclose(turns.compute_gflop, fitted, rtol=1e-9)
    assert edges_of(turns, 0) == [[0, 1], [0, 2], [0, 3], [2, 1], [3, 1]]
    np.testing.assert_allclose(turns.delay_s, [0, 0.25, 0.5, 0.5, 0], atol=1e-9)
    np.testing.assert_allclose(turns.arrival_s[1], 0.75 + fitted[0] + fitted[3] + fitted[1])
    assert progress.counts["traces that were read before"] == 1
    assert read("scaffolding", path, unit="session").num_workflows == 1


def test_agents_in_a_circle_are_cut(path):
    records = [dynamo_request("s", i * 1000, 500, 10, agent=f"{i}", parent=f"{(i + 1) % 60}") for i in range(60)]
    records += [dynamo_request("s", i * 1000, 500, 10, agent=f"{i}", parent=f"{i + 1}") for i in range(100, 1500)]
    assert read("dynamo", write_lines(path, *records), unit="session").num_tasks == 1460


def test_csv(tmp_path):
    tasks, edges = csv_sample()
    write_csv(tmp_path / "tasks.csv", tasks)
    write_csv(tmp_path / "edges.csv", edges)
    workload = read("csv", tmp_path)
    np.testing.assert_array_equal(workload.arrival_s, [0, 1.5])
    np.testing.assert_array_equal(workload.compute_gflop, [7, 4, 2, 3, 1])
    np.testing.assert_array_equal(workload.delay_s, np.zeros(5))
    np.testing.assert_array_equal(workload.session, [1, 0])
    assert edges_of(workload, 1) == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert read("csv", tmp_path / "tasks.csv", tmp_path / "edges.csv").equals(workload)
    assert len(read("csv", tmp_path / "tasks.csv").edges) == 0
    tasks[1]["arrival_s"] = "2.50"
    for row, delay in zip(tasks, ["0", "1.5", "0", "0", "2"], strict=True):
        row |= {"delay_s": delay, "session": "7" if row["workflow"] == "a" else "3"}
        row |= {"deadline_s": "60" if row["workflow"] == "a" else "5"}
    write_csv(tmp_path / "tasks.csv", tasks)
    for row, gb in zip(edges, ["1", "2.5", "0", "0.25"], strict=True):
        row["gb"] = gb
    write_csv(tmp_path / "edges.csv", edges)
    more = read("csv", tmp_path)
    assert more.deadline_s.tolist() == [60, 5]
    assert more.moved_gb.tolist() == [2.5, 0, 1, 0.25]
    np.testing.assert_array_equal(more.session, [7, 3])
    np.testing.assert_array_equal(more.delay_s, [2, 0, 1.5, 0, 0])
