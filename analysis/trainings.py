"""What has become of the trainings behind some results: those of a reproduction's parts, and of other versions too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from rllib_scale.errors import UserError
from rllib_scale.results import status
from rllib_scale.results.status import Training

_PROGRESS = ("finished", "running", "failed", "stopped", "waiting")
_SAME = ("method", "train_seed", "lambda_decorrelation", "lambda_kl", "overrides", "train_servers")


def trainings_of(folder: Path, now_s: float) -> tuple[list[Training], list[str]]:
    """Every training of a results folder once, as parts of a reproduction take finished ones over from each other.

    Args:
        folder: of a sweep or a reproduction.
        now_s: Unix time.

    Returns:
        The trainings, and what a reader should know about the reading, one sentence each.
    """
    found: list[Training] = []
    notes = []
    for home in status.homes(folder):
        try:
            found += status.trainings(home, now_s)
        except UserError as error:
            notes.append(f"{error}. Trainings that have not begun are not listed.")
            found += status.found_trainings(home, now_s)
    furthest = sorted(found, key=lambda training: _PROGRESS.index(training.state))
    chosen = {training.name: training for training in reversed(furthest)}
    return [chosen[name] for name in dict.fromkeys(training.name for training in found)], notes


def renamed(trainings: Iterable[Training], rows: pd.DataFrame) -> list[Training]:
    """Trainings that have not begun, though rows of just such a one stand there under the hash of another version.

    Args:
        trainings: of `trainings_of`.
        rows: evaluation rows or units of the same folder, with the identity columns.
    """
    learned = rows[rows["kind"] == "learned"].drop_duplicates("cell")
    cells = set(learned["cell"])
    known = {tuple(row) for row in learned[list(_SAME)].fillna("").itertuples(index=False)} if cells else set()
    return [
        training
        for training in trainings
        if training.state == "waiting"
        and training.identity["cell"] not in cells
        and tuple(training.identity.get(name, "") for name in _SAME) in known
    ]


def renamed_note(found: list[Training]) -> str:
    """What a reader should know of them."""
    what = "1 training has another name" if len(found) == 1 else f"{len(found)} trainings have other names"
    return (
        f"{what} in these results, which another version of the program made: their episodes cannot be played again, "
        "so that there are no schedules and no decisions of them."
    )
