"""The evaluation episodes with a Gantt chart: two methods on the same workload, one above the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from ..rows import require_one_setting, variants
from ..tables.comparisons import default_pairs
from ..tables.render import format_value

DrawGantt = Callable[[Sequence[pd.Series], Sequence[str]], Figure]
"""Replays the episodes of some rows and draws them one above the other, each under its title.

`rllib_scale.evaluation.replay.Replay` is one: the simulator and the policies stay out of this package.
"""

WORKLOAD = ["eval_seed", "episode"]
MOST_TASKS = 400
"""With more arrived tasks in an episode the bars of a chart are too narrow."""


@dataclass(frozen=True, eq=False)
class Choice:
    """An episode with a Gantt chart.

    Attributes:
        name: typical or extreme.
        why: the reason for the choice, in words.
        rows: the row of each method, the first on top.
    """

    name: str
    why: str
    rows: list[pd.Series]

    @property
    def titles(self) -> list[str]:
        """The title of each chart, from its row."""
        return [_title(row) for row in self.rows]


def chosen_episodes(episodes: pd.DataFrame, servers: int) -> list[Choice]:
    """Episodes of the first pair that is compared, else of the first two methods or the only one, at one scale.

    A learned method plays with its lowest seed, two learned methods with their lowest common one. In the typical
    episode the difference in completed tasks is nearest to the median difference; in the extreme one it is largest.

    Args:
        episodes: rows of one setting.
        servers: the scale N.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    rows = episodes[(episodes["test_servers"] == servers) & (episodes["arrived"] <= MOST_TASKS).fillna(False)]
    names = variants(rows)
    if not names:
        return []
    pair = next(iter(default_pairs(rows)), tuple(names[:2]))
    sides = _of_one_seed([rows[rows["variant"] == name] for name in pair])
    shared = sides[0][WORKLOAD].drop_duplicates()
    for side in sides[1:]:
        shared = shared.merge(side[WORKLOAD])
    aligned = [shared.merge(side, validate="one_to_one").sort_values(WORKLOAD, ignore_index=True) for side in sides]
    if shared.empty:
        return []
    completed = [side["completed"].astype(float).fillna(0) for side in aligned]
    if len(pair) == 1:
        typical = int((completed[0] - completed[0].median()).abs().argmin())
        return [Choice("typical", "with the median number of completed tasks", [aligned[0].iloc[typical]])]
    difference = completed[0] - completed[1]
    typical, extreme = int((difference - difference.median()).abs().argmin()), int(difference.abs().argmax())
    chosen = [Choice("typical", "a typical difference in completed tasks", [side.iloc[typical] for side in aligned])]
    if extreme != typical:
        why = "the largest difference in completed tasks"
        chosen.append(Choice("extreme", why, [side.iloc[extreme] for side in aligned]))
    return chosen


def _of_one_seed(sides: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """The rows of the lowest training seed that all learned sides have, else of the lowest of each."""
    seeds = [set(side["train_seed"].dropna()) for side in sides]
    shared = set.intersection(*(found for found in seeds if found)) if any(seeds) else set()
    return [
        side[side["train_seed"] == min(shared or found)] if found else side
        for side, found in zip(sides, seeds, strict=True)
    ]


def _title(row: pd.Series) -> str:
    seed = "" if pd.isna(row["train_seed"]) else f", seed {row['train_seed']}"
    response = format_value(float(row["response_mean_s"]))
    return (
        f"{row['variant']}{seed} at N = {row['test_servers']}, episode {row['episode']}: {row['completed']} of "
        f"{row['arrived']} tasks completed, mean response {response} s"
    )
