"""Imports stream: what they hold grows with the workload, not with its source."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.trace_samples import copilot_call, copilot_sample, write_csv, write_lines

CI_MB = 96
BIG_MB = int(os.environ.get("RLLIB_SCALE_BIG_SOURCE_MB", "3072"))
IMPORT = """
import resource, sys
from rllib_scale.cli import main
try:
    main(["import", *sys.argv[1:]])
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)
"""


def import_peak_mb(tasks: int, *arguments: object) -> float:
    """Peak resident memory of a process that imports so many tasks, in MB."""
    command = [sys.executable, "-c", IMPORT, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f" {tasks:,} tasks" in ended.stdout
    return float(ended.stderr.split()[-1])


def make_shard(path: Path, megabytes: int) -> int:
    """Sessions of Copilot as they are published: 4 turns of 8 calls, with much that is not read. Calls written."""
    segments = [{"type": "History", "role": "user", "sequenceId": i, "token_len": 1000 + i} for i in range(4)]
    turns = []
    for turn in range(4):
        calls = [copilot_call(f"10:{turn}{call}:00", 4000.0, 9000, 200, 8000) for call in range(8)]
        calls = [call | {"message_metadata": segments} for call in calls]
        batch = {"timestamp": "2026-06-02T10:00:05+00:00", "duration_ms": 900.0, "result": "Success"}
        turns.append({"turn_id": str(turn), "llm_calls": calls, "tool_batches": [batch] * 7})
    line = (json.dumps({"session_id": "made", "turns": turns}) + "\n").encode()
    count = megabytes * 2**20 // len(line) + 1
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file:
        for i in range(count):
            file.write(line.replace(b"2026-06-02T10", b"2026-06-%02dT%02d" % (i % 28 + 1, i % 24)))
    return count * 32


@pytest.mark.slow
def test_a_source_is_never_held_as_a_whole(tmp_path: Path) -> None:
    output = tmp_path / "w.json"
    before = import_peak_mb(3, "copilot", write_lines(tmp_path / "one.jsonl", copilot_sample()), "--output", output)
    calls = make_shard(tmp_path / "shard.jsonl.gz", CI_MB)
    peak = import_peak_mb(calls, "copilot", tmp_path / "shard.jsonl.gz", "--output", output)
    # Its workload takes an eighth of that; text or parsed records as a whole would take all of it, or many times that.
    assert peak < before + CI_MB / 2


@pytest.mark.slow
def test_three_gigabytes_are_read_in_one(tmp_path: Path) -> None:
    calls = make_shard(tmp_path / "shard.jsonl", BIG_MB)
    assert import_peak_mb(calls, "copilot", tmp_path / "shard.jsonl", "--output", tmp_path / "w.json") < 1000


@pytest.mark.slow
def test_a_workflow_of_a_million_tasks(tmp_path: Path) -> None:
    count = 1_000_000
    task = {"workflow": "w", "arrival_s": 0, "compute_gflop": 1, "memory_gb": 1, "output_gb": 1}
    write_csv(tmp_path / "tasks.csv", [task | {"task": i} for i in range(count)])
    chain = [{"workflow": "w", "predecessor": i, "successor": i + 1} for i in range(count - 1)]
    write_csv(tmp_path / "edges.csv", chain)
    assert import_peak_mb(count, "csv", tmp_path, "--output", tmp_path / "w.json") < 1000
