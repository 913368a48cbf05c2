"""Paired differences of variants as a table whose verdicts hold together, as a function of the rows of one setting."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import pandas as pd

from rllib_scale.errors import UserError

from ..labels import OUTCOMES
from ..load import require_one_setting, variants
from ..stats import families
from ..stats.families import TESTED
from ..stats.scores import Scores, require_partners
from ..stats.summaries import Difference, differences
from .methods import interval_note

BASELINES = ("crossattn", "ppo", "fastest-idle")
"""What learned methods are compared with: the same networks without SRR, and the strongest simple rule."""

VALUES = ("mean", "low", "high")
TESTS = ("p_adjusted", "verdict", "better")

Pair = tuple[str, str]


def default_pairs(episodes: pd.DataFrame) -> list[Pair]:
    """What every page compares, each pair once, in the order of QUESTIONS.

    Every learned variant against every variant of the BASELINES, and against its network without SRR.
    """
    names = variants(episodes)
    methods = dict(zip(episodes["variant"], episodes["method"], strict=True))
    learned = set(episodes.loc[episodes["kind"] == "learned", "variant"])
    baselines = [name for method in BASELINES for name in names if methods[name] == method]
    pairs = [(first, second) for second in baselines for first in names if first in learned and first != second]
    pairs += [(a, b) for a in names for b in names if methods[b] == families.without_srr(methods[a])]
    once = [pair for position, pair in enumerate(pairs) if not {pair, pair[::-1]} & set(pairs[:position])]
    return sorted(once, key=lambda pair: list(families.QUESTIONS).index(_question(pair, methods, learned)))


def _question(pair: Pair, methods: Mapping[str, str], learned: Container[str]) -> str:
    first, second = pair
    return families.question(methods[first], methods[second], [first in learned, second in learned])


def paired_table(
    episodes: pd.DataFrame, pairs: Iterable[Pair] | None = None, shared_seeds: bool = False
) -> pd.DataFrame:
    """Differences first - second on identical episodes, at every scale at which both were evaluated.

    The p-values are adjusted in the families of `default_pairs` and of what else is asked for, whether these are shown
    or not: a verdict does not depend on the page that it stands on.

    Args:
        episodes: rows of one setting.
        pairs: (first, second) variants; by default `default_pairs`.
        shared_seeds: compare two learned methods on the training seeds that both have, where one has more; else they
            are refused.

    Returns:
        One row per (first, second, test_servers): question, a key of QUESTIONS; seeds and seeds_note; of each of the
        OUTCOMES the difference, its _low and _high; of the TESTED also Holm's _p_adjusted in its family, _verdict:
        lower, higher, undecided, equal, no interval (k seeds) or no interval (rules), and _better, the probability that
        the first does better; episodes a seed.

    Raises:
        UserError: the frame mixes settings, a variant is unknown, or a row has no partner (it is named).
    """
    require_one_setting(episodes)
    methods = dict(zip(episodes["variant"], episodes["method"], strict=True))
    learned = set(episodes.loc[episodes["kind"] == "learned", "variant"])
    scores = _scores(episodes, OUTCOMES)
    every = default_pairs(episodes)
    shown = every if pairs is None else list(pairs)
    known = {frozenset(pair) for pair in shown}
    others = [pair for pair in every if frozenset(pair) not in known]
    leads: list[dict[str, Any]] = []
    compared: list[dict[str, Difference]] = []
    questions: list[str] = []
    for pair in [*shown, *_complete(scores, others, shared_seeds)[0]]:
        for first, second, note in _sides(scores, pair, shared_seeds):
            found = differences(first, second, OUTCOMES)
            compared.append(found)
            questions.append(_question(pair, methods, learned))
            seeds = found["completed"].seeds
            note = interval_note(seeds) or note if first.learned or second.learned else "rules"
            lead = {"question": questions[-1], "first": pair[0], "second": pair[1], "test_servers": first.place[-1]}
            leads.append(lead | {"seeds": seeds, "seeds_note": note, "episodes": len(first.episodes)})
    primary = families.endpoint(str(episodes["scenario"].iloc[0])) if len(episodes) else TESTED[0]
    adjusted = families.adjust(compared, questions, primary)
    records = [lead | _record(found) for lead, found in zip(leads, adjusted, strict=True)]
    columns = [_column(metric, name) for metric in OUTCOMES for name in _names(metric)]
    lead_columns = ["question", "first", "second", "test_servers", "seeds", "seeds_note"]
    table = pd.DataFrame(records, columns=[*lead_columns, *columns, "episodes"])
    is_shown = [pair in shown for pair in zip(table["first"], table["second"], strict=True)]
    return table[pd.Series(is_shown, dtype=bool)].reset_index(drop=True)


def complete_pairs(
    episodes: pd.DataFrame, pairs: Iterable[Pair], shared_seeds: bool = False
) -> tuple[list[Pair], list[UserError]]:
    """The pairs that `paired_table` takes, and why it refuses the others."""
    return _complete(_scores(episodes, ()), pairs, shared_seeds)


def _complete(
    scores: dict[str, dict[int, Scores]], pairs: Iterable[Pair], shared_seeds: bool
) -> tuple[list[Pair], list[UserError]]:
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
