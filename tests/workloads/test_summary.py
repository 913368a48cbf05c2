"""What a workload amounts to on a cluster, and what is said of its times."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rllib_scale.cli import main
from rllib_scale.config import ClusterConfig, EnvConfig, TierConfig
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.summary import is_dated, shift_text, summarise
from workloads.trace_samples import csv_sample, write_csv

CLUSTER = ClusterConfig(
    tiers=(
        TierConfig(name="slow", count=1, compute_gflops=1.0, memory_gb=8.0),
        TierConfig(name="fast", count=1, compute_gflops=3.0, memory_gb=16.0),
    )
)


def chain(*arrivals: float, work: float = 4.0) -> Workload:
    """Workflows of two tasks, the second of which begins after 2 s, with 3 GB between them."""
    return Workload.from_dict(
        {
            "format": "rllib-scale-workload",
            "version": 2,
            "workflows": [
                {
                    "arrival_s": at,
                    "tasks": [
                        {"compute_gflop": work, "memory_gb": 16, "output_gb": 3},
                        {"compute_gflop": 2, "memory_gb": 17, "output_gb": 5, "delay_s": 2},
                    ],
                    "edges": [[0, 1]],
                }
                for at in arrivals
            ],
        },
        "test",
    )


def test_a_summary_by_hand() -> None:
    found = summarise(chain(0, 10, 40), CLUSTER)
    assert found.span_s == 40 + 4 + 2 + 2
    assert found.empty_share == (2 + 22) / 48  # from 8 to 10 s, and from 18 to 40 s
    assert (found.largest_gap_s, found.gap_from_s) == (30, 10)
    assert found.load == pytest.approx(2 / 40 * 6 / 4)
    assert (found.work_s, found.moved_gb, found.too_large) == (18 / 4, 9, 3)
    assert [line.partition(":")[0] for line in found.warnings()] == ["3 tasks fit no server of this cluster"]


@pytest.mark.parametrize(
    ("arrivals", "work", "said"),
    [
        ((0, 1, 2), 100.0, "load 25.5: more work arrives"),
        ((0, 10, 20000), 4.0, "no workflow is in progress for 100% of 20,008 s (5.6 h)"),
        ((36000, 36010), 4.0, "the largest gap is 36,000 s (10.0 h) from 0 s on"),
    ],
)
def test_what_is_probably_not_meant(arrivals: tuple[float, ...], work: float, said: str) -> None:
    assert any(said in line for line in summarise(chain(*arrivals, work=work), CLUSTER).warnings())


@given(st.integers(0, 10**6), st.sampled_from([36_000.0, 1_764_000_000.0, 1.764e12]))
def test_drawn_arrivals_are_no_dates_and_dates_are(seed: int, clock_s: float) -> None:
    """A workload that was saved from an episode is replayed as it was; dates and times of day are shifted."""
    drawn = generate(EnvConfig(), seed, 0)
    if drawn.num_workflows:
        assert not is_dated(drawn.arrival_s)
        assert is_dated(drawn.arrival_s + clock_s)
        assert summarise(replace(drawn, arrival_s=drawn.arrival_s + clock_s), CLUSTER).empty_share > 0.9


def test_clocks_are_named() -> None:
    assert "2025-11-24 16:00:00 UTC" in shift_text(1_764_000_000)
    assert shift_text(1.764e12).endswith("milliseconds? Times are read as seconds")
    assert shift_text(36_000).endswith("came at 36,000 s")


@pytest.mark.parametrize("clock_s", [36_000, 1_764_000_000])
def test_a_clock_does_not_change_what_is_played(clock_s: int, tmp_path: Path) -> None:
    """Imported tables and given files alike: the same energy and times as from 0 s on."""
    tables = {"plain": csv_sample()[0], "dated": csv_sample()[0]}
    for row in tables["dated"]:
        row["arrival_s"] = str(float(row["arrival_s"]) + clock_s)
    played = {}
    for name, rows in tables.items():
        write_csv(tmp_path / f"{name}.csv", rows)
        imported = CliRunner().invoke(
            main, ["import", "csv", f"{tmp_path}/{name}.csv", "--output", f"{tmp_path}/{name}.json", "--json"]
        )
        assert imported.exit_code == 0, imported.stderr
        assert json.loads(imported.stdout)["largest_gap_s"] == 1.5
        assert f"came at {1 + clock_s * (name == 'dated'):,} s" in imported.stderr
        given_file = json.loads((tmp_path / f"{name}.json").read_text())
        for workflow in given_file["workflows"]:
            workflow["arrival_s"] += clock_s * (name == "dated")
        (tmp_path / f"{name}-given.json").write_text(json.dumps(given_file))
        for file in (name, f"{name}-given"):
            simulated = CliRunner().invoke(
                main, ["simulate", "--scenario", "steady-0.7", "--workload", f"{tmp_path}/{file}.json", "--json"]
            )
            assert simulated.exit_code == 0, simulated.stderr
            played[file] = simulated.stdout
            assert ("arrivals count from the first one" in simulated.stderr) == (file == "dated-given")
    assert len(set(played.values())) == 1


def test_an_import_says_what_it_did_not_read(tmp_path: Path) -> None:
    call = {"timestamp": "2026-06-02T10:00:00Z", "duration_ms": 1.0, "tokens": None, "model": "m"}
    session = {"date": "2026-06-02", "turns": [{"llm_calls": [call, call], "turn_id": 1}]}
    (tmp_path / "s.jsonl").write_text(json.dumps(session))
    arguments = ["import", "copilot", f"{tmp_path}/s.jsonl", "--output", f"{tmp_path}/w.json"]
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert json.loads(result.stdout)["not_read"] == {"date": 1, "turns.llm_calls.model": 2}
    assert "not read: turns.llm_calls.model (2), date (1)" in result.stderr
    assert np.array_equal(Workload.load(tmp_path / "w.json").arrival_s, [0])
