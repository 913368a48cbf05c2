"""The state of the trainings of a results folder, with those of a reproduction's parts."""

from __future__ import annotations

from pathlib import Path

from rllib_scale.errors import UserError
from rllib_scale.results import status
from rllib_scale.results.status import Training

_PROGRESS = ("finished", "running", "failed", "stopped", "waiting")


def trainings_of(folder: Path, now_s: float) -> tuple[list[Training], list[str]]:
    """Every training of a results folder once: parts of a reproduction reuse each other's.

    Args:
        folder: of a sweep or a reproduction.
        now_s: Unix time.

    Returns:
        The trainings, and one sentence for each part whose plan cannot be read.
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
