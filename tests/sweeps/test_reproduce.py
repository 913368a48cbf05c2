"""The reproduction, at toy size: all parts, each training done once, every row of the parts in the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.ray

from rllib_scale.results.tables import EPISODE_COLUMNS, EPISODE_KEY, TRAINING_COLUMNS, read_table  # noqa: E402
from rllib_scale.sweeps.reproduce import PARTS  # noqa: E402

TINY = (
    *("training.epochs=1", "training.steps_per_epoch=64", "training.minibatch_size=32", "training.passes=1"),
    *("evaluation.scales=[16]", "evaluation.episodes=2", "evaluation.heuristics=[fastest-idle]"),
)


def reproduce(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from rllib_scale.cli import main; main()", "reproduce"]
    command += ["--results", str(folder / "whole"), *(part for setting in TINY for part in ("--set", setting))]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, env=os.environ | {"HOME": str(folder)}, cwd=folder
    )


def test_all_parts_run_once_and_are_joined(tmp_path: Path) -> None:
    first = reproduce(tmp_path)
    assert first.returncode == 0, first.stderr
    whole = tmp_path / "whole"
    parts = {name: read_table(whole / "parts" / name / "episodes.parquet", EPISODE_COLUMNS) for name in PARTS}
    trained = {name: list((whole / "parts" / name / "trials").glob("*/*-s42-*")) for name in PARTS}
    assert {path.name.split("-s42")[0] for path in trained["table4"]} == {"scale", "crossattn"}
    assert {path.name.split("-s42")[0] for path in trained["table3"]} == {"ppo", "ppo-srr"}, "the others are taken over"
    assert not trained["scenarios"]
    assert not trained["scale_1024"]
    joined = read_table(whole / "episodes.parquet", EPISODE_COLUMNS)
    keys = {tuple(row) for part in parts.values() for row in part[list(EPISODE_KEY)].itertuples(index=False)}
    assert not joined.duplicated(list(EPISODE_KEY)).any()
    assert {tuple(row) for row in joined[list(EPISODE_KEY)].itertuples(index=False)} == keys
    assert sum(map(len, parts.values())) > len(joined), "parts share rows, which must not stand twice"
    training = read_table(whole / "training.parquet", TRAINING_COLUMNS)
    assert sorted(training["method"]) == ["crossattn", "dqn", "ppo", "ppo-srr", "sac", "scale"]
    assert (whole / "report" / "report.md").is_file()

    again = reproduce(tmp_path)
    assert again.returncode == 0, again.stderr
    pd.testing.assert_frame_equal(read_table(whole / "episodes.parquet", EPISODE_COLUMNS), joined)
    assert {name: list((whole / "parts" / name / "trials").glob("*/*-s42-*")) for name in PARTS} == trained
