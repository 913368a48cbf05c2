"""`rllib-scale replicas` on recorded sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from refused import refused
from rllib_scale.cli import main


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions of thirty calls."""
    facts = {"type": "n", "out": 40, "stop": "tool_use", "api_time": 4.0}
    requests = [{"t": 10.0 * n, "in": 5000 + 900 * n} | facts for n in range(30)]
    path = tmp_path_factory.mktemp("sessions") / "sessions.jsonl"
    lines = [json.dumps({"id": str(n), "tool_tokens": 3000, "requests": requests[n:]}) for n in range(2)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_rules_are_compared_and_rows_written(sessions: Path, tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    arguments = ["replicas", sessions, "--rule", "sticky", "--rule", "lmetric:gate=0.5", "--replicas", 2]
    arguments += ["--replica", "h100/8b", "--replica", "l40s/8b", "--sessions", "2,4", "--episodes", 2, "--json"]
    arguments += ["--set", "duration_s=600", "--set", "warm_up_s=100", "--output", output]
    arguments += ["--gantt", tmp_path / "calls.png"]
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    rows = pd.read_csv(output)
    assert len(rows) == len(json.loads(done.stdout)) == 2 * 2 * 2
    assert (tmp_path / "calls.png").read_bytes().startswith(b"\x89PNG")
    assert set(rows["rule"]) == {"sticky", "lmetric:gate=0.5"}
    assert (rows["calls"] > 10).all()
    assert (rows["hit_rate"] > 0.5).all()
    assert (rows["turn_mean_s"] >= rows["call_mean_s"]).all()
    for name in ("ttft", "tpot", "call", "turn"):
        assert (rows[f"{name}_p50_s"] <= rows[f"{name}_p95_s"]).all()
        assert (rows[f"{name}_p95_s"] <= rows[f"{name}_p99_s"]).all()


def test_refusals(sessions: Path, tmp_path: Path) -> None:
    assert "unknown rule 'lmetrc'; did you mean 'lmetric'?" in refused("replicas", sessions, "--rule", "lmetrc")
    assert "'gates' must be key=value" not in refused("replicas", sessions, "--rule", "lmetric:gates=1")
    assert "'gate' must be key=value" in refused("replicas", sessions, "--rule", "lmetric:gate")
    assert "unknown replica 'h100/9b'" in refused("replicas", sessions, "--replica", "h100/9b")
    assert "duration_ss" in refused("replicas", sessions, "--set", "duration_ss=3")
    small = tmp_path / "small.json"
    small.write_text('{"kv_tokens": 900}', encoding="utf-8")
    assert "kv_tokens 900: a call has" in refused("replicas", sessions, "--replica", small)
    small.write_text('{"kv_token": 900}', encoding="utf-8")
    assert "kv_token" in refused("replicas", sessions, "--replica", small)
