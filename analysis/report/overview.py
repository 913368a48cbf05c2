"""The report in one minute: what comes first of all on the page, in report.md and on a terminal."""

from __future__ import annotations

import time

import pandas as pd

from ..labels import LOWER_IS_BETTER
from ..load import Results
from ..stats.resampling import MIN_SEEDS
from . import summary
from .sections import Section
from .verdicts import Verdicts

NAMED_VERDICTS, NAMED_PAIRS = 12, 8
"""More verdicts, or pairs without a claim, are counted, not named."""
ANSWERS = {
    "SRR": ("Does SRR help?", ("better with it", "worse")),
    "rule": ("Does learning beat the rule?", ("the learned method is better", "the rule")),
    "learned": ("Which learned method is better?", ("the first of the pair is better", "the second")),
}
NOTHING = "There is nothing to compare yet."


def overview(results: Results, content: list[Section]) -> dict[str, list[str]]:
    """Heading -> sentences made from the numbers: of the first setting all, of each other one a sentence.

    Args:
        results: of a folder.
        content: its sections.
    """
    first, *others = [section for section in content if section.best] or [Section("", "")]
    failed = [*summary.training_state_lines(results, time.time()), *results.notes]
    if refused := sum(len(section.refusals) for section in content):
        failed.append(f"{refused} pairs could not be compared; each section says which.")
    words = {
        f"What won: {first.title}" if first.title else "What won": _won(first),
        "What is undecided": _undecided(first),
        "Beside the paper's numbers": first.beside,
        "In the other settings": _in_short(others),
        "What failed or is missing": failed or ["Nothing, as far as the files of this folder tell."],
        "How it was made": summary.training_lines(results),
    }
    return {heading: lines for heading, lines in words.items() if lines}


def five_lines(results: Results, content: list[Section]) -> list[str]:
    """The report in five lines at most: who is first, an answer to each question, and what is missing."""
    compared = [section for section in content if any(section.setting)]
    lines = [f"{section.title}. {' '.join(section.best[:: len(section.best) - 1 or 1])}" for section in compared[:1]]
    for question, (asked, sides) in ANSWERS.items():
        counts = pd.Series(dtype=int)
        for section in compared:
            rows = section.paired
            own = rows[(rows["question"] == question) & rows[f"{section.endpoint}_low"].notna()]
            verdicts = own[f"{section.endpoint}_verdict"].replace({"equal": "undecided"})
            if section.endpoint in LOWER_IS_BETTER:
                verdicts = verdicts.replace({"lower": "higher", "higher": "lower"})
            counts = counts.add(verdicts.value_counts(), fill_value=0)
        if counts.sum():
            better, worse = int(counts.get("higher", 0)), int(counts.get("lower", 0))
            said = f"{sides[0]} in {better}, {sides[1]} in {worse}, undecided in {int(counts.get('undecided', 0))}"
            lines.append(f"{asked} Of {int(counts.sum())} comparisons in primary endpoints: {said}.")
    missing = summary.training_state_lines(results, time.time())
    claimed = any(len(section.paired) and section.paired["completed_low"].notna().any() for section in compared)
    if missing or (compared and not claimed):
        lines.append(missing[0] if missing else f"No verdict: fewer than {MIN_SEEDS} seeds, or nothing to compare.")
    return lines or [NOTHING]


def _won(section: Section) -> list[str]:
    if not section.best:
        return [NOTHING]
    return _shortened(section.verdicts.won) or ["No difference is decided."]


def _undecided(section: Section) -> list[str]:
    found = section.verdicts
    lines = _shortened(found.undecided)
    if found.unclaimed:
        lines.append(_unclaimed(found))
    if lines:
        return lines
    return ["Nothing: every comparison is decided." if found.pairs else NOTHING]


def _unclaimed(found: Verdicts) -> str:
    """E.g. "No claim, as 5 seeds are needed and there is 1: scale and crossattn, ppo and crossattn."."""
    counts = [seeds for _, seeds in found.unclaimed]
    low, high = min(counts), max(counts)
    there = f"there {'is' if high == 1 else 'are'} {low if low == high else f'{low} to {high}'}"
    every = len(found.unclaimed) == found.pairs > 1
    pairs = [pair for pair, _ in found.unclaimed]
    named = ", ".join(pairs) if len(pairs) <= NAMED_PAIRS else f"{len(pairs)} pairs, each named in its section"
    return f"No claim{' of any pair' if every else ''}, as {MIN_SEEDS} seeds are needed and {there}: {named}."


def _in_short(sections: list[Section]) -> list[str]:
    """A sentence for the scenarios of which the same can be said: who is first, and how much of it is decided."""
    found: dict[str, list[str]] = {}
    for section in sections:
        scenario, mask, decision = section.setting
        pairs, decided = section.verdicts.pairs, len(section.verdicts.won)
        said = f"(mask {mask}, decision {decision}): "
        said += f"{decided} of {pairs} pairs differ in something" if pairs else "nothing to compare"
        said += f"; first on average: {section.leaders}" if section.leaders else ""
        found.setdefault(said, []).append(scenario)
    return [f"{', '.join(scenarios)} {said}." for said, scenarios in found.items()]


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - NAMED_VERDICTS
    return list(lines) if more <= 0 else [*lines[:NAMED_VERDICTS], f"{more} more: see its comparisons in words."]
