"""A results folder whose policies were never trained and whose episodes were really played, made without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from networks.observations import random_network
from rllib_scale.config.plan import SweepConfig, training_row
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.policies.policy import policy_files, save_policy
from rllib_scale.results import dataset
from rllib_scale.results import tables as results
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.planning import make_plan
from sweep_runs import named


def play_folder(home: Path, name: str = "played", **settings: Any) -> pd.DataFrame:
    """Write the folder of a sweep and return its rows.

    Args:
        home: where to.
        name: of the sweep.
        settings: of the sweep, besides its name.
    """
    sweep = SweepConfig.model_validate({"name": name} | settings)
    plan = make_plan(sweep, name)
    results.open_folder(home, name, sweep.model_dump(mode="json"), "0123456789ab", plan.to_json())
    policies = {}
    for trial in plan.trials:
        save_policy(home / "policies" / trial.name, random_network(method=trial.config.method), trial.config, epochs=1)
        policies[trial.name] = policy_files(home / "policies" / trial.name)
        row = {"name": trial.name, "scheduler": trial.scheduler, "epochs": trial.config.stop_epochs, "stopped": False}
        dataset.append(home, schedulers=[training_row(trial.scheduler, trial.config)], trainings=[row])
    dataset.append(home, **plan.dimensions)
    rows: list[dict[str, Any]] = []
    features: list[dict[str, Any]] = []
    for unit in plan.units:
        found = evaluate_unit(unit, policies.get(unit.name))
        shared = {"unit": unit.key} | unit.columns
        rows += [shared | row for row in found.episodes]
        if found.features is not None:
            features.append(shared | found.features)
    dataset.append(home, episodes=rows, features=features)
    return named(dataset.read(Location(str(home)), "episodes"), home)
