"""A results folder whose policies were never trained and whose episodes were really played, made without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from networks.observations import random_network
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.planning import make_plan
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.policies.policy import policy_files, save_policy
from rllib_scale.results import tables as results
from rllib_scale.results.columns import EPISODE_COLUMNS, FEATURE_COLUMNS, TRAINING_COLUMNS


def play_folder(home: Path, name: str = "played", **settings: Any) -> pd.DataFrame:
    """Write the folder of a sweep and return its rows.

    Args:
        home: where to.
        name: of the sweep.
        settings: of the sweep, besides its name.
    """
    sweep = SweepConfig.model_validate({"name": name} | settings)
    results.open_folder(home, name, sweep.model_dump(mode="json"), "0123456789ab")
    trials = make_plan(sweep, name).trials
    policies = {}
    for trial in trials:
        target = home / "policies" / trial.config.name
        save_policy(target, random_network(method=trial.config.method), trial.config, epochs=1)
        policies[trial.config.name] = policy_files(target)
    rows: list[dict[str, Any]] = []
    features: list[dict[str, Any]] = []
    for unit in make_plan(sweep, "test").units:
        found = evaluate_unit(unit, policies.get(unit.scheduler))
        rows += [{"sweep": name} | unit.columns | row for row in found.episodes]
        if found.features is not None:
            features.append({"sweep": name} | unit.columns | found.features)
    for table, records, columns in (
        ("episodes", rows, EPISODE_COLUMNS),
        ("features", features, FEATURE_COLUMNS),
        ("training", [], TRAINING_COLUMNS),
    ):
        results.write_table(home / f"{table}.parquet", results.typed(pd.DataFrame(records), columns))
    return results.read_table(home / "episodes.parquet", EPISODE_COLUMNS)
