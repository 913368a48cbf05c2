"""The table of runs: one row for each training and each evaluated rule or policy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import pandas as pd

from ..load import Results

RULE = "rule"
"""The state of a run without a training."""
_COLUMNS = (
    *("run", "method", "kind", "train_seed", "lambda_decorrelation", "lambda_kl", "train_servers", "overrides"),
    *("state", "epoch", "planned", "rows", "updated_s", "error"),
)


Words = dict[str, dict[str, Any]]
"""Id of a scheduler -> its columns."""


@lru_cache(maxsize=1)
def runs(results: Results) -> pd.DataFrame:
    """One row per training, and per evaluated rule or policy without a training here.

    A published folder may hold the evaluation of a policy without its training: the training counts as finished.

    Returns:
        run: its name; method, kind, train_seed, lambda_decorrelation, lambda_kl, train_servers, overrides; state: of
        the training, or RULE; epoch: the last one; planned: epochs; rows: evaluation episodes; updated_s: Unix time;
        error. The trainings in their order, then the others.
    """
    epochs = results.training.groupby("scheduler")["epoch"].max()
    rows, known = results.episodes.groupby("scheduler").size(), cast(Words, results.schedulers.to_dict("index"))
    found: Words = {}
    for training in results.trainings:
        if training.state == "waiting" and training.scheduler in rows.index:
            continue
        one = known.get(training.scheduler, {"method": training.name.partition("-s")[0], "kind": "learned"})
        state = {name: getattr(training, name) for name in ("state", "updated_s", "error")}
        found[training.scheduler] = one | state | {"run": training.name, "planned": training.epochs}
    for scheduler in rows.index.difference([*found]):
        one, learned = known[scheduler], known[scheduler]["kind"] == "learned"
        name = f"{one['method']}-s{one['train_seed']}-{scheduler}" if learned else one["variant"]
        found[scheduler] = one | {"run": name, "state": "finished" if learned else RULE, "epoch": one["epochs"]}
    for scheduler, one in found.items():
        one |= {"rows": rows.get(scheduler, 0)} | ({"epoch": epochs[scheduler]} if scheduler in epochs.index else {})
    frame = pd.DataFrame(found.values(), columns=list(_COLUMNS))
    whole = dict.fromkeys(("train_seed", "train_servers", "epoch", "planned", "rows"), "Int64")
    frame = frame.assign(overrides=frame["overrides"].astype("string").fillna(""))
    return frame.astype(whole | dict.fromkeys(("lambda_decorrelation", "lambda_kl", "updated_s"), "float64"))
