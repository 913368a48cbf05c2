"""A sweep that is killed between two parts of its rows: the next run neither loses nor repeats what they hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale.results.dataset import parts, read, units
from rllib_scale.results.storage import Location
from sweep_runs import await_that, episodes, kill, succeed

pytestmark = [*LOCAL_RAY, pytest.mark.slow]
RULES = """
name: rules
methods: []
evaluation:
  scales: [8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64]
  episodes: 30
  heuristics: [fastest-idle, earliest-finish, round-robin, random-feasible, heft]
"""
OFTEN = "from rllib_scale.results import dataset; dataset.PART_S = 0.2; from rllib_scale.cli import main; main()"
"""The command line with parts that do not wait long."""


def test_what_a_part_holds_is_done_and_all_else_is_done_once_more(tmp_path: Path) -> None:
    file, results = tmp_path / "rules.yaml", tmp_path / "killed"
    file.write_text(RULES)
    home = Location(str(results))
    for count in (1, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", OFTEN, "sweep", str(file), "--results", str(results)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"HOME": str(tmp_path)},
            start_new_session=True,
        )
        await_that(lambda count=count: len(parts(home, "episodes")) >= count, process)
        kill(process)
    done = units(home)
    assert 0 < len(done) < 75
    said = succeed("sweep", file, "--results", results)
    assert f"evaluations {75 - len(done)}/{75 - len(done)} done" in said
    succeed("sweep", file, "--results", tmp_path / "whole")
    pd.testing.assert_frame_equal(episodes(results), episodes(tmp_path / "whole"), check_exact=True)
    assert len(read(home, "episodes", ["unit"])) == 75 * 30, "no row stands in two parts"
