"""A sweep on a trace: trained on some of its sessions, evaluated on the others, and found again by its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from rllib_scale.config.plan import EvaluationUnit, Trial
from rllib_scale.loading import load_sweep
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.workloads.generators import generate
from sweep_runs import SHORT, refused
from workloads.made_trace import made_trace, sessions_of

SWEEP = f"""
name: traced
methods: [scale]
algorithm: {{epochs: 2, {SHORT}}}
env:
  workload: {{trace: trace.json, offered_load: 0.5}}
  episode: {{horizon_s: 60, arrivals_until_s: 20, mask: feasible}}
  communication: transfer
evaluation: {{scales: [8], episodes: 2, heuristics: [fastest-idle]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep's folder, with its trace."""
    folder = tmp_path / "sweep"
    folder.mkdir()
    made_trace().save(folder / "trace.json")
    (folder / "traced.yaml").write_text(SWEEP)
    return folder


def planned(folder: Path) -> tuple[Trial, list[EvaluationUnit]]:
    config = load_sweep(folder / "traced.yaml")
    (trial,) = make_plan(config, "test").trials
    return trial, make_plan(config, "test").units


def test_no_session_is_trained_and_tested_on_and_the_content_is_the_identity(folder: Path) -> None:
    trial, units = planned(folder)
    drawn = [sessions_of(generate(env, 0, b)) for env in (trial.config.env, units[0].env) for b in range(20)]
    trained, tested = set.union(*drawn[:20]), set.union(*drawn[20:])
    assert trained
    assert tested
    assert not trained & tested

    moved = folder.rename(folder.parent / "moved")
    again, same = planned(moved)
    assert (again.config.name, [u.key for u in same]) == (trial.config.name, [u.key for u in units])
    made_trace(seed=1).save(moved / "trace.json")
    other, others = planned(moved)
    assert other.config.trial_id != trial.config.trial_id
    assert {u.key for u in others}.isdisjoint(u.key for u in units)


def test_what_no_workload_can_be_drawn_from_ends_a_sweep_before_it_starts(folder: Path) -> None:
    made_trace(memory_gb=90.0, sessions=90).save(folder / "trace.json")
    text = (folder / "trace.json").read_text().replace('"memory_gb": 0.', '"memory_gb": 100.')
    (folder / "trace.json").write_text(text)
    line = refused("sweep", folder / "traced.yaml", "--results", folder / "results")
    assert "trace.json" in line
    assert "fits no server" in line
    assert not (folder / "results").exists()
