"""Paired differences of variants in one setting, with verdicts that are corrected together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rllib_scale.errors import UserError

from ..labels import OUTCOMES
from ..rows import MOST_SHOWN, asked_alike, require_one_setting, variants, ways
from ..stats import families
from ..stats.families import TESTED
from ..stats.scores import Scores, note, scores_by
from ..stats.summaries import Difference, differences
from .summary import interval_note

BASELINES = ("crossattn", "ppo", "fastest-idle")
"""Baselines of learned methods: networks without SRR, and the strongest simple rule."""

VALUES = ("mean", "low", "high")
TESTS = ("p_adjusted", "verdict", "better")

Pair = tuple[str, str]


def default_pairs(episodes: pd.DataFrame) -> list[Pair]:
    """The pairs that every page compares, in the order of QUESTIONS.

    Every learned variant against every variant of the BASELINES, and against the training that is equal but for SRR;
    against a rule as `asked_alike` says. With more than MOST_SHOWN learned variants, each is compared with those of a
    baseline whose settings are the most like its own: the number of pairs grows with the variants, not with their
    square.
    """
    firsts = _firsts(episodes)
    learned = [name for name, one in firsts.items() if one["kind"] == "learned"]
    settings = _codes({name: str(firsts[name]["apart_from_srr"]) for name in learned})
    asked, pairs = ways(episodes), list[Pair]()
    for method in BASELINES:
        baselines = [name for name, one in firsts.items() if one["method"] == method]
        is_rule, like = not {*baselines} <= {*learned}, settings.reindex(baselines)
        against = []
        for name in learned:
            others = asked_alike(name, baselines, asked) if is_rule else baselines
            if not is_rule and len(others) > 1 and len(learned) > MOST_SHOWN:
                others = _most_like(settings.loc[name].to_numpy(), like)
            against += [(name, other) for other in others if other != name]
        pairs += sorted(against, key=lambda pair: baselines.index(pair[1]))
    without: dict[str, list[str]] = {}
    for name in (name for name in learned if not families.has_srr(firsts[name])):
        without.setdefault(firsts[name]["apart_from_srr"], []).append(name)
    pairs += [
        (a, b) for a in learned if families.has_srr(firsts[a]) for b in without.get(firsts[a]["apart_from_srr"], [])
    ]
    once: dict[frozenset[str], Pair] = {}
    for pair in pairs:
        once.setdefault(frozenset(pair), pair)
    order = list(families.QUESTIONS)
    return sorted(once.values(), key=lambda pair: order.index(families.question(*(firsts[name] for name in pair))))


def _firsts(episodes: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Variant -> its first row, in the order of variants."""
    columns = ["method", "kind", "lambda_decorrelation", "lambda_kl", "apart_from_srr"]
    rows = episodes.drop_duplicates("variant").set_index("variant")[columns]
    return {name: {str(column): value for column, value in rows.loc[name].items()} for name in variants(episodes)}


def _codes(words: Mapping[str, str]) -> pd.DataFrame:
    """Variant x path: a number for each value of a setting, -1 where it has none."""
    settings = {name: dict(part.partition("=")[::2] for part in text.split("; ")) for name, text in words.items()}
    values = pd.DataFrame.from_dict(settings, orient="index")
    return values.apply(lambda of_path: of_path.astype("category").cat.codes)


def _most_like(own: np.ndarray, others: pd.DataFrame) -> list[str]:
    """The others with the fewest differing settings; `own` is a row of `_codes`."""
    codes = others.to_numpy()
    unlike = ((codes != own) & (codes >= 0) & (own >= 0)).sum(axis=1)
    return [str(name) for name in others.index[unlike == unlike.min()]]


