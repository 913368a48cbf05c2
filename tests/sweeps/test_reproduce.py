"""The reproduction, at toy size: all parts, each training done once, every row of the parts in the whole."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale.cli import main
from rllib_scale.results.tables import EPISODE_COLUMNS, EPISODE_KEY, TRAINING_COLUMNS, read_table
from rllib_scale.sweeps.reproduce import PARTS

pytestmark = [*LOCAL_RAY, pytest.mark.slow]
TINY = (
    *("training.epochs=1", "training.steps_per_epoch=64", "training.minibatch_size=32", "training.passes=1"),
    *("evaluation.scales=[16]", "evaluation.episodes=2", "evaluation.heuristics=[fastest-idle]"),
)


def reproduce(folder: Path) -> Result:
    settings = [part for setting in TINY for part in ("--set", setting)]
    return CliRunner().invoke(main, ["reproduce", "--results", str(folder / "whole"), *settings])


@pytest.fixture(scope="module")
def whole(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the reproduction."""
    folder = tmp_path_factory.mktemp("reproduction")
    done = reproduce(folder)
    assert done.exit_code == 0, done.output
    return folder / "whole"


def trainings(whole: Path) -> dict[str, list[Path]]:
    """Folders of what was trained in each part."""
    return {name: sorted((whole / "parts" / name / "trials").glob("*/*-s42-*")) for name in PARTS}


def test_all_parts_run_once_and_are_joined(whole: Path) -> None:
    parts = {name: read_table(whole / "parts" / name / "episodes.parquet", EPISODE_COLUMNS) for name in PARTS}
    trained = trainings(whole)
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
    assert (whole / "report" / "report.html").is_file()


def test_run_again_nothing_is_trained_anew(whole: Path) -> None:
    joined, trained = read_table(whole / "episodes.parquet", EPISODE_COLUMNS), trainings(whole)
    again = reproduce(whole.parent)
    assert again.exit_code == 0, again.output
    pd.testing.assert_frame_equal(read_table(whole / "episodes.parquet", EPISODE_COLUMNS), joined)
    assert trainings(whole) == trained
