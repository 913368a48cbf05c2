"""Evaluation rows as arrays over (training seed, episode), and their pairing on identical episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rllib_scale.errors import UserError

from ..rows import SETTING

AT_SCALE = (*SETTING, "test_servers")
EPISODE = ("eval_seed", "episode")
PAIR_KEY = (*AT_SCALE, *EPISODE)
"""What two rows must share to be a pair; where both methods are learned, the training seed too."""
NO_SEED = -1
"""Stands for the missing training seed of a rule, and sorts before any other."""


@dataclass(frozen=True, eq=False)
class Scores:
    """The metrics of one variant in one setting at one scale.

    Attributes:
        variant: its name.
        learned: whether it has training seeds; a rule has the single seed None.
        servers: the scale N.
        seeds: S training seeds, ascending.
        episodes: E pairs (eval_seed, episode), ascending.
        values: metric -> (S, E), NaN without an episode or a value.
    """

    variant: str
    learned: bool
    servers: int
    seeds: tuple[int | None, ...]
    episodes: tuple[tuple[int, int], ...]
    values: dict[str, NDArray[np.float64]]

    def shared_with(self, other: Scores) -> Scores:
        """The scores on the episodes of another variant and, if both are learned, with its training seeds."""
        both_learned = self.learned and other.learned
        if self.episodes is other.episodes and (self.seeds == other.seeds or not both_learned):
            return self
        seeds, episodes = set(other.seeds if both_learned else self.seeds), set(other.episodes)
        rows = [k for k, seed in enumerate(self.seeds) if seed in seeds]
        columns = [k for k, episode in enumerate(self.episodes) if episode in episodes]
        if len(rows) == len(self.seeds) and len(columns) == len(self.episodes):
            return self
        return replace(
            self,
            seeds=tuple(self.seeds[k] for k in rows),
            episodes=tuple(self.episodes[k] for k in columns),
            values={metric: grid[np.ix_(rows, columns)] for metric, grid in self.values.items()},
        )


def scores_by(rows: pd.DataFrame, by: Sequence[str], metrics: Sequence[str]) -> list[tuple[tuple[Any, ...], Scores]]:
    """The scores of each group of rows that agree in the columns `by`, and its key; the groups in ascending order.

    Args:
        rows: in any order.
        by: columns without missing values, which name one variant in one setting at one scale.
        metrics: columns of numbers.

    Raises:
        UserError: a group holds an episode of a training seed twice.
    """
    if rows.empty:
        return []
    # One sort for all groups, in place of a frame for each.
    number = rows.groupby(list(by), observed=True).ngroup().to_numpy()
    seeds = rows["train_seed"].astype("Int64").fillna(NO_SEED).to_numpy(np.int64)
    eval_seeds, numbers = (rows[name].to_numpy(np.int64) for name in EPISODE)
    eval_seed_values, at_eval_seed = np.unique(eval_seeds, return_inverse=True)
    width = int(numbers.max()) + 1
    episodes = at_eval_seed * width + numbers  # one number for the pair, in the order of the pairs
    order = np.lexsort((episodes, seeds, number))
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    firsts = rows.iloc[order[starts]]
    learned = firsts["kind"].to_numpy() == "learned"
    keys = firsts[[*by]].itertuples(index=False, name=None)
    places = firsts[["variant", "test_servers"]].itertuples(index=False, name=None)
    columns = {name: rows[name].to_numpy(np.float64, na_value=np.nan)[order] for name in metrics}
    known: dict[bytes, tuple[tuple[int, int], ...]] = {}
    found = []
    ends = [*starts[1:], len(rows)]
    for key, (variant, servers), is_learned, start, end in zip(keys, places, learned, starts, ends, strict=True):
        own = order[start:end]
        seed, at_seed = np.unique(seeds[own], return_inverse=True)
        episode, at_episode = np.unique(episodes[own], return_inverse=True)
        # Sorted by seed and episode: a duplicate follows its twin.
        if ((np.diff(at_seed) == 0) & (np.diff(at_episode) == 0)).any():
            _refuse_twice(rows.iloc[own])
        values = {}
        for name, column in columns.items():
            values[name] = np.full((len(seed), len(episode)), np.nan)
            values[name][at_seed, at_episode] = column[start:end]
        # Groups mostly share their episodes: `shared_with` then sees the same tuple, and compares nothing.
        if (code := episode.tobytes()) not in known:
            pairs = zip(eval_seed_values[episode // width].tolist(), (episode % width).tolist(), strict=True)
            known[code] = tuple(pairs)
        named = known[code]
        seed_names = tuple(None if number == NO_SEED else number for number in seed.tolist())
        found.append((key, Scores(str(variant), bool(is_learned), int(servers), seed_names, named, values)))
    return found


def _refuse_twice(rows: pd.DataFrame) -> NoReturn:
    """Refuse rows of one group in which an episode of a training seed stands more than once."""
    repeated = rows[rows.duplicated(["train_seed", *EPISODE], keep=False)]
    trials = ", ".join(sorted(set(repeated["trial_id"])))
    row = repeated.iloc[0]
    where = ", ".join(f"{name} {row[name]}" for name in ("train_seed", *PAIR_KEY) if not pd.isna(row[name]))
    raise UserError(f"{row['variant']}: more than one row, of {trials}, holds {where}; a statistic takes one")
