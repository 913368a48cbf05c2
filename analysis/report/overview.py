"""The first lines of the page and of the terminal, counted from the tables."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..labels import LOWER_IS_BETTER
from ..load import Results
from ..stats.intervals import MIN_SEEDS
from ..tables.relative import BASE, PREFIX
from ..tables.render import format_value
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
    lines = [line for section in compared[:1] for line in _verdict(section)]
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
    seeds = max((int(section.table4["seeds"].max()) for section in compared), default=0)
    if 0 < seeds < MIN_SEEDS:
        lines.append(f"Too few seeds ({seeds} of {MIN_SEEDS}) to name a winner among trained methods.")
    return lines or ["There is nothing to compare yet."]


def _verdict(section: Section) -> list[str]:
    """The best method beside the base rule where the endpoint is a time, else beside the best trained one; details."""
    best = f"{section.title}. {' '.join(section.best[:: len(section.best) - 1 or 1])}"
    if section.endpoint == "completed":
        return [*_most_completed(section), best]
    metric = f"{PREFIX}{section.endpoint}"
    rows = section.at_first_scale(section.base)
    if metric not in rows or rows[metric].isna().all():
        return [best]
    row = rows.iloc[int(rows[metric].astype(float).fillna(np.inf).argmin())]
    mean, low, high = (float(row[f"{metric}{end}"]) for end in ("", "_low", "_high"))
    where = f"on the same {row['episodes']} episodes with {row['test_servers']} servers"
    sign = -1 if mean < 0 else 1
    ends = [format_value(end, 1) for end in sorted((sign * low, sign * high))]
    interval = f" (95 % interval: {' to '.join(ends)} %)" if low == low else ""
    said = f"its mean response is {abs(mean):.1f} % {'shorter' if mean < 0 else 'longer'}{interval} {where}"
    if high < 0:
        return [f"{row['variant']} is better than {BASE}: {said}.", best]
    return [f"Nothing here is shown to be better than {BASE}. The nearest is {row['variant']}: {said}.", best]


def _most_completed(section: Section) -> list[str]:
    rows = section.at_first_scale(section.table4).dropna(subset=["completed"])
    rows = rows.sort_values("completed", ascending=False, kind="stable")
    if len(rows) < 2:
        return []
    first, servers = rows.iloc[0], section.scales[0]
    said = f"On {servers} servers {first['variant']} completes the most tasks: {first['completed']:.2f} an episode"
    learned = rows[rows["seeds"] > 0]
    if first["seeds"] == 0 and len(learned):
        best = learned.iloc[0]
        said += f", and {best['variant']}, the best trained method, {best['completed']:.2f}"
    return [f"{said}."]


def next_steps(results: Results, content: list[Section]) -> list[tuple[str, str]]:
    """What a reader may do after the report: words, and a command."""
    steps = [("Explore these results in a browser", f"rllib-scale dashboard {results.folder}")]
    compared = [section for section in content if any(section.setting) and len(section.table4)]
    if not compared:
        return steps
    first = compared[0]
    rules = first.at_first_scale(first.table4)
    rules = rules[rules["seeds"] == 0].sort_values(
        first.endpoint, ascending=first.endpoint in LOWER_IS_BETTER, kind="stable"
    )
    names = " ".join(str(name) for name in rules["variant"][:3] if " " not in str(name))
    if names:
        steps.append(("Compare schedulers on your own workload", f"rllib-scale evaluate {names} --workload FILE.json"))
    if 0 < int(first.table4["seeds"].max()) < MIN_SEEDS:
        seeds = ",".join(str(seed) for seed in range(1, MIN_SEEDS + 1))
        steps.append(
            (f"Train {MIN_SEEDS} seeds, to name a winner", f"rllib-scale sweep SWEEP.yaml --set seeds=[{seeds}]")
        )
    return steps


def missing(results: Results) -> list[str]:
    """One sentence for everything that failed, is unfinished or could not be read."""
    return [*summary.training_state_lines(results), *results.notes]
