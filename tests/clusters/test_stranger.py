"""A scheduler of somebody's, in a package that is only a folder, in a sweep on a Ray cluster of two nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

from nodes import nodes  # noqa: E402

from rllib_scale.results.tables import EPISODE_COLUMNS, read_manifest, read_table  # noqa: E402

RULES = """import numpy as np
from pydantic import Field

from rllib_scale.config.base import NonNegative
from rllib_scale.config.heuristics import NoParameters
from rllib_scale.schedulers.base import Rule

from .costs import seconds


class Parameters(NoParameters):
    spare: NonNegative = Field(default=0.0, description="seconds that a unit of spare memory counts")


class Patient(Rule):
    takes = Parameters

    def rate(self, v):
        return np.where(v.feasible, -seconds(v) - self.parameters.spare * v.memory, -np.inf)
"""
COSTS = "def seconds(v):\n    return v.transfer + v.execution_s\n"
SWEEP = """
name: stranger
scenario: steady-0.7
methods: []
evaluation: {scales: [4, 8], episodes: 2, heuristics: [fastest-idle, "stranger.rules:Patient:spare=2"]}
"""


def test_it_enters_tables_and_report_with_no_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(RULES.splitlines()) <= 20
    package = tmp_path / "stranger"
    package.mkdir()
    for name, text in (("__init__", ""), ("rules", RULES), ("costs", COSTS)):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "own.yaml").write_text(SWEEP)
    with nodes(1, 1) as cluster:
        monkeypatch.chdir(tmp_path)  # of the driver; the nodes have no such package where they run
        cluster.finish(tmp_path / "own.yaml", tmp_path / "out")
    rows = read_table(tmp_path / "out" / "episodes.parquet", EPISODE_COLUMNS)
    theirs, ours = (rows[rows["method"] == name] for name in ("stranger.rules:Patient:spare=2", "fastest-idle"))
    assert len(theirs) == len(ours) == 4
    assert (theirs["completed"] == theirs["arrived"]).all()
    assert theirs["response_mean_s"].tolist() != ours["response_mean_s"].tolist()
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest["config"]["evaluation"]["heuristics"][1].startswith("stranger.rules:Patient:spare=2#source=")
    assert "stranger.rules:Patient:spare=2" in (tmp_path / "out" / "report" / "report.html").read_text()
