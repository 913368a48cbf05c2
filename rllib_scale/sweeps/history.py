"""Settings in force during a training, which PBT changes for its members. Imports no ray.

Each row of a member's curve holds its settings and the member that trained the epoch: a copy of another member
continues the curve of that one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rllib_scale.config.identity import settings_in
from rllib_scale.config.pinned import by_name
from rllib_scale.config.plan import Trial

Curve = Sequence[Mapping[str, Any]]
SETTINGS, MEMBER = "settings", "member"
"""Keys of a row of a curve: the settings that change, by config path, and the name of the member."""


def logged(trial: Trial) -> dict[str, Any]:
    """Description of a training in Tune's logs and trackers: method, planned id, and settings unlike the defaults."""
    content = trial.config.model_dump(mode="json", exclude_defaults=True)
    return {"method": trial.config.method, "scheduler": trial.planned_id} | settings_in(by_name(content))


def settings_at_end(curve: Curve) -> dict[str, Any]:
    """Settings of a training that a scheduler or a search changed, as in the last epoch of its curve."""
    return dict(curve[-1].get(SETTINGS, {})) if curve else {}


def history(curve: Curve, name: str) -> list[dict[str, Any]]:
    """Rows of the history table of a training: its first settings, and each change.

    Args:
        curve: of a member of a population or of a training that Optuna suggested; another has no rows.
        name: planned name of the training.

    Returns:
        Rows with `trial`, `epoch`, `setting` (config path), `value` (JSON) and `member`, the name of the training that
        had the value: another one before this was continued as its copy.
    """
    rows = []
    for before, row in zip([{}, *curve], curve, strict=False):
        for setting, value in row.get(SETTINGS, {}).items():
            now = {"setting": setting, "value": json.dumps(value, sort_keys=True), "member": row[MEMBER]}
            if row[MEMBER] != before.get(MEMBER) or value != before[SETTINGS][setting]:
                rows.append({"trial": name, "epoch": row["epoch"], **now})
    return rows


def measured(curve: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a curve without its settings."""
    return [{key: value for key, value in row.items() if key not in (SETTINGS, MEMBER)} for row in curve]
