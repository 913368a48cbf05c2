"""The report in one minute: what comes first of all on the page, in report.md and on a terminal."""

from __future__ import annotations

import time

from ..load import Results
from ..stats.resampling import MIN_SEEDS
from . import summary
from .sections import Section
from .verdicts import Verdicts

NAMED_VERDICTS, NAMED_PAIRS = 12, 8
"""More verdicts, or pairs without a claim, are counted, not named."""
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


def _won(section: Section) -> list[str]:
    if not section.best:
        return [NOTHING]
    return [*(_shortened(section.verdicts.won) or ["No difference is decided."]), *section.best]


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
