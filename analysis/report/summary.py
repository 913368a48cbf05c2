"""Sentences about the results, made from the numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from rllib_scale.errors import counted

from ..figures.chart import low_to_high
from ..labels import LOWER_IS_BETTER, noun
from ..load import Results
from ..paper import PAPER_EPOCHS
from ..rows import observability_note, variants
from ..stats.intervals import MIN_SEEDS
from ..tables.methods import ranking
from ..tables.relative import BASE, PREFIX
from ..tables.render import cell_lines, format_value

MOST_NAMES = 9
"""Names in one sentence."""
MOST_FAILURES = 20
"""Failed trainings that are listed one by one."""


def training_lines(results: Results) -> list[str]:
    """Epochs and seeds of each learned method, beside the paper's 1000 epochs."""
    learned = results.episodes[results.episodes["kind"] == "learned"]
    trials = learned.drop_duplicates("scheduler")
    of_variant = dict(list(trials.groupby("variant")))
    trained: dict[str, list[str]] = {}
    for name in variants(trials):
        own = of_variant[name]
        seeds = own["train_seed"].nunique()
        how = (
            f"{low_to_high(own['epochs'])} epochs ({low_to_high(own['env_steps'])} env steps), {counted(seeds, 'seed')}"
        )
        trained.setdefault(how, []).append(name)
    lines = [f"Trained for {how}: {listed(names)}." for how, names in trained.items()]
    if trained:
        lines.append(f"The paper trains {PAPER_EPOCHS} epochs with one seed.")
    shorter = variants(trials[(trials["epochs"] < PAPER_EPOCHS).fillna(False)])
    if shorter:
        who = "" if len(shorter) == sum(map(len, trained.values())) else f" ({listed(shorter)})"
        lines.append(
            f"Fewer epochs than the paper's {PAPER_EPOCHS}{who}: the numbers show what the shorter training reaches, "
            "they are no reproduction of the paper's."
        )
    seeds_of = trials.groupby("variant")["train_seed"].nunique()
    if len(seeds_of) and int(seeds_of.min()) < MIN_SEEDS:
        lines.append(f"Where a method has fewer than {MIN_SEEDS} seeds, no interval and no win or loss is claimed.")
    if results.episodes.empty:
        lines.append("No evaluation episode has been written yet.")
    return lines


def best_lines(table: pd.DataFrame, servers: int, metric: str, base: pd.DataFrame) -> list[str]:
    """The best method at one scale, beside the base rule and the best trained one; and who observes something else.

    Args:
        table: of `tables.table3`.
        servers: its scale N.
        metric: the primary endpoint.
        base: of `tables.relative.against_base` at this scale.
    """
    metric = ranking(table, metric)
    rows = table.dropna(subset=[metric]).sort_values(metric, ascending=metric in LOWER_IS_BETTER, kind="stable")
    if len(rows) < 2:
        return []
    unit = "" if metric == "completed" else " s"
    first, learned = rows.iloc[0], rows[rows["seeds"] > 0]
    alike = [str(name) for name in rows["variant"][np.isclose(rows[metric].astype(float), first[metric], rtol=1e-9)]]
    who, verb = (first["variant"], ("completes", "has")) if len(alike) == 1 else (listed(alike), ("complete", "have"))
    has = f"{verb[0]} the most tasks" if metric == "completed" else f"{verb[1]} the lowest {noun(metric)}"
    said = f"On {servers} servers {who} {has}, {format_value(float(first[metric]))}{unit}"
    of_first = base[base["variant"] == first["variant"]]
    if f"{PREFIX}{metric}" in base and len(of_first):
        less, high, low = (-float(of_first[f"{PREFIX}{metric}{end}"].iloc[0]) for end in ("", "_low", "_high"))
        said += (
            f": {less:.1f} % less than {BASE} on the same {' '.join(cell_lines(of_first.iloc[0], 'episodes'))} episodes"
        )
        said += "" if math.isnan(low) else f" (95 % interval: {low:.1f} to {high:.1f} %)"
    if len(alike) == 1 and first["jct_mean_s"] > 0:
        said += f"; its mean JCT is {format_value(float(first['jct_mean_s']))} s"
    if first["seeds"] == 0 and len(learned) and learned.iloc[0]["variant"] not in alike:
        best = learned.iloc[0]
        said += f". The best trained method is {best['variant']}, {format_value(float(best[metric]))}{unit}"
    note = observability_note(table)
    return [f"{said}.", *([note] if note else [])]


def family_lines(table: pd.DataFrame, scenario: str, base: str) -> list[str]:
    """The best method beside the base over the problems of a family; `table` is of `tables.family`."""
    column = f"{PREFIX}response_censored_s"
    if table.empty or table[column].isna().all():
        return []
    best = table.iloc[int(table[column].astype(float).argmin())]
    alike = table["variant"][np.isclose(table[column].astype(float), best[column], rtol=0, atol=1e-9)]
    names = f"{'is' if len(alike) == 1 else 'are'} {listed([str(name) for name in alike])}"
    said = f"Over {counted(best['problems'], 'problem')} of {scenario} the best besides {base} {names}"
    return [f"{said}, whose mean response of all tasks that arrived differs by {' '.join(cell_lines(best, column))} %."]


def manifest_lines(results: Results) -> list[str]:
    """The origin of the numbers: sweep, config hash, dates, host, versions."""
    manifest = results.manifest
    host, versions = manifest.get("host") or {}, manifest.get("versions") or {}
    return [
        f"sweep: {manifest.get('sweep', 'unknown')}",
        f"config hash: {manifest.get('config_hash', 'unknown')}",
        f"created {manifest.get('created', 'unknown')}, updated {manifest.get('updated', 'unknown')}",
        "host: " + ", ".join(f"{key} {value}" for key, value in host.items()),
        "versions: " + ", ".join(f"{key} {value}" for key, value in versions.items()),
        f"rows: {len(results.episodes)} evaluation episodes, {len(results.training)} training epochs",
    ]


def training_state_lines(results: Results) -> list[str]:
    """Failed and unfinished trainings."""
    found = results.trainings
    failed = [f"Training failed: {one.name}: {one.error}" for one in found if one.state == "failed"]
    lines = failed[:MOST_FAILURES]
    if len(failed) > MOST_FAILURES:
        lines.append(f"Training failed: {len(failed) - MOST_FAILURES} more.")
    evaluated = set(results.episodes["scheduler"])  # a published folder may hold nothing else of a training
    absent = [one for one in found if one.scheduler not in evaluated]
    for state, said in (("running", "still running"), ("stopped", "stopped before its end"), ("waiting", "not begun")):
        names = [one.name for one in absent if one.state == state]
        if names:
            lines.append(f"Not in these numbers, as {said}: {listed(names)}.")
    return lines


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Names in a sentence, the first `most` of them.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b", "c"], 1)
    ('a', 'a, b and c', 'a and 2 more')
    """
    names = [*names[:most], f"{len(names) - most} more"] if len(names) > most else names
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
