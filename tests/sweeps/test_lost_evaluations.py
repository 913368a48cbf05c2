"""An evaluation whose process dies is counted, reported and repeated; it does not end the sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale.loading import load_sweep
from rllib_scale.sweeps import evaluations as evaluations_of
from rllib_scale.sweeps.evaluations import Evaluations
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.sweeps.sweep import Sweep
from sweep_runs import episodes, start

pytestmark = LOCAL_RAY
RULE = """
import os, signal, sys
from pathlib import Path
from rllib_scale.schedulers.base import Rule

class Deadly(Rule):
    def rate(self, v):
        if sys.argv[0].endswith("default_worker.py") and not Path({mark!r}).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return v.capacity
"""
SWEEP = (
    "{name: rules, methods: [], evaluation: {scales: [4], episodes: 2, heuristics: [fastest-idle, 'deadly:Deadly']}}"
)


def test_an_evaluation_that_dies_is_reported_while_the_others_end_and_the_next_run_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, file, results = tmp_path / "mark", tmp_path / "rules.yaml", tmp_path / "results"
    (tmp_path / "deadly.py").write_text(RULE.format(mark=str(mark)))
    file.write_text(SWEEP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    first = start(tmp_path, "sweep", file, "--results", results)
    said, errors = first.communicate(timeout=1800)
    assert first.returncode == 1, errors
    assert "evaluations 1/2 done, 1 failed" in said
    line, *more = errors.splitlines()
    assert not more, errors
    assert line.startswith("Failed: evaluation of deadly:Deadly, scenario paper: lost 4 times with its process")
    assert episodes(results)["method"].tolist() == ["fastest-idle"] * 2

    mark.touch()
    second = start(tmp_path, "sweep", file, "--results", results)
    said, errors = second.communicate(timeout=1800)
    assert (second.returncode, errors) == (0, "")
    assert "evaluations 1/1 done" in said
    assert sorted(set(episodes(results)["method"])) == ["deadly:Deadly", "fastest-idle"]


def test_no_more_evaluations_are_with_ray_than_the_driver_has_memory_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluations_of, "MAX_SUBMITTED", 2)
    rules = "{name: x, methods: [], evaluation: {episodes: 1, heuristics: [sticky, random-feasible]}}"
    (tmp_path / "x.yaml").write_text(rules)
    sweep = Sweep(make_plan(load_sweep(tmp_path / "x.yaml"), "x.yaml"), tmp_path / "out", print)
    sweep.open()
    evaluations = Evaluations(sweep, trust=False, beside=None)
    planned = len(sweep.plan.units)
    assert planned > 4
    evaluations.poll()
    assert len(evaluations.waiting) + evaluations.finished >= planned - 2
    evaluations.finish()
    assert evaluations.finished == planned
