"""`python -m benchmarks.real_page FOLDER`: a whole run of `real_fleet` becomes the study's data and its page's tables.

It copies the frozen predictions, the runs and the requests of the first engine to the study, and writes the two tables
of its page and the page of receipts, which has figures of these runs. The text is written by hand.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pandas as pd

from benchmarks.real_compared import CELL, SHOWN
from benchmarks.receipts.book import receipts
from benchmarks.receipts.page import PAGE
from benchmarks.receipts.page import page as of_receipts
from rllib_scale.files import write_atomic

STUDY = Path(__file__).parents[1] / "analysis" / "studies" / "real-engines"
FILES = {"frozen.json": "frozen.json", "runs.csv": "runs.csv", "engine-0.csv": "requests.csv"}
"""Files of a run's folder, and their names in the study."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(folder: Path) -> None:
    """Copy the run in FOLDER to the study, and write the tables of its page."""
    for name in FILES:
        if not (folder / name).exists():
            raise click.UsageError(f"{folder}: {name} is missing; valid: the folder of a whole run of real_fleet")
    for name, copied in FILES.items():
        shutil.copy(folder / name, STUDY / copied)
    page = STUDY / "README.md"
    pages = {page: with_tables(page.read_text(encoding="utf-8"), pd.read_csv(STUDY / "runs.csv"))}
    pages |= {PAGE: of_receipts(receipts())}
    for place, text in pages.items():
        write_atomic(place, lambda path, text=text: path.write_text(text, encoding="utf-8"))


def with_tables(text: str, runs: pd.DataFrame) -> str:
    """A page whose tables of runs and of errors by load are those of the runs."""
    lines = text.splitlines()
    for table in (list(_of_runs(runs)), list(_of_errors(runs))):
        first = lines.index(table[0])
        after = next((at for at in range(first, len(lines)) if not lines[at].startswith("|")), len(lines))
        lines[first:after] = table
    return "\n".join([*lines, ""])


def _of_runs(runs: pd.DataFrame) -> Iterator[str]:
    yield "| load | seed | policy | mean call, s | p99, s | first token, s | output, tokens/s | hit rate |"
    yield "|---" * 8 + "|"
    for (load, policy, seed), row in runs.groupby(CELL).mean(numeric_only=True).sort_index(level=[0, 2, 1]).iterrows():
        figures = [f"{_number(row[name])} / {_number(row[f'{name}_model'])}" for name in (*SHOWN, "hit")]
        yield f"| {load:g} | {seed} | `{policy}` | " + " | ".join(figures) + " |"


def _of_errors(runs: pd.DataFrame) -> Iterator[str]:
    names = [*SHOWN]
    yield "| load | " + " | ".join(what.partition(",")[0] for what in SHOWN.values()) + " |"
    yield "|---" * (1 + len(names)) + "|"
    off = pd.DataFrame({name: np.log(runs[name] / runs[f"{name}_model"]).abs() for name in names})
    for load, of in off.groupby(runs["load"]):
        yield f"| {load:g} | " + " | ".join(f"{100 * of[name].mean():.0f} %" for name in names) + " |"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    main()
