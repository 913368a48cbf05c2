"""Evaluation rows as arrays over (training seed, episode), and their pairing on identical episodes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rllib_scale.errors import UserError
from rllib_scale.results.columns import PAIR_KEY

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
        episodes: E values of PAIR_KEY, ascending: what the scores of two variants share.
        values: metric -> (S, E), NaN without an episode or a value.
    """

    variant: str
    learned: bool
    servers: int
    seeds: tuple[int | None, ...]
    episodes: tuple[tuple[str, int, int], ...]
    values: dict[str, NDArray[np.float64]]

    def shared_with(self, other: Scores) -> Scores:
        """The scores on the episodes of another variant and, if both are learned, with its training seeds."""
        both_learned = self.learned and other.learned
        if self.episodes is other.episodes and (self.seeds == other.seeds or not both_learned):
            return self
        found, seeds = self.at_episodes(set(other.episodes)), set(other.seeds if both_learned else self.seeds)
        rows = [k for k, seed in enumerate(self.seeds) if seed in seeds]
        if len(rows) == len(self.seeds):
            return found
        values = {metric: grid[rows] for metric, grid in found.values.items()}
        return replace(found, seeds=tuple(self.seeds[k] for k in rows), values=values)

    def at_episodes(self, episodes: Container[tuple[str, int, int]]) -> Scores:
        """The scores on some episodes."""
        columns = [k for k, episode in enumerate(self.episodes) if episode in episodes]
        if len(columns) == len(self.episodes):
            return self
        values = {metric: grid[:, columns] for metric, grid in self.values.items()}
        return replace(self, episodes=tuple(self.episodes[k] for k in columns), values=values)


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
    episodes = rows.groupby([*PAIR_KEY], observed=True).ngroup().to_numpy()  # one number each, in the order of the keys
    pairs = list(rows.iloc[np.unique(episodes, return_index=True)[1]][[*PAIR_KEY]].itertuples(index=False, name=None))
    order = np.lexsort((episodes, seeds, number))
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    firsts = rows.iloc[order[starts]]
    learned = firsts["kind"].to_numpy() == "learned"
    keys = firsts[[*by]].itertuples(index=False, name=None)
    places = firsts[["variant", "test_servers"]].itertuples(index=False, name=None)
    columns = {name: rows[name].to_numpy(np.float64, na_value=np.nan)[order] for name in metrics}
    known: dict[bytes, tuple[tuple[str, int, int], ...]] = {}
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
            known[code] = tuple(pairs[number] for number in episode.tolist())
        named = known[code]
        seed_names = tuple(None if number == NO_SEED else number for number in seed.tolist())
        found.append((key, Scores(str(variant), bool(is_learned), int(servers), seed_names, named, values)))
    return found


def _refuse_twice(rows: pd.DataFrame) -> NoReturn:
    """Refuse rows of one group in which an episode of a training seed stands more than once."""
    repeated = rows[rows.duplicated(["train_seed", *PAIR_KEY], keep=False)]
    schedulers = ", ".join(sorted(set(repeated["scheduler"])))
    row = repeated.iloc[0]
    where = ", ".join(f"{name} {row[name]}" for name in ("train_seed", *PAIR_KEY) if not pd.isna(row[name]))
    raise UserError(f"{row['variant']}: more than one row, of {schedulers}, holds {where}; a statistic takes one")


def on_shared(scores: Sequence[Scores]) -> list[Scores]:
    """The scores of several variants on the episodes that all of them have; as they are if there is no such episode."""
    shared = set.intersection(*map(set, {id(one.episodes): one.episodes for one in scores}.values()))
    return [one.at_episodes(shared) if shared else one for one in scores]


def note(shown: int, every: int) -> str | None:
    """Suffix of a number of seeds or episodes of which there are more: "of 30"."""
    return f"of {every}" if every > shown else None
