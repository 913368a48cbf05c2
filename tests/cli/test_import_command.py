"""`rllib-scale import`: what it writes and says, and what is malformed is refused in one line."""

import copy
import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from refused import refused
from rllib_scale.cli import main
from rllib_scale.workloads.formats.registry import FORMATS
from rllib_scale.workloads.model import Workload
from workloads.mutations import mutations
from workloads.test_wfformat import as_1_4, instance
from workloads.trace_samples import (
    copilot_sample,
    csv_sample,
    dynamo_sample,
    kv_sample,
    mooncake_sample,
    otel_sample,
    scaffolding_sample,
    tracelab_sample,
    write_csv,
    write_lines,
)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["import", *(str(argument) for argument in arguments)])


def check_refused(output: Path, name: str, source: Path, part: str, begins: str = "") -> None:
    """An import refuses its input by one line that names the place, having written nothing."""
    line = refused("import", name, source, "--output", output)
    assert not output.parent.exists()
    assert line.startswith(f"Error: {source}{begins}"), line
    assert part in line, line


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out" / "w.json"


# ---------------------------------------------------------------------- what it does


def test_import_writes_a_workload_and_says_what_was_in_there(tmp_path: Path, output: Path) -> None:
    source = write_lines(tmp_path / "s.jsonl", kv_sample(), kv_sample() | {"id": "other"})
    result = invoke(
        "kv-cache-tester", source, "--output", output, *("--set", "mapping.unit=session", "--set", "mapping.base_s=0")
    )
    assert (result.exit_code, result.stderr) == (0, "")
    said = dict(re.split(r"  +", row.strip(), maxsplit=1) for row in result.stdout.splitlines() if "  " in row.strip())
    assert {"sessions": "2", "turns": "4", "calls": "14", "workflows": "2"}.items() <= said.items()
    assert said["input tokens"] == "16,400"
    workload = Workload.load(output)
    assert workload.num_workflows == 2
    np.testing.assert_array_equal(workload.session, [0, 1])
    assert workload.compute_gflop[0] == pytest.approx(0.038 + 1.52)


def test_a_deadline_is_given_to_workflows_without_one_and_evaluate_shows_who_met_it(
    tmp_path: Path, output: Path
) -> None:
    rows = csv_sample()[0]
    for row in rows:
        row["deadline_s"] = "1e-3" if row["workflow"] == "b" else "inf"
    refused("import", "csv", write_csv(tmp_path / "tasks.csv", rows), "--output", output)  # inf is no number
    rows = [row | {"deadline_s": "1e-3"} for row in rows if row["workflow"] == "b"]
    invoke("csv", write_csv(tmp_path / "tasks.csv", rows), "--output", output, "--deadline", 60)
    assert Workload.load(output).deadline_s.tolist() == [1e-3]
    assert invoke("csv", write_csv(tmp_path / "tasks.csv", csv_sample()[0]), "--output", output, "--deadline", 60)
    assert Workload.load(output).deadline_s.tolist() == [60, 60]
    command = ["evaluate", "fastest-idle", "--workload", str(output), "--scenario", "steady-0.7", "--scales", "8"]
    table = CliRunner().invoke(main, command).stdout
    assert "in time" in table
    assert "100%" in table


def test_import_skips_what_is_bad_where_it_is_told_to(tmp_path: Path, output: Path) -> None:
    source = write_lines(tmp_path / "s.jsonl", kv_sample(), {"id": 1}, kv_sample() | {"id": "other"})
    result = invoke("kv-cache-tester", source, "--output", output, "--skip-bad")
    assert result.exit_code == 0
    assert f"skipped: {source} line 2: requests: field required\n" in result.stdout
    assert "bad records skipped" in result.stdout
    assert Workload.load(output).num_tasks == 14


def test_help_lists_formats_and_settings() -> None:
    text = invoke("--help").stdout
    assert all(name in text for name in FORMATS)
    for name in FORMATS:
        result = invoke(name, "--settings")
        assert result.exit_code == 0
        assert ("kv_mb_per_token" in result.stdout) == (name not in ("csv", "wfformat"))


# ---------------------------------------------------------------------- malformed sources

