"""The reproduction of the paper: sweeps that reuse each other's trainings, and their rows in one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rllib_scale.clusters.session import ray_session
from rllib_scale.config import digest
from rllib_scale.config.planning import make_plan
from rllib_scale.loading import load_sweep
from rllib_scale.presets import sweep_file
from rllib_scale.results.columns import EPISODE_COLUMNS, EPISODE_KEY, FEATURE_COLUMNS, FEATURE_KEY, TRAINING_COLUMNS
from rllib_scale.results.lock import held
from rllib_scale.results.tables import open_folder, read_manifest, read_tables, typed, write_table
from rllib_scale.sweeps.checks import check_plan
from rllib_scale.sweeps.run import run_sweep

PARTS = ("table4", "table3", "table3_off_policy", "scenarios", "scale_1024")
"""In this order: a later part reuses the trainings of earlier ones."""
BUDGETS: dict[str, tuple[str, ...]] = {
    "paper": (),
    "quick": ("training.epochs=60", "seeds=[42]", "evaluation.episodes=10"),
}
"""Overrides of every part."""
_TABLES: dict[str, tuple[dict[str, tuple[str, str]], tuple[str, ...]]] = {
    "episodes": (EPISODE_COLUMNS, EPISODE_KEY),
    "features": (FEATURE_COLUMNS, FEATURE_KEY),
    "training": (TRAINING_COLUMNS, ("trial_id", "epoch")),
}


def run_reproduction(
    folder: Path,
    budget: str,
    overrides: tuple[str, ...],
    address: str | None,
    say: Callable[[str], None],
    trust: bool = False,
) -> list[str]:
    """Run or resume all parts and join their rows; returns one line for each training that failed.

    Args:
        folder: results folder of the reproduction; each part has its own in `parts`.
        budget: a key of BUDGETS.
        overrides: for every part, applied after those of the budget.
        address: see `run_sweep`.
        say: see `run_sweep`.
        trust: see `run_sweep`.

    Raises:
        UserError: see `run_sweep`.
    """
    files = {name: sweep_file(name) for name in PARTS}
    plans = {name: make_plan(load_sweep(file, BUDGETS[budget] + overrides), file.name) for name, file in files.items()}
    for plan in plans.values():
        check_plan(plan, trust)
    content: dict[str, Any] = {name: plan.sweep.model_dump(mode="json") for name, plan in plans.items()}
    folders = {name: folder / "parts" / name for name in PARTS}
    failures = []
    with held(folder, say):
        open_folder(folder, "reproduction", content, digest(content))
        try:
            with ray_session(address, say=say):
                for position, (name, plan) in enumerate(plans.items()):
                    say(f"part {position + 1} of {len(PARTS)}: {name}")
                    others = [folders[other] for other in PARTS if other != name]
                    reused = [other for other in others if read_manifest(other) is not None]
                    failures += run_sweep(plan, folders[name], address, say, reused, trust=trust)
        finally:
            join(folder, list(folders.values()))
    return failures


def join(folder: Path, parts: list[Path]) -> None:
    """Write the rows of all parts as tables of `folder`, without duplicates."""
    for name, (columns, key) in _TABLES.items():
        paths = [part / f"{name}.parquet" for part in parts]
        rows = read_tables([path for path in paths if path.is_file()], columns)
        rows = rows.drop_duplicates(list(key)).assign(sweep="reproduction")
        write_table(folder / f"{name}.parquet", typed(rows.sort_values(list(key), ignore_index=True), columns))
