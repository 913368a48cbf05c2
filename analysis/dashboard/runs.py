"""The table of runs: one row for each training and each evaluated rule or policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from rllib_scale.results.status import Training

RULE = "rule"
"""The state of a run without a training."""
_IDENTITY = [
    "method",
    "kind",
    "train_seed",
    "lambda_decorrelation",
    "lambda_kl",
    "overrides",
    "train_servers",
    "epochs",
]
_COLUMNS = (
    *("run", "method", "kind", "train_seed", "lambda_decorrelation", "lambda_kl", "train_servers", "overrides"),
    *("state", "epoch", "planned", "rows", "updated_s", "error"),
)


def runs(trainings: Iterable[Training], episodes: pd.DataFrame, epochs: Mapping[str, int]) -> pd.DataFrame:
    """One row per training, and per evaluated rule or policy without a training here.

    A published folder may hold the evaluation of a policy without its training: the training counts as finished.

    Args:
        trainings: planned or found.
        episodes: evaluation rows.
        epochs: training name -> epochs in its curve.

    Returns:
        run: its name; its identity: method, kind, train_seed, lambda_decorrelation, lambda_kl, train_servers,
        overrides; state: of the training, or RULE; epoch: the last one; planned: epochs; rows: evaluation episodes;
        updated_s: Unix time; error. The trainings in their order, then the others by name.
    """
    by_trial = episodes.groupby("trial_id")
    evaluated = by_trial[_IDENTITY].first().assign(rows=by_trial.size())
    found: list[dict[str, Any]] = []
    known = set()
    for training in trainings:
        trial_id = training.identity["trial_id"]
        told = {name: getattr(training, name) for name in ("state", "updated_s", "error")}
        told |= {"run": training.name, "kind": "learned"}
        told |= {"epoch": epochs[training.name] or None, "planned": training.epochs}
        if training.state != "waiting" or trial_id not in evaluated.index:
            known.add(trial_id)
            found.append({**training.identity, **told, "rows": evaluated["rows"].get(trial_id, 0)})
    for trial_id, row in evaluated[~evaluated.index.isin(known)].iterrows():
        learned = row["kind"] == "learned"
        name = f"{row['method']}-s{row['train_seed']}-{trial_id}" if learned else trial_id
        found.append({**row, "run": name, "state": "finished" if learned else RULE, "epoch": row["epochs"]})
    frame = pd.DataFrame(found, columns=list(_COLUMNS))
    whole = dict.fromkeys(("train_seed", "train_servers", "epoch", "planned", "rows"), "Int64")
    frame = frame.assign(overrides=frame["overrides"].astype("string").fillna(""))
    return frame.astype(whole | dict.fromkeys(("lambda_decorrelation", "lambda_kl", "updated_s"), "float64"))


def with_settings(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column for each setting that a sweep varies in place of `overrides`.

    "a.b=1; c=2" becomes "1" in column a.b and "2" in column c.
    """
    of_run = [dict(part.split("=", 1) for part in str(text).split("; ") if "=" in part) for text in table["overrides"]]
    settings = pd.DataFrame(of_run, index=table.index)
    at = table.columns.get_loc("overrides")
    assert isinstance(at, int)
    return pd.concat([table.iloc[:, :at], settings, table.iloc[:, at + 1 :]], axis=1)
