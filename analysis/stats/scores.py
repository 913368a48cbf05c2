"""Evaluation rows as arrays over (training seed, episode), and their pairing on identical episodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rllib_scale.errors import UserError

from ..rows import SETTING

PLACE = (*SETTING, "test_servers")
EPISODE = ("eval_seed", "episode")
PAIR_KEY = (*PLACE, *EPISODE)
"""What two rows must share to be a pair; where both methods are learned, the training seed too."""
NO_SEED = -1
"""Stands for the missing training seed of a rule, and sorts before any other."""


@dataclass(frozen=True, eq=False)
class Scores:
    """The metrics of one variant in one setting at one scale.

    Attributes:
        variant: its name.
        learned: whether it has training seeds; a rule has the single seed None.
        place: scenario, mask, decision, test_servers.
        seeds: S training seeds, ascending.
        episodes: E pairs (eval_seed, episode), ascending.
        present: (S, E), whether the episode was evaluated with the seed.
        values: metric -> (S, E), NaN without an episode or a value.
    """

    variant: str
    learned: bool
    place: tuple[str, str, str, int]
    seeds: tuple[int | None, ...]
    episodes: tuple[tuple[int, int], ...]
    present: NDArray[np.bool_]
    values: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, rows: pd.DataFrame, metrics: Sequence[str]) -> Scores:
        """The scores of rows in any order, all of one variant in one setting at one scale.

        Raises:
            UserError: see `scores_by`.
        """
        ((_, scores),) = scores_by(rows, (), metrics)
        return scores

    def of_seeds(self, seeds: Iterable[int | None]) -> Scores:
        """Only these training seeds; a rule stays as it is."""
        if not self.learned:
            return self
        wanted = set(seeds)
        kept = np.array([seed in wanted for seed in self.seeds], dtype=bool)
        return replace(
            self,
            seeds=tuple(seed for seed in self.seeds if seed in wanted),
            present=self.present[kept],
            values={metric: grid[kept] for metric, grid in self.values.items()},
        )

    def of_episodes(self, episodes: Iterable[tuple[int, int]]) -> Scores:
        """Only these episodes."""
        wanted = set(episodes)
        kept = np.array([episode in wanted for episode in self.episodes], dtype=bool)
        if kept.all():
            return self
        return replace(
            self,
            episodes=tuple(episode for episode in self.episodes if episode in wanted),
            present=self.present[:, kept],
            values={metric: grid[:, kept] for metric, grid in self.values.items()},
        )


def scores_by(rows: pd.DataFrame, by: Sequence[str], metrics: Sequence[str]) -> list[tuple[tuple[Any, ...], Scores]]:
    """The scores of each group of rows that agree in the columns `by`, and its key; the groups in ascending order.

    Args:
        rows: in any order.
        by: columns without missing values; none: all rows are one group.
        metrics: columns of numbers.

    Raises:
        UserError: a group mixes variants, settings or scales, or holds an episode of a training seed twice.
    """
    if rows.empty:
        return []
    number = rows.groupby(list(by), observed=True).ngroup().to_numpy() if by else np.zeros(len(rows), dtype=int)
    seeds = rows["train_seed"].astype("Int64").fillna(NO_SEED).to_numpy(np.int64)
    eval_seeds, numbers = (rows[name].to_numpy(np.int64) for name in EPISODE)
    eval_seed_values, at_eval_seed = np.unique(eval_seeds, return_inverse=True)
    width = int(numbers.max()) + 1
    episodes = at_eval_seed * width + numbers  # one number for the pair, in the order of the pairs
    order = np.lexsort((episodes, seeds, number))
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    _require_one(rows, order, starts)
    firsts = rows.iloc[order[starts]]
    learned = firsts["kind"].to_numpy() == "learned"
    keys = firsts[[*by]].itertuples(index=False, name=None)
    places = firsts[["variant", *PLACE]].itertuples(index=False, name=None)
    columns = {name: rows[name].to_numpy(np.float64, na_value=np.nan)[order] for name in metrics}
    known: dict[bytes, tuple[tuple[int, int], ...]] = {}
    found = []
    ends = [*starts[1:], len(rows)]
    for key, (variant, *setting, servers), is_learned, start, end in zip(
        keys, places, learned, starts, ends, strict=True
    ):
        own = order[start:end]
        seed, at_seed = np.unique(seeds[own], return_inverse=True)
        episode, at_episode = np.unique(episodes[own], return_inverse=True)
        present = np.zeros((len(seed), len(episode)), dtype=bool)
        present[at_seed, at_episode] = True
        if present.sum() < len(own):
            _refuse_twice(rows.iloc[own])
        values = {}
        for name, column in columns.items():
            values[name] = np.full(present.shape, np.nan)
            values[name][at_seed, at_episode] = column[start:end]
        if (code := episode.tobytes()) not in known:
            pairs = zip(eval_seed_values[episode // width].tolist(), (episode % width).tolist(), strict=True)
            known[code] = tuple(pairs)
        named = known[code]
        seed_names = tuple(None if number == NO_SEED else number for number in seed.tolist())
        scenario, mask, decision = map(str, setting)
        place = (scenario, mask, decision, int(servers))
        found.append((key, Scores(str(variant), bool(is_learned), place, seed_names, named, present, values)))
    return found


def _require_one(rows: pd.DataFrame, order: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
    """Refuse groups of several variants, settings or scales; the groups begin at `starts` in `order`."""
    for column in ("variant", *PLACE):
        codes = pd.factorize(rows[column])[0][order]
        if (np.minimum.reduceat(codes, starts) != np.maximum.reduceat(codes, starts)).any():
            mixed = sorted(str(value) for value in rows[column].unique())
            raise UserError(f"the frame mixes {column} {', '.join(mixed)}; a statistic takes one")


def _refuse_twice(rows: pd.DataFrame) -> NoReturn:
    """Refuse rows of one group in which an episode of a training seed stands more than once."""
    repeated = rows[rows.duplicated(["train_seed", *EPISODE], keep=False)]
    trials = ", ".join(sorted(set(repeated["trial_id"])))
    row = repeated.iloc[0]
    seed = None if pd.isna(row["train_seed"]) else row["train_seed"]
    key = _describe(tuple(row[name] for name in PLACE), (seed, *(row[name] for name in EPISODE)))
    raise UserError(f"{row['variant']}: more than one row, of {trials}, holds {key}; a statistic takes one")


def require_partners(first: Scores, second: Scores) -> None:
    """Refuse two scores if one holds a row that the other lacks; a rule is paired with every seed.

    Raises:
        UserError: naming the first such pair.
    """
    both_learned = first.learned and second.learned
    same = first.place == second.place and first.episodes == second.episodes
    same = same and (first.seeds == second.seeds or not both_learned)
    if same and first.present.all() and second.present.all():
        return
    seeds = first.seeds if first.learned else second.seeds
    sides = []
    for side in (first, second):
        rows = zip(*np.nonzero(side.present), strict=True)
        keys = ((side.seeds[s], *side.episodes[e]) for s, e in rows)
        if both_learned or side.learned:
            sides.append(set(keys))
        else:
            sides.append({(seed, *episode) for _, *episode in keys for seed in seeds})
    alone = sides[0] | sides[1] if first.place != second.place else sides[0] ^ sides[1]
    if alone:
        key = min(alone, key=lambda key: (key[0] is not None, *(part or 0 for part in key)))
        has, lacks = (first, second) if key in sides[0] else (second, first)
        raise UserError(
            f"{has.variant} has no partner in {lacks.variant} for {_describe(has.place, key)} "
            f"({len(alone)} of {len(sides[0] | sides[1])} pairs are incomplete)"
        )


def _describe(place: tuple[object, ...], key: tuple[object, ...]) -> str:
    scenario, mask, decision, servers = place
    seed, eval_seed, episode = key
    of_seed = "" if seed is None else f"seed {seed}, "
    return (
        f"{of_seed}N={servers}, scenario {scenario}, mask {mask}, decision {decision}, "
        f"eval_seed {eval_seed}, episode {episode}"
    )
