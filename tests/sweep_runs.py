"""Sweeps through the command line: in this process, on the Ray that tests share, or as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from click.testing import CliRunner, Result

from rllib_scale.cli import main
from rllib_scale.config.methods import method_in
from rllib_scale.results import dataset
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checkpoints import newest_in

SHORT = "steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2"
"""Of `ppo`: an epoch takes some hundredths of a second."""


def command(*arguments: object, settings: Iterable[str] = ()) -> list[str]:
    """The words of a command; each of `settings` is one of `--set`."""
    return [*map(str, arguments), *(word for setting in settings for word in ("--set", setting))]


def run(*arguments: object, settings: Iterable[str] = ()) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, command(*arguments, settings=settings))


def succeed(*arguments: object, settings: Iterable[str] = ()) -> str:
    """Run a command that must end well; returns what it said."""
    done = run(*arguments, settings=settings)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refused(*arguments: object, settings: Iterable[str] = ()) -> str:
    """Run a command that must end with one line and exit code 2; returns the line."""
    done = run(*arguments, settings=settings)
    assert done.exit_code == 2, (done.output, done.exception)
    (line,) = done.stderr.splitlines()
    return line


def start(home: Path, *arguments: object, settings: Iterable[str] = ()) -> subprocess.Popen[str]:
    """Start a command as a process with a Ray and a home of its own; a signal to its group ends all of it."""
    return subprocess.Popen(
        [sys.executable, "-m", "rllib_scale", *command(*arguments, settings=settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HOME": str(home)},
        start_new_session=True,
    )


def await_that(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something holds, while the process runs."""
    deadline = time.monotonic() + 1800
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9 of a process that `start` started, and of its group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=600)


def saved_epoch(folder: Path) -> int:
    """The epoch of the newest complete checkpoint below a folder; -1 where there is none."""
    checkpoint = newest_in(folder)
    return -1 if checkpoint is None else checkpoint.epoch


def episodes(results: Path | Location) -> pd.DataFrame:
    """Rows of the evaluation episodes in results, in the order of their keys."""
    return _sorted(results, "episodes")


def features(results: Path | Location) -> pd.DataFrame:
    """Rows about features in results."""
    return _sorted(results, "features")


def training(results: Path | Location) -> pd.DataFrame:
    """Rows of the training curves in results, without what is measured by a clock."""
    return _sorted(results, "training").drop(columns=["wall_s", "env_steps_per_s"])


def _sorted(results: Path | Location, table: str) -> pd.DataFrame:
    """Each key once."""
    rows = dataset.read(Location(str(results)), table).sort_values([*dataset.TABLES[table].key], ignore_index=True)
    return named(rows, results)


def named(rows: pd.DataFrame, results: Path | Location) -> pd.DataFrame:
    """Rows with what the dimensions of their results say of their ids."""
    for table, (key, of) in DIMENSIONS.items():
        dimension = dataset.read(Location(str(results)), table).drop_duplicates(key).set_index(key)
        if key in rows:
            found = rows[key].map({one: of(json.loads(row["settings"]), row) for one, row in dimension.iterrows()})
            assert found.notna().all(), f"{table}: a row for each id"
            rows = rows.join(pd.DataFrame([*found], index=rows.index))
    return rows


def trained_with(results: Path | Location) -> dict[str, dict[str, Any]]:
    """Id of each training -> its settings, as in `schedulers`."""
    rows = dataset.read(Location(str(results)), "schedulers")
    rows = rows[rows["kind"] == "training"]
    return {row["scheduler"]: json.loads(row["settings"]) for _, row in rows.iterrows()}


def _trained(settings: dict[str, Any], row: pd.Series) -> dict[str, Any]:
    learned = row["kind"] == "training"
    return {
        "method": method_in(settings) if learned else row["name"],
        "train_seed": settings["seed"] if learned else None,
        "kind": row["kind"],
    }


DIMENSIONS: dict[str, tuple[str, Any]] = {
    "schedulers": ("scheduler", _trained),
    "problems": (
        "problem",
        lambda settings, row: {
            "scenario": row["scenario"],
            "test_servers": sum(tier["count"] for tier in settings["cluster"]["tiers"]),
        },
    ),
    "protocols": ("protocol", lambda settings, row: {"mask": settings["episode"]["mask"]}),
}


def epochs(results: Path | Location, by: str = "train_seed") -> dict[object, list[int]]:
    """Epochs of each training in the training table."""
    return dict(training(results).groupby(by)["epoch"].agg(list))


def file_times(*folders: Path) -> dict[Path, int]:
    """When each file in the folders last changed [ns]."""
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*") if path.is_file()}


def weights(results: Path) -> dict[str, bytes]:
    """Weights of each policy in a results folder."""
    return {path.parent.name: path.read_bytes() for path in sorted(results.glob("policies/*/policy.safetensors"))}
