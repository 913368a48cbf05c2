"""Trainings that a results folder has no policy of: failed with an error, or not finished."""

from __future__ import annotations

from pathlib import Path

ERROR = "error.txt"
"""Ray Tune writes it beside a trial's logs, as often as the trial failed."""


def unfinished_trials(folder: Path) -> dict[str, str | None]:
    """Name -> the last line of its error, None where there is none, of the trainings that began and did not finish.

    Args:
        folder: a results folder; of a reproduction its parts are looked at.
    """
    found: dict[str, str | None] = {}
    for place in (folder, *sorted(folder.glob("parts/*"))):
        for trial in sorted(path for path in place.glob("trials/run-*/*") if path.is_dir()):
            if not (place / "policies" / trial.name).is_dir():
                found[trial.name] = _last_line(trial / ERROR) or found.get(trial.name)
    return found


def trial_lines(folder: Path) -> list[str]:
    """A sentence for each training that failed, and one for those that are not finished."""
    trials = unfinished_trials(folder)
    lines = [f"Training failed: {name}: {error}" for name, error in trials.items() if error is not None]
    pending = [name for name, error in trials.items() if error is None]
    if pending:
        lines.append(f"Not finished, and not in these numbers: {', '.join(pending)}.")
    return lines


def _last_line(path: Path) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return None
    return next((line.strip() for line in reversed(lines) if line.strip()), None)
