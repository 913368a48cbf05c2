"""Paired differences of variants as a table whose verdicts hold together, as a function of the rows of one setting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from rllib_scale.errors import UserError

from ..load import require_one_setting, variants
from ..stats.scores import Scores, require_partners
from ..stats.summaries import Difference, adjust, differences
from .methods import OUTCOMES, interval_note

BASELINES = ("crossattn", "ppo", "fastest-idle")
"""What learned methods are compared with: the same networks without SRR, and the strongest simple rule."""

TESTED = ("completed", "response_mean_s", "response_censored_s")
"""The family of a table: each of its rows in each of these. Unfinished tasks mirror the completed ones."""

VALUES = ("mean", "low", "high")
TESTS = ("p", "p_adjusted", "verdict", "better", "better_low", "better_high")

Pair = tuple[str, str]


def default_pairs(episodes: pd.DataFrame) -> list[Pair]:
    """Every learned variant against every variant of the BASELINES, each pair once."""
    methods = dict(zip(episodes["variant"], episodes["method"], strict=True))
    names = variants(episodes)
    learned = set(episodes.loc[episodes["kind"] == "learned", "variant"])
    baselines = [name for method in BASELINES for name in names if methods[name] == method]
    pairs: list[Pair] = []
    for second in baselines:
        pairs += [(first, second) for first in names if first in learned and first != second]
    return [pair for position, pair in enumerate(pairs) if pair[::-1] not in pairs[:position]]


def paired_table(
    episodes: pd.DataFrame, pairs: Iterable[Pair] | None = None, shared_seeds: bool = False
) -> pd.DataFrame:
    """Differences first - second on identical episodes, at every scale at which both were evaluated.

    Args:
        episodes: rows of one setting.
        pairs: (first, second) variants; by default `default_pairs`.
        shared_seeds: compare two learned methods on the training seeds that both have, where one has more; else they
            are refused.

    Returns:
        One row per (first, second, test_servers): seeds and seeds_note; of each of the OUTCOMES the difference, its
        _low and _high; of the TESTED also the p-value _p, Holm's _p_adjusted over all TESTED of all rows, _verdict:
        lower, higher, undecided or no interval (k seeds), and _better, the probability that the first does better,
        with its ends; episodes a seed.

    Raises:
        UserError: the frame mixes settings, a variant is unknown, or a row has no partner (it is named).
    """
    require_one_setting(episodes)
    leads: list[dict[str, Any]] = []
    compared: list[dict[str, Difference]] = []
    scores = _scores(episodes, OUTCOMES)
    for pair in default_pairs(episodes) if pairs is None else pairs:
        for first, second, note in _sides(scores, pair, shared_seeds):
            found = differences(first, second, OUTCOMES)
            seeds, unit = found["completed"].seeds, found["completed"].unit
            note = "rules" if unit == "episodes" else interval_note(seeds) or note
            lead = {"first": pair[0], "second": pair[1], "test_servers": first.place[-1], "seeds": seeds}
            leads.append(lead | {"seeds_note": note, "episodes": len(first.episodes)})
            compared.append(found)
    adjusted = iter(adjust([found[metric] for found in compared for metric in TESTED]))
    compared = [found | {metric: next(adjusted) for metric in TESTED} for found in compared]
    records = [lead | _record(found) for lead, found in zip(leads, compared, strict=True)]
    columns = [_column(metric, name) for metric in OUTCOMES for name in _names(metric)]
    return pd.DataFrame(
        records, columns=["first", "second", "test_servers", "seeds", "seeds_note", *columns, "episodes"]
    )


def complete_pairs(
    episodes: pd.DataFrame, pairs: Iterable[Pair], shared_seeds: bool = False
) -> tuple[list[Pair], list[UserError]]:
    """The pairs that `paired_table` takes, and why it refuses the others."""
    scores = _scores(episodes, ())
    complete, refusals = [], []
    for pair in pairs:
        try:
            for first, second, _ in _sides(scores, pair, shared_seeds):
                require_partners(first, second)
            complete.append(pair)
        except UserError as error:
            refusals.append(error)
    return complete, refusals


def _scores(episodes: pd.DataFrame, metrics: tuple[str, ...]) -> dict[str, dict[int, Scores]]:
    """Variant -> test_servers -> scores, in ascending scales."""
    found: dict[str, dict[int, Scores]] = {name: {} for name in variants(episodes)}
    for _, rows in episodes.groupby(["variant", "test_servers"]):
        scores = Scores.of(rows, metrics)
        found[scores.variant][scores.place[-1]] = scores
    return found


def _sides(
    scores: dict[str, dict[int, Scores]], pair: Pair, shared_seeds: bool
) -> Iterable[tuple[Scores, Scores, str | None]]:
    """The two sides at each common scale, and "shared" where seeds that only one of them has are left out."""
    for name in pair:
        if name not in scores:
            raise UserError(f"unknown variant {name!r}; valid: {', '.join(scores)}")
    firsts, seconds = (scores[name] for name in pair)
    for servers in sorted(firsts.keys() & seconds.keys()):
        first, second = firsts[servers], seconds[servers]
        shared = set(first.seeds) & set(second.seeds)
        if shared_seeds and first.learned and second.learned and shared and first.seeds != second.seeds:
            yield first.of_seeds(shared), second.of_seeds(shared), "shared"
        else:
            yield first, second, None


def _names(metric: str) -> tuple[str, ...]:
    return (*VALUES, *TESTS) if metric in TESTED else VALUES


def _column(metric: str, name: str) -> str:
    return metric if name == "mean" else f"{metric}_{name}"


def _record(found: dict[str, Difference]) -> dict[str, Any]:
    return {_column(m, name): getattr(difference, name) for m, difference in found.items() for name in _names(m)}
