"""The results on a card, computed from the rows that it names."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rllib_scale_analysis import load, select
from rllib_scale_analysis.stats import intervals
from rllib_scale_analysis.stats.scores import scores_by
from rllib_scale_analysis.tables.relative import against_base

from rllib_scale.config import TrialConfig
from rllib_scale.policies.policy import load_policy

ROOT = Path(__file__).parents[2]
METRIC = "response_censored_s"


def results(card: dict[str, Any]) -> list[dict[str, Any]]:
    """A card's results anew: the same settings, and the figures of the committed rows.

    The policy's own per cent are as those of the analysis, the mean of the logarithm of the ratio, over episodes. Rows
    hold the policy as a training beside those of other seeds, or alone, by its name in the zoo.
    """
    trial = load_policy(f"zoo:{card['name']}").trial
    if trial.env.on_replicas:
        return _results_on_replicas(card)
    rows = pd.concat([load(ROOT / folder).episodes for folder in card["rows"]], ignore_index=True)
    own = own_rows(rows, card["name"], trial)
    assert len(own), f"no rows of {trial.name} in {card['rows']}"
    (kind,), (variant,) = own["kind"].unique(), own["variant"].unique()
    rows = rows[rows["variant"].isin([variant, "fastest-idle"])]
    found = []
    for row in card["results"]:
        at = select(rows, row["scenario"], row["mask"], "argmax")
        at = at[at["test_servers"] == row["servers"]]
        (of_all,) = against_base(at).to_dict("records")
        at = at[at["scheduler"].isin(own["scheduler"]) | (at["method"] == "fastest-idle")]
        ours, base = ({n: s for (n,), s in scores_by(at, ("variant",), [METRIC])}[v] for v in (variant, "fastest-idle"))
        assert ours.episodes == base.episodes
        ratio = np.log(ours.values[METRIC] / base.values[METRIC])
        test = intervals.mean_test(ratio, "episodes")
        every = [of_all[f"against_base_{METRIC}{end}"] for end in ("", "_low", "_high")]
        seeds = {"seeds": of_all["seeds"], "percent_of_all_seeds": _rounded(every)} if kind == "learned" else {}
        found.append(
            {key: row[key] for key in ("scenario", "mask", "servers")}
            | {
                "episodes": len(ours.episodes),
                "response_s": round(float(ours.values[METRIC].mean()), 3),
                "base_response_s": round(float(base.values[METRIC].mean()), 3),
                "percent": _rounded(100 * math.expm1(x) for x in (test.mean, test.interval.low, test.interval.high)),
            }
            | seeds
        )
    return found


def _results_on_replicas(card: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a table of rows: a row of the policy or of the base for each episode, at a load of a part of the study."""
    rows = pd.concat([pd.read_parquet(ROOT / file) for file in card["rows"]], ignore_index=True)
    own, base = f"policies/{Path(card['policy']).name}", card["base"]
    found = []
    for row in card["results"]:
        part, load = row["scenario"].rsplit(", ", 1)
        at = rows[(rows["part"] == part) & (rows["load"] == float(load.split()[0]))]
        times = at.pivot(index="episode", columns="rule", values=METRIC)[[own, base]].astype(float)
        test = intervals.mean_test(np.log(times[own] / times[base]).to_numpy()[None], "episodes")
        found.append(
            {key: row[key] for key in ("scenario", "mask", "servers")}
            | {
                "episodes": len(times),
                "response_s": round(float(times[own].mean()), 3),
                "base_response_s": round(float(times[base].mean()), 3),
                "percent": _rounded(100 * math.expm1(x) for x in (test.mean, test.interval.low, test.interval.high)),
            }
        )
    return found


def own_rows(rows: pd.DataFrame, name: str, trial: TrialConfig) -> pd.DataFrame:
    """The rows of a policy: under its name in the zoo, or of its training."""
    return rows[(rows["method"] == f"zoo:{name}") | (rows["scheduler"] == trial.trial_id)]


def _rounded(values: Any) -> list[float | None]:
    """To two digits; an interval that is not claimed is None."""
    return [None if math.isnan(value) else round(float(value), 2) for value in values]
