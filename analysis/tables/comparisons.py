"""Paired differences of variants in one setting, with verdicts that are corrected together."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import pandas as pd

from rllib_scale.errors import UserError

from ..labels import OUTCOMES
from ..rows import asked_alike, protocols, require_one_setting, variants
from ..shown import MOST_SHOWN
from ..stats import families
from ..stats.families import TESTED
from ..stats.scores import Scores, scores_by
from ..stats.summaries import Difference, differences
from .summary import interval_note

BASELINES = ("crossattn", "ppo", "fastest-idle")
"""What learned methods are compared with: networks without SRR, and the strongest simple rule."""

SAME_SETTINGS = ("overrides", "train_servers", "epochs")
"""What two trained variants share that differ in their method, or in the weights of SRR, alone."""
VALUES = ("mean", "low", "high")
TESTS = ("p_adjusted", "verdict", "better")

Pair = tuple[str, str]


def default_pairs(episodes: pd.DataFrame) -> list[Pair]:
    """The pairs that every page compares, in the order of QUESTIONS.

    Every learned variant against every variant of the BASELINES, and against its network without SRR; against a rule
    as `asked_alike` says. With more than MOST_SHOWN learned variants, each is compared with those learned ones that
    share its settings alone: the number of pairs grows with the variants, not with their square.
    """
    names = variants(episodes)
    place = {name: number for number, name in enumerate(names)}
    firsts = episodes.drop_duplicates("variant").set_index("variant").loc[names]
    methods = {str(name): str(method) for name, method in firsts["method"].items()}
    learned, asked = set(firsts.index[firsts["kind"] == "learned"]), protocols(episodes)
    settings = dict(zip(names, firsts[list(SAME_SETTINGS)].astype(str).itertuples(index=False, name=None), strict=True))
    alike: dict[Any, list[str]] = {}
    for name in names:
        alike.setdefault(methods[name], []).append(name)
        alike.setdefault((methods[name], settings[name]), []).append(name)

    def partners(name: str, method: str | None) -> list[str]:
        found = alike.get(method, [])
        if found and found[0] not in learned:
            found = asked_alike(name, found, asked)
        elif len(found) > 1 and len(learned) > MOST_SHOWN:
            found = alike.get((method, settings[name]), [])
        return [other for other in found if other != name]

    pairs = [(a, b) for method in BASELINES for a in names if a in learned for b in partners(a, method)]
    pairs.sort(key=lambda pair: (BASELINES.index(methods[pair[1]]), place[pair[1]]))
    pairs += [(a, b) for a in names for b in partners(a, families.without_srr(methods[a]))]
    once: dict[frozenset[str], Pair] = {}
    for pair in pairs:
        once.setdefault(frozenset(pair), pair)
    order = list(families.QUESTIONS)
    return sorted(once.values(), key=lambda pair: order.index(_question(pair, methods, learned)))


def _question(pair: Pair, methods: Mapping[str, str], learned: Container[str]) -> str:
    first, second = pair
    return families.question(methods[first], methods[second], [first in learned, second in learned])


def paired_table(episodes: pd.DataFrame, pairs: Iterable[Pair] | None = None) -> pd.DataFrame:
    """Differences first - second on the episodes that both have, at every scale at which both were evaluated.

    Two learned methods are compared on the training seeds that both have. The p-values are adjusted in the families of
    `default_pairs` and of any other given pair: a verdict does not depend on what a page shows.

    Args:
        episodes: rows of one setting.
        pairs: (first, second) variants; by default `default_pairs`.

    Returns:
        One row per (first, second, test_servers): question, a key of QUESTIONS; seeds and seeds_note ("shared" if one
        side has seeds or episodes that the other lacks); of each of the OUTCOMES the difference, its _low and _high; of
        the TESTED also Holm's _p_adjusted in its family, _verdict: lower, higher, undecided, equal, no interval (k
        seeds) or no interval (rules), and _better, the probability that the first does better; episodes a seed.

    Raises:
        UserError: the frame mixes settings, or a variant is unknown.
    """
    require_one_setting(episodes)
    firsts = episodes.drop_duplicates("variant").set_index("variant")
    methods = {str(name): str(method) for name, method in firsts["method"].items()}
    learned = set(firsts.index[firsts["kind"] == "learned"])
    scores = _scores(episodes, OUTCOMES)
    every = default_pairs(episodes)
    shown = every if pairs is None else list(pairs)
    for name in (name for pair in shown for name in pair if name not in scores):
        raise UserError(f"unknown variant {name!r}; valid: {', '.join(scores)}")
    known = {frozenset(pair) for pair in shown}
    others = [pair for pair in every if frozenset(pair) not in known]
    asked = {_question(pair, methods, learned) for pair in shown}
    others = [pair for pair in others if _question(pair, methods, learned) in asked]  # no other family matters
    leads: list[dict[str, Any]] = []
    compared: list[dict[str, Difference]] = []
    questions: list[str] = []
    for pair in [*shown, *others]:
        for first, second, note in _sides(scores, pair):
            found = differences(first, second, OUTCOMES)
            compared.append(found)
            questions.append(_question(pair, methods, learned))
            seeds = found["completed"].seeds
            note = interval_note(seeds) or note if first.learned or second.learned else "rules"
            lead = {"question": questions[-1], "first": pair[0], "second": pair[1], "test_servers": first.servers}
            leads.append(lead | {"seeds": seeds, "seeds_note": note, "episodes": len(first.episodes)})
    primary = families.endpoint(str(episodes["scenario"].iloc[0])) if len(episodes) else TESTED[0]
    adjusted = families.adjust(compared, questions, primary)
    records = [lead | _record(found) for lead, found in zip(leads, adjusted, strict=True)]
    columns = [_column(metric, name) for metric in OUTCOMES for name in _names(metric)]
    lead_columns = ["question", "first", "second", "test_servers", "seeds", "seeds_note"]
    table = pd.DataFrame(records, columns=[*lead_columns, *columns, "episodes"])
    is_shown = set(shown)
    kept = [pair in is_shown for pair in zip(table["first"], table["second"], strict=True)]
    return table[pd.Series(kept, dtype=bool)].reset_index(drop=True)


def _scores(episodes: pd.DataFrame, metrics: tuple[str, ...]) -> dict[str, dict[int, Scores]]:
    """Variant -> test_servers -> scores, in ascending scales."""
    found: dict[str, dict[int, Scores]] = {name: {} for name in variants(episodes)}
    for (name, servers), scores in scores_by(episodes, ("variant", "test_servers"), metrics):
        found[name][servers] = scores
    return found


def _sides(scores: dict[str, dict[int, Scores]], pair: Pair) -> Iterable[tuple[Scores, Scores, str | None]]:
    """The two sides at each common scale on their common seeds and episodes; "shared" if one of them has others."""
    firsts, seconds = (scores[name] for name in pair)
    for servers in sorted(firsts.keys() & seconds.keys()):
        first = firsts[servers].shared_with(seconds[servers])
        second = seconds[servers].shared_with(firsts[servers])
        if first.seeds and second.seeds and first.episodes:
            whole = first is firsts[servers] and second is seconds[servers]
            yield first, second, None if whole else "shared"


def _names(metric: str) -> tuple[str, ...]:
    return (*VALUES, *TESTS) if metric in TESTED else VALUES


def _column(metric: str, name: str) -> str:
    return metric if name == "mean" else f"{metric}_{name}"


def _record(found: dict[str, Difference]) -> dict[str, Any]:
    return {_column(m, name): getattr(difference, name) for m, difference in found.items() for name in _names(m)}
