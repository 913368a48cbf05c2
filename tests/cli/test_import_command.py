"""`rllib-scale import`: what it writes and says, and more than 200 malformed sources of each format, each one line."""

import copy
import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from rllib_scale.cli import main
from rllib_scale.workloads.model import Workload
from workloads.trace_samples import copilot_sample, csv_sample, kv_sample, tracelab_sample, write_csv, write_lines


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["import", *(str(argument) for argument in arguments)])


def refuse(output: Path, *arguments: object) -> str:
    """The one line on stderr of an import that refuses its input, having written nothing."""
    result = invoke(*arguments, "--output", output)
    assert result.exit_code == 2, (result.exit_code, result.exception, result.output)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert not output.parent.exists()
    return line.removeprefix("Error: ")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out" / "w.json"


# ---------------------------------------------------------------------- what it does


def test_import_writes_a_workload_and_says_what_was_in_there(tmp_path: Path, output: Path) -> None:
    source = write_lines(tmp_path / "s.jsonl", kv_sample(), kv_sample())
    result = invoke("kv-cache-tester", source, "--output", output, "--unit", "session", "--set", "mapping.base_s=0")
    assert (result.exit_code, result.stderr) == (0, "")
    said = {row.split("│")[1].strip(): row.split("│")[2].strip() for row in result.stdout.splitlines() if "│" in row}
    assert {"sessions": "2", "turns": "4", "calls": "14", "workflows": "2"}.items() <= said.items()
    assert said["input tokens"] == "16,400"
    workload = Workload.load(output)
    assert workload.num_workflows == 2
    np.testing.assert_array_equal(workload.session, [0, 1])
    assert workload.compute_gflop[0] == pytest.approx(0.038 + 1.52)


def test_import_skips_what_is_bad_where_it_is_told_to(tmp_path: Path, output: Path) -> None:
    source = write_lines(tmp_path / "s.jsonl", kv_sample(), {"id": 1}, kv_sample())
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
        assert ("kv_mb_per_token" in result.stdout) == (name != "csv")


# ---------------------------------------------------------------------- malformed sources

MISSING = object()
NUMBERS = ["x", None, [], {}, True, -1, -0.5, float("nan"), float("inf"), 1e300, MISSING]
IF_ANY = ["x", [], {}, True, -1, -0.5, float("nan"), float("inf"), 1e300]
WHOLE = [*NUMBERS, 1.5]
TEXTS = [3, None, [], {}, True, MISSING]
TIMES = [*TEXTS, "", "yesterday", "2026-13-01T00:00:00", "2026-06-01T25:00:00Z"]
LISTS = ["x", 3, None, {}, True, MISSING]
RECORDS = ["x", 3, None, [], True]
Place = tuple[str | int, ...]


def changed(record: Any, place: Place, value: Any) -> Any:
    """A copy with one place changed, or removed."""
    if not place:
        return value
    new = copy.deepcopy(record)
    at = new
    for key in place[:-1]:
        at = at[key]
    if value is MISSING:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return new


def cases(record: Any, places: dict[Place, list[Any]]) -> Iterator[tuple[Any, str]]:
    """Records with one place that is wrong, and the key that an error must name."""
    for place, values in places.items():
        for value in values:
            yield changed(record, place, value), place[-1] if place and isinstance(place[-1], str) else ""


def kv_cases() -> Iterator[tuple[Any, str]]:
    places: dict[Place, list[Any]] = {(): RECORDS, ("requests",): LISTS}
    for i in (0, 1, 4, 5):
        at = ("requests", i)
        places |= {at: RECORDS, (*at, "t"): NUMBERS, (*at, "in"): WHOLE, (*at, "out"): WHOLE, (*at, "stop"): TEXTS}
        places |= {(*at, "type"): [*TEXTS, "x", ""], (*at, "api_time"): IF_ANY}
    at = ("requests", 2)
    places |= {(*at, "duration_ms"): [*IF_ANY, 41000], (*at, "requests"): LISTS, (*at, "requests", 1, "in"): WHOLE}
    places |= {(*at, "requests", 0, "t"): [*NUMBERS, 9.0], (*at, "t"): [*NUMBERS, 5.0, 50.0]}
    places |= {("requests", 5, "t"): [41.0], ("requests", 0, "t"): [12.0]}
    yield from cases(kv_sample(), places)


def copilot_cases() -> Iterator[tuple[Any, str]]:
    places: dict[Place, list[Any]] = {(): RECORDS, ("turns",): LISTS}
    for t, c in ((0, 0), (0, 1), (1, 0)):
        turn = ("turns", t)
        at = (*turn, "llm_calls", c)
        places |= {turn: RECORDS, (*turn, "llm_calls"): LISTS, at: RECORDS, (*at, "timestamp"): TIMES}
        places |= {(*at, "duration_ms"): IF_ANY, (*at, "tokens"): ["x", 3, [], True]}
        places |= {(*at, "tokens", key): [*IF_ANY, 1.5] for key in ("prompt", "completion", "cached")}
    places |= {("turns", 0, "tool_batches"): ["x", 3, {}, True]}
    places["turns", 0, "llm_calls", 0, "tokens", "cached"] = [
        *places["turns", 0, "llm_calls", 0, "tokens", "cached"],
        1501,
    ]
    places["turns", 1, "llm_calls", 0, "timestamp"] = [
        *places["turns", 1, "llm_calls", 0, "timestamp"],
        "2026-06-02T09:59:59Z",
        "2025-06-02T10:01:00+00:00",
        "10:01",
    ]
    return cases(copilot_sample(), places)


