"""What a paired table decides, in sentences that are made from its numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from ..labels import BETTER, NOUNS
from ..stats.resampling import MIN_SEEDS
from ..tables.render import format_value


@dataclass(frozen=True)
class Verdicts:
    """What a paired table decides, in sentences, one for each pair.

    Attributes:
        won: who is better than whom, where, and by how much.
        undecided: in what, and where, a pair shows no difference beyond chance.
        unclaimed: pairs with too few seeds for any claim, with their seeds.
        pairs: how many there are.
    """

    won: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    unclaimed: list[tuple[str, int]] = field(default_factory=list)
    pairs: int = 0


def verdicts(paired: pd.DataFrame) -> Verdicts:
    """Sort the verdicts of a paired table, as of `comparisons.paired_table`, into sentences.

    Those who won at most scales and in most outcomes come first. E.g. "fastest-idle against scale at N = 16 and 32:
    fastest-idle completes more tasks (by 4.90 to 14.73); scale has a lower response time (by 1.09 to 1.51 s), with
    fewer tasks completed."
    """
    found = Verdicts(pairs=len(paired[["first", "second"]].drop_duplicates()))
    won: list[tuple[int, str]] = []
    for (first, second), rows in paired.groupby(["first", "second"], sort=False):
        if (rows["seeds"] < MIN_SEEDS).all():
            found.unclaimed.append((f"{first} and {second}", int(rows["seeds"].max())))
            continue
        wins = [_wins(rows, metric, name == first) for name in (first, second) for metric in NOUNS]
        if decided := sum(map(len, wins)):
            won.append((decided, _won(str(first), str(second), rows, wins)))
        open_in = [_open_at(metrics, rows, where) for where, metrics in _by_scales(rows).items()]
        if open_in:
            found.undecided.append(f"{first} and {second}: {'; '.join(open_in)}.")
    found.won.extend(sentence for _, sentence in sorted(won, key=lambda pair: -pair[0]))
    return found


def _wins(rows: pd.DataFrame, metric: str, is_first: bool) -> pd.DataFrame:
    """The rows in which one of a pair is better in a metric."""
    better = "higher" if is_first == (metric == "completed") else "lower"
    return rows[rows[f"{metric}_verdict"] == better]


def _won(first: str, second: str, rows: pd.DataFrame, wins: Sequence[pd.DataFrame]) -> str:
    """The sentence on a pair of which either is better in something; `wins` of the first, then of the second."""
    of_name = {first: wins[: len(NOUNS)], second: wins[len(NOUNS) :]}
    winner, loser = sorted(of_name, key=lambda name: -sum(map(len, of_name[name])))
    places = {tuple(won.index) for won in wins if len(won)}
    at = f" at {scales(rows.loc[list(places.pop())], rows)}" if len(places) == 1 else ""
    said = []
    for name in (winner, loser):
        parts = [
            _better(metric, won) + ("" if at else f" at {scales(won, rows)}") + _price(metric, won, rows, name == first)
            for metric, won in zip(NOUNS, of_name[name], strict=True)
            if len(won)
        ]
        if parts:
            said.append(f"{name} {listed(parts)}")
    return f"{winner} against {loser}{at}: {'; '.join(said)}."


def _better(metric: str, won: pd.DataFrame) -> str:
    by = won[metric].astype(float).abs()
    least, most = format_value(float(by.min())), format_value(float(by.max()))
    unit = " s" if metric.endswith("_s") else ""
    return f"{BETTER[metric]} (by {least if least == most else f'{least} to {most}'}{unit})"


def _price(metric: str, won: pd.DataFrame, rows: pd.DataFrame, is_first: bool) -> str:
    """A low response may be bought with tasks that are not completed."""
    bought = won[won["completed_verdict"] == ("lower" if is_first else "higher")]
    if metric != "response_mean_s" or bought.empty:
        return ""
    return ", with fewer tasks completed" + ("" if len(bought) == len(won) else f" at {scales(bought, rows)}")


def _by_scales(rows: pd.DataFrame) -> dict[tuple[int, ...], list[str]]:
    """Scales -> the metrics that are undecided at them."""
    found: dict[tuple[int, ...], list[str]] = {}
    for metric in NOUNS:
        undecided = rows[rows[f"{metric}_verdict"] == "undecided"]
        if len(undecided):
            found.setdefault(tuple(undecided.index), []).append(metric)
    return found


def _open_at(metrics: Sequence[str], rows: pd.DataFrame, where: tuple[int, ...]) -> str:
    return f"{listed([NOUNS[metric] for metric in metrics])} at {scales(rows.loc[list(where)], rows)}"


def listed(names: Sequence[str], most: int = 1000) -> str:
    """Names in a sentence, the first `most` of them.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b", "c"], 1)
    ('a', 'a, b and c', 'a and 2 more')
    """
    names = [*names[:most], f"{len(names) - most} more"] if len(names) > most else names
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def scales(chosen: pd.DataFrame, rows: pd.DataFrame) -> str:
    """The scales of some rows of a pair: each, or "every N from 16 to 128" where these are all of three or more."""
    numbers = [str(servers) for servers in chosen["test_servers"]]
    if len(numbers) == len(rows) > 2:
        return f"every N from {numbers[0]} to {numbers[-1]}"
    return f"N = {listed(numbers)}"