CALL = ("turns", 0, "llm_calls", 0)
BAD: dict[str, list[tuple[tuple[str | int, ...], Any, str]]] = {  # of a sample: place, value, what the line names
    "kv-cache-tester": [
        (("requests", 1, "t"), -1, "requests.1.t"),
        (("requests", 2, "duration_ms"), 41000, "request 2: duration_ms is 41000"),
    ],
    "copilot": [
        ((*CALL, "timestamp"), "2026-13-01T00:00:00", "turns.0.llm_calls.0.timestamp: must be a time"),
        ((*CALL, "tokens", "cached"), -1, "turns.0.llm_calls.0.tokens.cached"),
    ],
    "tracelab": [
        ((0,), None, "line 1: must be a mapping"),
        ((1, "session_id"), 2, "line 2: session_id"),
        ((1, "newly_append_tokens"), 1201, "newly_append_tokens must be at most the 1200"),
        ((2, "timing_events", 0, "timestamp"), "yesterday", "line 3: timing_events.0.timestamp"),
        ((2, "timing_events"), [], "line 3: timing_events have neither"),
    ],
}
SAMPLES: dict[str, list[Any]] = {
    "kv-cache-tester": [kv_sample()],
    "copilot": [copilot_sample()],
    "tracelab": tracelab_sample(),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_line_that_names_its_place(name: str, tmp_path: Path, output: Path) -> None:
    for place, value, part in BAD[name]:
        records = copy.deepcopy(SAMPLES[name])
        *parents, last = place if name == "tracelab" else (0, *place)
        at: Any = records
        for key in parents:
            at = at[key]
        at[last] = value
        source = write_lines(tmp_path / "source.jsonl", *records)
        check_refused(output, name, source, part, " line ")


def test_a_mistake_in_csv_names_line_and_column(tmp_path: Path, output: Path) -> None:
    tasks, edges = csv_sample()

    def task(row: int, **values: str) -> tuple[list[dict], list[dict]]:
        return [task | values if i == row else task for i, task in enumerate(tasks)], edges

    def edge(row: int, **values: str) -> tuple[list[dict], list[dict]]:
        return tasks, [edge | values if i == row else edge for i, edge in enumerate(edges)]

    for content, part in (
        (task(1, arrival_s=""), "tasks.csv line 3: arrival_s"),
        (task(1, arrival_s="3"), "arrival_s is 3.0, but 2.5"),
        (task(1, memory_gb="nan"), "tasks.csv line 3: memory_gb"),
        (task(1, memory_gb="1_0"), "memory_gb: must be a number, not '1_0'"),
        (([row | {"session": "٣"} for row in tasks], edges), "session: must be a number, not '٣'"),
        (([row | {"workflow": ""} for row in tasks], edges), "tasks.csv line 2: workflow: must be a name"),
        (task(1, task=" "), "tasks.csv line 3: task: must be a name"),
        (task(1, task="start"), "task 'start' appears twice"),
        (([row | {"session": "-1"} for row in tasks], edges), "tasks.csv line 2: session"),
        (([row | {"session": str(i)} for i, row in enumerate(tasks)], edges), "session is 1, but 0"),
        (([*tasks, tasks[0]], edges), "workflow 'b' has rows further up"),
        (([{"task": "x"}], edges), "column 'workflow' is missing"),
        (edge(0, predecessor="nobody"), "edges.csv line 2: predecessor 'nobody'"),
        (edge(0, successor=edges[0]["predecessor"]), "a task cannot need itself"),
        ((tasks, [*edges, edges[0]]), "the edge appears twice"),
    ):
        write_csv(tmp_path / "tasks.csv", content[0])
        write_csv(tmp_path / "edges.csv", content[1])
        check_refused(output, "csv", tmp_path, part)


FILES: dict[str, list[Any]] = {
    "kv-cache-tester": [kv_sample()],
    "copilot": [copilot_sample()],
    "tracelab": [tracelab_sample()[0]],
    "mooncake": [mooncake_sample()[0]],
    "dynamo": [dynamo_sample()[2]],
    "otel": [otel_sample()],
    "scaffolding": [scaffolding_sample()],
    "wfformat": [instance()],
    "wfformat 1.4": [as_1_4(instance(), "parents")],
}
"""What sources hold, of which the last is damaged."""


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("malformed", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_damaged_json_is_read_or_refused(malformed: int, name: str, tmp_path: Path, output: Path) -> None:
    """Until so many were refused, each by one line and exit code 2."""
    sources = [write_lines(tmp_path / f"{i}.json", content) for i, content in enumerate(FILES[name])]
    count = 0
    for damaged in mutations(1, FILES[name][-1]):
        if count == malformed:
            break
        sources[-1].write_bytes(damaged)
        result = invoke(name.split()[0], *sources, "--output", output)
        if result.exit_code == 0:
            Workload.load(output)
            shutil.rmtree(output.parent)
            continue
        count += 1
        assert result.exit_code == 2, (damaged, result.exception)
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"Error: {sources[-1]}"), line
        assert not output.parent.exists()


def test_files_that_are_wrong_as_a_whole(tmp_path: Path, output: Path) -> None:
    first = (json.dumps(copilot_sample()) + "\n").encode()
    zipped = gzip.compress(first * 50)
    for file, content, part in (
        ("empty.jsonl", b"", "empty.jsonl: is empty"),
        ("empty.json", b" ", "empty.json: is empty"),
        ("torn.jsonl.gz", zipped[: len(zipped) // 2], "not a whole gzip file"),
        ("broken.jsonl.gz", zipped[:30] + bytes(8) + zipped[38:], "not a whole gzip file"),
        ("latin.jsonl", b'{"id": "\xe9"}\n', "line 1: not UTF-8"),
        ("deep.jsonl", first + b"[" * 200_000 + b"\n", "line 2: not valid JSON"),
        ("long.jsonl", first + b'{"a": ' + b"1" * 10_000 + b"}\n", "line 2: not valid JSON"),
        ("wide.jsonl", first + b" " * (64 * 2**20 + 1), "line 2: longer than 64 MiB"),
        ("two.json", first + b"{", "not valid JSON"),
    ):
        source = tmp_path / file
        source.write_bytes(content)
        check_refused(output, "copilot", source, part)


def test_csv_files_that_are_wrong_as_a_whole(tmp_path: Path, output: Path) -> None:
    good = write_csv(tmp_path / "good.csv", csv_sample()[0]).read_bytes()
    for content, part in (
        (b"", "empty"),
        (good.splitlines(keepends=True)[0], "no workflow"),
        (good + b"b,more\n", "line 7: 2 values; the header names 6 columns"),
        (good + b'b,"more\n', "not valid CSV"),
        (b"a" * (2**20 + 2), "line 1: longer than 1 MiB"),
        (good.replace(b"task,", b"workflow,"), "column 'workflow' appears twice"),
        (good.replace(b"memory_gb", b"memory"), "column 'memory' is unknown"),
    ):
        source = tmp_path / "tasks.csv"
        source.write_bytes(content)
        check_refused(output, "csv", source, part)


def test_a_long_cycle_is_named_in_short(tmp_path: Path, output: Path) -> None:
    task = {"workflow": "w", "arrival_s": 0, "compute_gflop": 1, "memory_gb": 1, "output_gb": 1}
    write_csv(tmp_path / "tasks.csv", [task | {"task": i} for i in range(100)])
    ring = [{"workflow": "w", "predecessor": i, "successor": (i + 1) % 100} for i in range(100)]
    write_csv(tmp_path / "edges.csv", ring)
    check_refused(output, "csv", tmp_path, "form a cycle: 0 -> 1 -> 2 -> 3 -> 4 -> (92 more) -> 97 -> 98 -> 99 -> 0")


IMPORT = """
import sys
from rllib_scale.cli import main
try:
    main(["import", *sys.argv[1:]])
finally:
    # Of this process alone: ru_maxrss is at least what the process that started it had.
    (peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("peak", int(peak) / 1024, file=sys.stderr)
"""


@pytest.mark.slow
def test_a_source_is_never_held_as_a_whole(tmp_path: Path, output: Path) -> None:
    """96 MB, most of which is not read, take less than half of that beyond what one record takes."""
    peak_mb = []
    for count in (1, 96):
        sessions = (copilot_sample() | {"session_id": number, "unread": "x" * 2**20} for number in range(count))
        source = write_lines(tmp_path / f"{count}.jsonl", *sessions)
        command = [sys.executable, "-c", IMPORT, "copilot", source, "--output", output]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peak_mb.append(float(done.stderr.split()[-1]))
        assert Workload.load(output).num_workflows % count == 0
    assert peak_mb[1] < peak_mb[0] + 48


def test_a_trace_that_replicas_play_says_what_was_read_of_it_and_what_was_left_out(tmp_path: Path) -> None:
    line = {"input_length": 100, "output_length": 5, "hash_ids": [1]}
    lines = [line | {"timestamp": 9000 * k, "session_id": f"{j}"} for j in range(8) for k in range(5)]
    wrong = {"timestamp": 5, "input_length": 0, "output_length": 0, "hash_ids": []}
    file = write_lines(tmp_path / "requests.jsonl", *lines, line | wrong)
    service = {"trace": str(file), "format": "mooncake", "sessions": 1, "warm_up_s": 1.0}
    read = {"8 sessions", "40 calls", "1 calls of 0 tokens, left out"}
    settings = [word for name, value in service.items() for word in ("--set", f"service.{name}={value}")]
    settings += ["--scenario", "agents-replicas", "--scales", "1,2", "--episodes", "1", "--horizon", "50"]
    done = CliRunner().invoke(main, ["evaluate", "lmetric", *settings])
    assert done.exit_code == 0, done.output
    (said,) = [said for said in done.stdout.splitlines() if said.startswith(f"{file}: ")]
    assert read <= {*said.removeprefix(f"{file}: ").split("; ")}
    sweep = {"name": "read", "scenario": "agents-replicas", "methods": [], "env": {"service": service}}
    sweep |= {"evaluation": {"heuristics": ["lmetric"], "scales": [1], "episodes": 1}}
    (tmp_path / "read.yaml").write_text(json.dumps(sweep))
    done = CliRunner().invoke(main, ["validate", str(tmp_path / "read.yaml")])
    assert done.exit_code == 0, done.output
    assert said in done.stdout.splitlines()