def tracelab_cases() -> Iterator[tuple[Any, str]]:
    places: dict[Place, list[Any]] = {}
    for i in range(4):
        places |= {(i,): RECORDS, (i, "session_id"): TEXTS, (i, "timing_events"): [*LISTS, []]}
        places |= {(i, key): WHOLE for key in ("input_tokens_total", "newly_append_tokens", "output_tokens")}
        places |= {(i, "timing_events", 0): RECORDS, (i, "timing_events", 0, "event_type"): TEXTS}
        places |= {(i, "timing_events", 1, "timestamp"): TIMES}
    places[1, "newly_append_tokens"] = [*places[1, "newly_append_tokens"], 1201]
    places[1, "session_id"] = [*places[1, "session_id"], "two"]
    places |= {(2, "timing_events", 0, "timestamp"): [*TIMES, "2026-06-01T04:00:00Z"]}
    return cases(tracelab_sample(), places)


def csv_cases() -> Iterator[tuple[tuple[list[dict], list[dict]], str]]:
    tasks, edges = csv_sample()
    numbers = ["", "x", "-1", "nan", "inf", "1e999", "1,5", "0x1", "None", "--1", "1 2"]
    for row in range(5):
        for column in ("arrival_s", "compute_gflop", "memory_gb", "output_gb"):
            for value in [*numbers, *(["0"] if column == "compute_gflop" else [])]:
                yield (changed(tasks, (row, column), value), edges), column
    for row in range(4):
        for column in ("predecessor", "successor"):
            for value in ("", "x", "nobody", "0"):
                yield (tasks, changed(edges, (row, column), value)), column
        for value in ("a", "c", ""):
            yield (tasks, changed(edges, (row, "workflow"), value)), ""
        yield (tasks, [*edges, edges[row]]), "twice"
        yield (tasks, [*edges, edges[row] | {"successor": edges[row]["predecessor"]}]), "itself"
    for predecessor, successor in (("end", "start"), ("left", "start"), ("end", "right"), ("end", "left")):
        cycle = {"workflow": "b", "predecessor": predecessor, "successor": successor}
        yield (tasks, [*edges, cycle]), "cycle"
    yield (tasks, [*edges, {"workflow": "c", "predecessor": "a", "successor": "b"}]), "'c'"
    yield ([*tasks, tasks[0]], edges), "stood further up"
    yield ([*tasks, tasks[4]], edges), "twice"
    for value in ("-1", "x", "1.5", "", "9" * 30, "²"):
        yield ([row | {"session": value} for row in tasks], edges), "session"
    yield ([row | {"session": str(i)} for i, row in enumerate(tasks)], edges), "session"
    for column in tasks[0]:
        yield ([{key: value for key, value in row.items() if key != column} for row in tasks], edges), column
        yield (
            ([{f"{key}_" if key == column else key: value for key, value in row.items()} for row in tasks], edges),
            column,
        )
    for column in edges[0]:
        yield (tasks, [{key: value for key, value in row.items() if key != column} for row in edges]), column


def write_json(folder: Path, content: Any) -> Path:
    return write_lines(folder / "source.jsonl", *(content if isinstance(content, list) and content else [content]))


def write_record(folder: Path, content: Any) -> Path:
    return write_lines(folder / "source.jsonl", content)


def write_both(folder: Path, content: tuple[list[dict], list[dict]]) -> Path:
    write_csv(folder / "tasks.csv", content[0])
    write_csv(folder / "edges.csv", content[1])
    return folder


FORMATS: dict[str, tuple[Callable[[], Iterator[tuple[Any, str]]], Callable[[Path, Any], Path], Any]] = {
    "kv-cache-tester": (kv_cases, write_record, kv_sample()),
    "copilot": (copilot_cases, write_record, copilot_sample()),
    "tracelab": (tracelab_cases, write_json, tracelab_sample()),
    "csv": (csv_cases, write_both, csv_sample()),
}


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FORMATS)
def test_every_malformed_source_is_one_line(name: str, every: int, tmp_path: Path, output: Path) -> None:
    make, write, sample = FORMATS[name]
    folder = tmp_path / "source"
    folder.mkdir()
    assert invoke(name, write(folder, sample), "--output", tmp_path / "fine.json").exit_code == 0
    count = 0
    for content, key in itertools.islice(make(), 0, None, every):
        line = refuse(output, name, write(folder, content))
        assert line.startswith(str(folder)), line
        assert key in line, (key, line)
        assert len(line) < 400
        count += 1
    assert count >= 200 // every


