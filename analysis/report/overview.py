"""The first lines of the page and of the terminal, counted from the tables."""

from __future__ import annotations

import pandas as pd

from ..labels import LOWER_IS_BETTER
from ..load import Results
from ..stats.intervals import MIN_SEEDS
from . import summary
from .sections import Section

ANSWERS = {
    "SRR": ("Does SRR help?", ("better with it", "worse")),
    "rule": ("Does learning beat the rule?", ("the learned method is better", "the rule")),
    "learned": ("Which learned method is better?", ("the first of the pair is better", "the second")),
}


def five_lines(content: list[Section]) -> list[str]:
    """The report in at most five lines: the best method, and an answer to each question."""
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
    claimed = any(len(section.paired) and section.paired["completed_low"].notna().any() for section in compared)
    if compared and not claimed:
        lines.append(f"No verdict: fewer than {MIN_SEEDS} seeds, or nothing to compare.")
    return lines or ["There is nothing to compare yet."]


def missing(results: Results) -> list[str]:
    """One sentence for everything that failed, is unfinished or could not be read."""
    return [*summary.training_state_lines(results), *results.notes]
