"""Every variant against a base rule over a family of problems, each of which counts once however often it is played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..rows import require_one_setting, variants
from ..stats.scores import scores_by
from .relative import BASE, PREFIX, percent
from .summary import observability_by

RESPONSE, TAIL = "response_censored_s", "jct_p95_s"
WORST, WORSE = "worst_against_base", "worse_percent"
MARGIN = 0.002
"""Share by which a response may exceed the base's on a problem that does not count as worse."""
TITLE = "Against {}, over a family of problems"
HOW_TO_READ = (
    "a problem is a cluster with a workload, drawn at random, and counts once: per cent below (-) or above (+) {} are "
    "the mean over its episodes, then over problems, of the logarithm of the ratio of the two on identical episodes. "
    "[low, high] is the 95 % interval over problems, and over seeds of a method with several trainings; of one "
    "training it is about these weights alone (docs/statistics.md). Worst ratio: the largest response over the base's "
    f"on a problem, mean over seeds. Worse: problems with a response more than {100 * MARGIN:g} % above the base's."
)


Logs = dict[str, NDArray[np.float64]]
"""Metric -> (S, P) logarithms of the ratio to the base, means over the episodes of a problem; NaN without a value."""


def log_ratios(episodes: pd.DataFrame) -> tuple[str, dict[str, Logs]]:
    """The base, BASE or else the first rule, and every other variant beside it; "" and none without a rule.

    Args:
        episodes: rows of one setting.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    scores = {one.variant: one for _, one in scores_by(episodes, ["variant"], [RESPONSE, TAIL])}
    names = variants(episodes)
    rules = [name for name in names if not scores[name].learned]
    if not rules:
        return "", {}
    base = BASE if BASE in rules else rules[0]
    found: dict[str, Logs] = {}
    for name in (name for name in names if name != base):
        first = scores[name].shared_with(scores[base])
        second = scores[base].shared_with(first)
        problems = [problem for problem, *_ in first.episodes]
        for metric in (RESPONSE, TAIL) if problems else ():
            with np.errstate(divide="ignore", invalid="ignore"):
                log = np.log(first.values[metric] / second.values[metric])
            by_episode = pd.DataFrame(np.where(np.isfinite(log), log, np.nan).T)
            found.setdefault(name, {})[metric] = by_episode.groupby(problems).mean().to_numpy(float).T
    return base, found


def by_problem(logs: Logs) -> NDArray[np.float64]:
    """(P,) ratios of the response to the base's, ascending: of each problem the mean over seeds."""
    means = pd.DataFrame(logs[RESPONSE]).mean().dropna()
    return np.exp(np.sort(means.to_numpy(float)))


def family_table(episodes: pd.DataFrame, found: dict[str, Logs]) -> pd.DataFrame:
    """One row per variant without the base: observability, seeds, seeds_note, problems; the mean ratios of response and
    of the 95th percentile of job completion times in per cent, with _low and _high; WORST, a ratio; WORSE, per cent.

    Args:
        episodes: as for `log_ratios`.
        found: of `log_ratios`.
    """
    observability = observability_by(episodes, ["variant"]).to_dict()
    learned = set(episodes.loc[episodes["kind"] == "learned", "variant"])
    records: list[dict[str, Any]] = []
    for name, logs in found.items():
        ratios, is_rule = by_problem(logs), name not in learned
        record = {"variant": name, "observability": observability.get(name, "")}
        record |= {"seeds": 0 if is_rule else len(logs[RESPONSE]), "seeds_note": "fixed" if is_rule else None}
        record |= {"problems": len(ratios)}
        for metric, of_metric in logs.items():
            record |= percent(f"{PREFIX}{metric}", of_metric, "episodes")
        record |= {WORST: max(ratios, default=np.nan), WORSE: 100 * float(np.mean(ratios > 1 + MARGIN))}
        records.append(record)
    return pd.DataFrame(records)
