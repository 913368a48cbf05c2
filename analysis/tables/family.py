"""Every variant against a base rule over a family of problems, each of which counts once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..rows import require_one_setting, variants
from ..stats.scores import Scores, scores_by
from .relative import BASE, PREFIX, percent
from .summary import interval_note, observability_by

RESPONSE, TAIL = "response_censored_s", "jct_p95_s"
WORST, WORSE = "worst_against_base", "worse_percent"
MARGIN = 0.002
"""By so much a response may be above the base's on a problem that does not count as worse."""
TITLE = "Against {}, over a family of problems"
HOW_TO_READ = (
    "a problem is a cluster with a workload, drawn at random, and counts once: per cent below (-) or above (+) {} are "
    "the mean over its episodes, then over problems, of the logarithm of the ratio of the two on identical episodes. "
    "[low, high] is the 95 % interval over problems, and over seeds of a method with several trainings; of one "
    "training it is about these weights alone (docs/statistics.md). Worst ratio: the largest response over the base's "
    f"on a problem, mean over seeds. Worse: problems with a response more than {100 * MARGIN:g} % above the base's."
)


@dataclass(frozen=True, eq=False)
class Ratios:
    """A variant beside the base.

    Attributes:
        scores: of the variant, on the episodes that both have.
        logs: metric -> (S, P) mean over a problem's episodes of the logarithm of the ratio; NaN without a value.
    """

    scores: Scores
    logs: dict[str, NDArray[np.float64]]

    @property
    def by_problem(self) -> NDArray[np.float64]:
        """(P,) ratios of the response, ascending: of each problem the mean over seeds."""
        means = pd.DataFrame(self.logs[RESPONSE]).mean().dropna()
        return np.exp(np.sort(means.to_numpy(float)))


def ratios(episodes: pd.DataFrame) -> tuple[str, dict[str, Ratios]]:
    """The base, BASE or else the first rule, and every other variant beside it; none without a rule.

    Args:
        episodes: rows of one setting. Rows of one `eval_seed` are of one problem.

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
    found = {}
    for name in (name for name in names if name != base):
        first = scores[name].shared_with(scores[base])
        second = scores[base].shared_with(first)
        problems = [seed for seed, _ in first.episodes]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = {metric: np.log(first.values[metric] / second.values[metric]) for metric in (RESPONSE, TAIL)}
        known = {metric: pd.DataFrame(np.where(np.isfinite(log), log, np.nan).T) for metric, log in logs.items()}
        means = {metric: log.groupby(problems).mean().to_numpy(float).T for metric, log in known.items()}
        if problems:
            found[name] = Ratios(first, means)
    return base, found


def family_table(episodes: pd.DataFrame, found: dict[str, Ratios]) -> pd.DataFrame:
    """One row per variant without the base: observability, seeds, seeds_note, problems; the mean ratios of response and
    of the 95th percentile of job completion times in per cent, with _low and _high; WORST, a ratio; WORSE, per cent.

    Args:
        episodes: as for `ratios`.
        found: of `ratios`.
    """
    observability = observability_by(episodes, ["variant"]).to_dict()
    records: list[dict[str, Any]] = []
    for name, one in found.items():
        seeds, by_problem = len(one.scores.seeds) if one.scores.learned else 0, one.by_problem
        record = {"variant": name, "observability": observability.get(name, ""), "seeds": seeds}
        record |= {"seeds_note": None if one.scores.learned else interval_note(0, True), "problems": len(by_problem)}
        for metric, logs in one.logs.items():
            record |= percent(f"{PREFIX}{metric}", logs, "episodes")
        worse = 100 * float((by_problem > 1 + MARGIN).mean()) if len(by_problem) else np.nan
        records.append(record | {WORST: max(by_problem, default=np.nan), WORSE: worse})
    return pd.DataFrame(records)
