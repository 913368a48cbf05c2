"""Evaluation rows as arrays over (training seed, episode), and the pairing of two of them on identical episodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rllib_scale.errors import UserError

from ..load import SETTING

PLACE = (*SETTING, "test_servers")
EPISODE = ("eval_seed", "episode")
PAIR_KEY = (*PLACE, *EPISODE)
"""What two rows must share to be a pair; where both methods are learned, the training seed too."""


@dataclass(frozen=True, eq=False)
class Scores:
    """The metrics of one variant in one setting at one scale.

    Attributes:
        variant: its name.
        learned: whether it has training seeds; a heuristic has one row, of seed None.
        place: scenario, mask, decision, test_servers.
        seeds: S training seeds, ascending.
        episodes: E pairs (eval_seed, episode), ascending.
        present: (S, E), whether the episode was evaluated with the seed.
        values: metric -> (S, E), NaN where it was not, or where it has no value.
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
        """The scores of rows in any order.

        Raises:
            UserError: the rows mix variants, settings or scales, or hold an episode of a seed twice.
        """
        for column in ("variant", *PLACE):
            mixed = sorted(str(value) for value in rows[column].unique())
            if len(mixed) > 1:
                raise UserError(f"the frame mixes {column} {', '.join(mixed)}; a statistic takes one")
        variant, *setting, servers = (rows[column].iloc[0] for column in ("variant", *PLACE))
        scenario, mask, decision = map(str, setting)
        place = (scenario, mask, decision, int(servers))
        seed_of = [None if pd.isna(seed) else int(seed) for seed in rows["train_seed"]]
        episode_of = list(zip(*(rows[name].astype(int) for name in EPISODE), strict=True))
        if len(set(zip(seed_of, episode_of, strict=True))) < len(rows):
            repeated = rows.duplicated(["train_seed", *EPISODE], keep=False).to_numpy()
            cells = ", ".join(sorted(set(rows.loc[repeated, "cell"])))
            at = int(repeated.argmax())
            key = _describe(place, (seed_of[at], *episode_of[at]))
            raise UserError(f"{variant}: more than one row, of {cells}, holds {key}; a statistic takes one")
        seeds = tuple(sorted(set(seed_of), key=lambda seed: -1 if seed is None else seed))
        episodes = tuple(sorted(set(episode_of)))
        seed_at, episode_at = ({key: i for i, key in enumerate(keys)} for keys in (seeds, episodes))
        at_cell = [seed_at[seed] for seed in seed_of], [episode_at[episode] for episode in episode_of]
        present = np.zeros((len(seeds), len(episodes)), dtype=bool)
        present[at_cell] = True
        values = {metric: np.full(present.shape, np.nan) for metric in metrics}
        for metric, grid in values.items():
            grid[at_cell] = rows[metric].to_numpy(dtype=float, na_value=np.nan)
        return cls(str(variant), "learned" in set(rows["kind"]), place, seeds, episodes, present, values)

    def of_seeds(self, seeds: Iterable[int | None]) -> Scores:
        """Only these training seeds; a heuristic stays as it is."""
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


def require_partners(first: Scores, second: Scores) -> None:
    """Refuse two scores of which one holds a row that the other lacks; a heuristic is paired with every seed.

    Raises:
        UserError: naming the first such pair.
    """
    both_learned = first.learned and second.learned
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
