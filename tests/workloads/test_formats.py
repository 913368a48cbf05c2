"""What every format does: a bad record is refused, or left out where that is wanted; progress is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.registry import find_format
from workloads.test_wfformat import instance
from workloads.trace_samples import (
    copilot_sample,
    csv_sample,
    dynamo_sample,
    kv_sample,
    mooncake_sample,
    otel_sample,
    tracelab_sample,
    write_csv,
    write_lines,
)

RECORDS: dict[str, tuple[Any, Any]] = {
    "kv-cache-tester": (kv_sample(), {"id": 1}),
    "copilot": (copilot_sample(), {"turns": 3}),
    "tracelab": (tracelab_sample()[0], tracelab_sample()[0] | {"output_tokens": -5}),
    "mooncake": (mooncake_sample()[0], {"timestamp": 1, "input_length": -1, "output_length": 1}),
    "dynamo": (dynamo_sample()[0], {"event_type": "request_end"}),
    "otel": (otel_sample(), {"spans": [{"span_id": "a"}]}),
    "wfformat": (instance(), instance(schemaVersion="1.3")),
}
"""A good record and a bad one."""


def sources(folder: Path, name: str, bad: bool) -> list[Path]:
    """Two good records, or workflows of CSV; between them a bad one where that is wanted."""
    folder.mkdir()
    if name == "csv":
        rows = [task | {"workflow": workflow} for workflow in "abc" for task in csv_sample()[0][:1]]
        rows[1]["compute_gflop"] = "-1"
        return [write_csv(folder / "source.csv", rows if bad else rows[::2])]
    good, damaged = RECORDS[name]
    return [write_lines(folder / "source.jsonl", *([good, damaged, good] if bad else [good, good]))]


@pytest.mark.parametrize("name", [*RECORDS, "csv"])
def test_a_bad_record_is_refused_or_left_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rllib_scale.workloads.formats.base.EVERY_S", 0.0)
    found, given = find_format(name), sources(tmp_path / "bad", name, bad=True)
    with pytest.raises(UserError, match=rf"{given[-1]} line [23]: ") as refused:
        found.read(given, found.mapping(), Progress())
    said: list[str] = []
    progress = Progress(say=said.append, skip_bad=True)
    read = found.read(given, found.mapping(), progress)
    assert read.equals(found.read(sources(tmp_path / "good", name, bad=False), found.mapping(), Progress()))
    assert progress.skipped == 1
    assert any(line.startswith(f"skipped: {refused.value}") for line in said)
    assert any(line.startswith(f"{given[-1]} line ") for line in said), "how far it is"


def test_lines_without_a_record_are_said_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rllib_scale.workloads.formats.base.EVERY_S", 0.0)
    found, said = find_format("copilot"), list[str]()
    (tmp_path / "blank.jsonl").write_text("\n" * 3)
    with pytest.raises(UserError, match=r"blank\.jsonl: is empty"):
        found.read([tmp_path], found.mapping(), Progress(say=said.append))
    assert said == [f"{tmp_path / 'blank.jsonl'} line {number}: no record yet" for number in (1, 2, 3)]


def test_csv_has_labels_places_and_a_deadline(tmp_path: Path) -> None:
    rows = [task | {"labels": "", "places": "1", "deadline_s": "60"} for task in csv_sample()[0]]
    rows[1] |= {"labels": "eu  a100", "places": "3"}
    source = write_csv(tmp_path / "tasks.csv", rows)
    found = find_format("csv")
    workload = found.read([source], found.mapping(), Progress())
    tasks = [task for workflow in workload.to_dict()["workflows"] for task in workflow["tasks"]]
    assert [task.get("labels") for task in tasks] == [None, None, ["eu", "a100"], None, None]
    assert [task.get("places", 1) for task in tasks] == [1, 1, 3, 1, 1]
    assert workload.deadline_s.tolist() == [60, 60]
    for column, value in (("labels", "eu,a100"), ("places", "0")):
        bad = write_csv(tmp_path / "bad.csv", [rows[0] | {column: value}])
        with pytest.raises(UserError, match=f"bad.csv line 2: {column}"):
            found.read([bad], found.mapping(), Progress())


def test_an_empty_cell_is_a_missing_value_and_sessions_are_in_all_workflows_or_in_none(tmp_path: Path) -> None:
    found, rows = find_format("csv"), csv_sample()[0]
    optional = {"delay_s": " ", "places": "", "labels": "", "deadline_s": "", "session": ""}
    empty = found.read([write_csv(tmp_path / "a.csv", [row | optional for row in rows])], found.mapping(), Progress())
    assert empty.equals(found.read([write_csv(tmp_path / "b.csv", rows)], found.mapping(), Progress()))
    rows[-1]["session"] = "3"
    with pytest.raises(UserError, match="session must be given in every workflow or in none"):
        found.read(
            [write_csv(tmp_path / "c.csv", [{"session": ""} | row for row in rows])], found.mapping(), Progress()
        )


def test_rows_of_a_workflow_that_stand_apart_are_no_reason_to_read_a_part_of_it(tmp_path: Path) -> None:
    found, rows = find_format("csv"), csv_sample()[0]
    source = write_csv(tmp_path / "tasks.csv", [*rows, rows[0] | {"task": "more"}])
    with pytest.raises(UserError, match="line 7: workflow 'b' has rows further up"):
        found.read([source], found.mapping(), Progress(skip_bad=True))


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"event_time_unix_ms": 1_777_312_800}, "event_time_unix_ms 1777312800: must be in milliseconds"),
        ({"event_time_unix_ms": 1_777_312_700_000}, "request_received_ms 1777312800000: after event_time_unix_ms"),
    ],
)
def test_clocks_of_dynamo_that_cannot_be_are_refused(changes: dict[str, Any], refusal: str, tmp_path: Path) -> None:
    event = dynamo_sample()[0] | changes
    event["request"]["request_received_ms"] = 1_777_312_800_000
    found = find_format("dynamo")
    with pytest.raises(UserError, match=refusal):
        found.read([write_lines(tmp_path / "s.jsonl", event)], found.mapping(), Progress())
