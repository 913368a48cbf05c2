"""The table of runs: one row for each training and each evaluated rule or policy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pandas as pd

from ..load import Results

RULE = "rule"
"""The state of a run without a training."""
_IDENTITY = [
    *("method", "kind", "train_seed", "lambda_decorrelation", "lambda_kl", "overrides", "train_servers", "epochs"),
]
_COLUMNS = (
    *("run", "method", "kind", "train_seed", "lambda_decorrelation", "lambda_kl", "train_servers", "overrides"),
    *("state", "epoch", "planned", "rows", "updated_s", "error"),
)


@lru_cache(maxsize=1)
def runs(results: Results) -> pd.DataFrame:
    """One row per training, and per evaluated rule or policy without a training here.

    A published folder may hold the evaluation of a policy without its training: the training counts as finished.

    Returns:
        run: its name; its identity: method, kind, train_seed, lambda_decorrelation, lambda_kl, train_servers,
        overrides; state: of the training, or RULE; epoch: the last one; planned: epochs; rows: evaluation episodes;
        updated_s: Unix time; error. The trainings in their order, then the others by name.
    """
    epochs = results.training.groupby("trial_id")["epoch"].max().to_dict()
    episodes = results.episodes
    by_trial = episodes.groupby("trial_id")
    evaluated = by_trial[_IDENTITY].first().assign(rows=by_trial.size())
    found: list[dict[str, Any]] = []
    known = set()
    for training in results.trainings:
        trial_id = training.identity["trial_id"]
        state = {name: getattr(training, name) for name in ("state", "updated_s", "error")}
        state |= {"run": training.name, "kind": "learned"}
        state |= {"epoch": epochs.get(trial_id), "planned": training.epochs}
        if training.state != "waiting" or trial_id not in evaluated.index:
            known.add(trial_id)
            found.append({**training.identity, **state, "rows": evaluated["rows"].get(trial_id, 0)})
    for trial_id, row in evaluated[~evaluated.index.isin(known)].iterrows():
        learned = row["kind"] == "learned"
        name = f"{row['method']}-s{row['train_seed']}-{trial_id}" if learned else trial_id
        found.append({**row, "run": name, "state": "finished" if learned else RULE, "epoch": row["epochs"]})
    frame = pd.DataFrame(found, columns=list(_COLUMNS))
    whole = dict.fromkeys(("train_seed", "train_servers", "epoch", "planned", "rows"), "Int64")
    frame = frame.assign(overrides=frame["overrides"].astype("string").fillna(""))
    return frame.astype(whole | dict.fromkeys(("lambda_decorrelation", "lambda_kl", "updated_s"), "float64"))
