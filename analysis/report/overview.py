"""The first lines of the page and of the terminal, counted from the tables."""

from __future__ import annotations

import shlex

import pandas as pd

from rllib_scale.config import SCENARIOS

from ..labels import LOWER_IS_BETTER
from ..load import Results
from ..stats.families import QUESTIONS
from ..stats.intervals import MIN_SEEDS
from . import summary
from .sections import Section

SIDES = {
    "SRR": ("better with it", "worse"),
    "rule": ("the learned method is better", "the rule"),
    "learned": ("the first of the pair is better", "the second"),
}
"""How a line of the summary names the two sides of QUESTIONS."""


def five_lines(content: list[Section]) -> list[str]:
    """The report in at most five lines: the best method, and an answer to each question."""
    compared = [section for section in content if any(section.setting)]
    lines = [line for section in (compared or content)[:1] for line in section.best[:1]]
    for question, sides in SIDES.items():
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
            lines.append(f"{QUESTIONS[question]} Of {int(counts.sum())} comparisons in primary endpoints: {said}.")
    seeds = max((int(section.table4["seeds"].max()) for section in compared), default=0)
    if 0 < seeds < MIN_SEEDS:
        lines.append(f"Too few seeds ({seeds} of {MIN_SEEDS}) to name a winner among trained methods.")
    return lines or ["There is nothing to compare yet."]


def next_steps(results: Results, content: list[Section]) -> list[tuple[str, str]]:
    """Next steps after the report: a text and a command each."""
    steps = [("Explore these results in a browser", f"rllib-scale dashboard {shlex.join(map(str, results.homes))}")]
    compared = [section for section in content if any(section.setting) and len(section.table4)]
    if not compared:
        return steps
    first = compared[0]
    rules = first.at_first_scale(first.table4).query("seeds == 0")
    rules = rules.sort_values(first.endpoint, ascending=first.endpoint in LOWER_IS_BETTER, kind="stable")
    names = " ".join(str(name) for name in rules["variant"][:3] if " " not in str(name))
    if names:
        scenario = f"--scenario {first.setting.scenario} " if first.setting.scenario in SCENARIOS else ""
        command = f"rllib-scale evaluate {names} {scenario}--scales {first.scales[0]} --workload FILE.json"
        steps.append(("Compare schedulers on your own workload", command))
    own = results.manifest.get("config", {}).get("seeds")
    home, *others = results.homes
    if own and not others and home.local is not None and 0 < int(first.table4["seeds"].max()) < MIN_SEEDS:
        seeds = [*own, *(seed for seed in range(1, 2 * MIN_SEEDS) if seed not in own)][:MIN_SEEDS]
        again = f"rllib-scale sweep {home}/manifest.json --results {home}"
        command = f"{again} --set seeds=[{','.join(map(str, seeds))}]"
        steps.append((f"Train {MIN_SEEDS} seeds with these settings, to name a winner", command))
    return steps


def remarks(results: Results) -> dict[str, list[str]]:
    """Heading -> lines: trainings that failed or are unfinished, and what else a reader should know of the rows."""
    found = {"Failed or unfinished": summary.training_state_lines(results), "Notes on the rows": [*results.notes]}
    return {heading: lines for heading, lines in found.items() if lines}