def paired_table(episodes: pd.DataFrame, pairs: Iterable[Pair] | None = None) -> pd.DataFrame:
    """Differences first - second on the episodes that both have, at every scale at which both were evaluated.

    Two learned methods are compared on the training seeds that both have. The p-values are adjusted in the families of
    `default_pairs` and of any other given pair: a verdict does not depend on what a page shows.

    Args:
        episodes: rows of one setting.
        pairs: (first, second) variants; by default `default_pairs`.

    Returns:
        One row per (first, second, test_servers): question, a key of QUESTIONS; seeds, and seeds_note ("of 8" if one
        side has more); of each of the OUTCOMES the difference, its _low and _high; of the TESTED also Holm's
        _p_adjusted in its family, _verdict: lower, higher, undecided, equal, or no interval and why, and _better, the
        probability that the first does better; episodes a seed, and episodes_note.

    Raises:
        UserError: the frame mixes settings, or a variant is unknown.
    """
    require_one_setting(episodes)
    firsts, scores, every = _firsts(episodes), _scores(episodes, OUTCOMES), default_pairs(episodes)
    shown = every if pairs is None else list(pairs)
    for name in (name for pair in shown for name in pair if name not in scores):
        raise UserError(f"unknown variant {name!r}; valid: {', '.join(scores)}")
    asked = {pair: families.question(*(firsts[name] for name in pair)) for pair in (*shown, *every)}
    known = {frozenset(pair) for pair in shown}
    others = [pair for pair in every if frozenset(pair) not in known]
    others = [pair for pair in others if asked[pair] in {asked[one] for one in shown}]  # no other family matters
    leads: list[dict[str, Any]] = []
    compared: list[dict[str, Difference]] = []
    questions: list[str] = []
    for pair in [*shown, *others]:
        for whole in _at_common_scales(scores, pair):
            first, second = whole[0].shared_with(whole[1]), whole[1].shared_with(whole[0])
            if not (first.seeds and second.seeds and first.episodes):
                continue
            found = differences(first, second, OUTCOMES)
            compared.append(found)
            questions.append(asked[pair])
            seeds, count = found["completed"].seeds, len(first.episodes)
            of_seeds = note(seeds, max((len(one.seeds) for one in whole if one.learned), default=0))
            lead = {"question": asked[pair], "first": pair[0], "second": pair[1], "test_servers": first.servers}
            lead |= {"seeds": seeds, "seeds_note": (interval_note(seeds) or of_seeds) if seeds else "rules"}
            lead |= {"episodes": count, "episodes_note": note(count, max(len(one.episodes) for one in whole))}
            leads.append(lead)
    adjusted = families.adjust(compared, questions, families.endpoint(episodes))
    records = [lead | _record(found) for lead, found in zip(leads, adjusted, strict=True)]
    columns = [_column(metric, name) for metric in OUTCOMES for name in _names(metric)]
    lead_columns = ["question", "first", "second", "test_servers", "seeds", "seeds_note"]
    table = pd.DataFrame(records, columns=[*lead_columns, *columns, "episodes", "episodes_note"])
    is_shown = set(shown)
    kept = [pair in is_shown for pair in zip(table["first"], table["second"], strict=True)]
    return table[pd.Series(kept, dtype=bool)].reset_index(drop=True)


def _scores(episodes: pd.DataFrame, metrics: tuple[str, ...]) -> dict[str, dict[int, Scores]]:
    """Variant -> test_servers -> scores, in ascending scales."""
    found: dict[str, dict[int, Scores]] = {name: {} for name in variants(episodes)}
    for (name, servers), scores in scores_by(episodes, ("variant", "test_servers"), metrics):
        found[name][servers] = scores
    return found


def _at_common_scales(scores: dict[str, dict[int, Scores]], pair: Pair) -> Iterable[tuple[Scores, Scores]]:
    firsts, seconds = (scores[name] for name in pair)
    return ((firsts[servers], seconds[servers]) for servers in sorted(firsts.keys() & seconds.keys()))


def _names(metric: str) -> tuple[str, ...]:
    return (*VALUES, *TESTS) if metric in TESTED else VALUES


def _column(metric: str, name: str) -> str:
    return metric if name == "mean" else f"{metric}_{name}"


def _record(found: dict[str, Difference]) -> dict[str, Any]:
    return {_column(m, name): getattr(difference, name) for m, difference in found.items() for name in _names(m)}