@pytest.mark.parametrize("count", [40, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_torn_or_scrambled_is_read_or_refused(name: str, count: int, tmp_path: Path) -> None:
    """Bytes cut, changed, doubled and dropped at random: never another end than a workload or one line."""
    _, write, sample = FORMATS[name]
    folder = tmp_path / "source"
    folder.mkdir()
    source = write(folder, sample)
    files = sorted(folder.iterdir())
    whole = {path: path.read_bytes() for path in files}
    draw = random.Random(7)
    refused = 0
    for i in range(count):
        for path, content in whole.items():
            path.write_bytes(content)
        path = draw.choice(files)
        content = bytearray(whole[path])
        at = draw.randrange(len(content))
        if i % 5 == 0:
            del content[at:]
        elif i % 5 == 1:
            content[at] = draw.randrange(256)
        elif i % 5 == 2:
            del content[at : at + draw.randrange(1, 20)]
        elif i % 5 == 3:
            content[at:at] = content[at : at + draw.randrange(1, 40)]
        else:
            other = draw.randrange(len(content))
            content[at], content[other] = content[other], content[at]
        path.write_bytes(content)
        output = tmp_path / f"out{i}" / "w.json"
        result = invoke(name, source, "--output", output)
        if result.exit_code == 0:
            Workload.load(output)
            continue
        refused += 1
        assert result.exit_code == 2, (bytes(content), result.exception)
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"Error: {folder}"), line
        assert not output.parent.exists()
    assert refused > count / 3


@pytest.mark.parametrize("name", ["kv-cache-tester", "copilot", "tracelab"])
def test_files_that_are_wrong_as_a_whole(name: str, tmp_path: Path, output: Path) -> None:
    sample = FORMATS[name][2]
    first = (json.dumps(sample[0] if name == "tracelab" else sample) + "\n").encode()
    zipped = gzip.compress(first * 50)
    for file, content, part in (
        ("empty.jsonl", b"", "no workflow"),
        ("blank.jsonl", b"\n\n  \n", "no workflow"),
        ("torn.jsonl.gz", zipped[: len(zipped) // 2], "not a whole gzip file"),
        ("plain.jsonl.gz", first, "not a whole gzip file"),
        ("broken.jsonl.gz", zipped[:30] + bytes(8) + zipped[38:], "not a whole gzip file"),
        ("latin.jsonl", b'{"id": "\xe9"}\n', "line 1: not UTF-8"),
        ("deep.jsonl", first + b"[" * 200_000 + b"\n", "line 2: not valid JSON"),
        ("long.jsonl", first + b'{"a": ' + b"1" * 10_000 + b"}\n", "line 2: not valid JSON"),
        ("wide.jsonl", first + b" " * (64 * 2**20 + 1), "line 2: longer than 64 MiB"),
        ("wide.json", b" " * (64 * 2**20 + 1), "longer than 64 MiB"),
        ("two.json", first * 2, "not valid JSON"),
    ):
        source = tmp_path / file
        source.write_bytes(content)
        line = refuse(output, name, source)
        assert line.startswith(str(source)), line
        assert part in line, line


def test_csv_files_that_are_wrong_as_a_whole(tmp_path: Path, output: Path) -> None:
    good = write_csv(tmp_path / "good.csv", csv_sample()[0]).read_bytes()
    for content, part in (
        (b"", "empty"),
        (good.splitlines(keepends=True)[0], "no workflow"),
        (good + b"b,more\n", "line 7: 2 values; the header names 6 columns"),
        (good + b'b,"more\n', "not valid CSV"),
        (good + b"b,\xe9,2.5,1,1,1\n", "line 7: not UTF-8 text"),
        (b"a" * (2**20 + 2), "line 1: longer than 1 MiB"),
        (good.replace(b"task,", b"workflow,"), "column 'workflow' stands twice"),
        (good.replace(b"memory_gb", b"memory"), "column 'memory' is unknown"),
    ):
        source = tmp_path / "tasks.csv"
        source.write_bytes(content)
        line = refuse(output, "csv", source)
        assert line.startswith(str(source)), line
        assert part in line, line


@pytest.mark.slow
def test_a_long_cycle_is_named_in_short(tmp_path: Path, output: Path) -> None:
    count = 100_000
    task = {"workflow": "w", "arrival_s": 0, "compute_gflop": 1, "memory_gb": 1, "output_gb": 1}
    write_csv(tmp_path / "tasks.csv", [task | {"task": i} for i in range(count)])
    ring = [{"workflow": "w", "predecessor": i, "successor": (i + 1) % count} for i in range(count)]
    write_csv(tmp_path / "edges.csv", ring)
    line = refuse(output, "csv", tmp_path)
    assert line.endswith("form a cycle: 0 -> 1 -> 2 -> 3 -> 4 -> (99992 more) -> 99997 -> 99998 -> 99999 -> 0")
