"""Sentences about the results, made from the numbers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from rllib_scale.results.tables import OBSERVABILITY

from ..labels import NOUNS
from ..load import Results
from ..paper import PAPER_EPOCHS
from ..rows import observability_note, variants
from ..stats.intervals import MIN_SEEDS
from ..tables.render import format_value

MOST_NAMES = 9
"""Names in one sentence."""
MOST_FAILURES = 20
"""Failed trainings that are listed one by one."""


def training_lines(results: Results) -> list[str]:
    """Epochs and seeds of each learned method, beside the paper's 1000 epochs."""
    learned = results.episodes[results.episodes["kind"] == "learned"]
    trials = learned.drop_duplicates("trial_id")
    of_variant = dict(list(trials.groupby("variant")))
    trained: dict[str, list[str]] = {}
    for name in variants(trials):
        own = of_variant[name]
        seeds = own["train_seed"].nunique()
        how = f"{_range(own['epochs'])} epochs ({_range(own['env_steps'])} env steps), {_count(seeds, 'seed')}"
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


def best_lines(table: pd.DataFrame, servers: int) -> list[str]:
    """The best methods on average at one scale, and the best learned ones if rules are in the table.

    If the methods do not all observe the same, a line says so and each name is followed by what it observes.

    Args:
        table: of `tables.table3`.
        servers: its scale N.
    """
    lines = [_best(table, f"On average at N = {servers}"), observability_note(table)]
    learned = table[table["seeds"] > 0]
    if 0 < len(learned) < len(table):
        lines.append(_best(learned, f"Of the learned methods at N = {servers}"))
    return [line for line in lines if line is not None]


def _best(table: pd.DataFrame, where: str) -> str | None:
    said: dict[str, list[str]] = {}
    for metric, best in _firsts(table):
        row = best.iloc[0]
        others = f" (and {_count(len(best) - 1, 'other')})" if len(best) > 1 else ""
        name = f"{_named(row, table)}{others}"
        value = format_value(float(row[metric]))
        if metric == "completed":
            part = f"the most completed tasks ({value})"
        else:
            beside = "" if name in said else f", with {format_value(float(row['completed']))} completed"
            part = f"the lowest {NOUNS[metric]} ({value} s{beside})"
        said.setdefault(name, []).append(part)
    if not said:
        return None
    return f"{where}: {'; '.join(f'{name} has {listed(parts)}' for name, parts in said.items())}."


def _named(row: pd.Series, table: pd.DataFrame) -> str:
    """A variant, with what it observes if others of the table observe something else."""
    return f"{row['variant']} ({row[OBSERVABILITY]})" if table[OBSERVABILITY].nunique() > 1 else str(row["variant"])


def _firsts(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each outcome with a value, and the best rows in it."""
    for metric, largest in (("completed", True), ("response_censored_s", False), ("response_mean_s", False)):
        values = table[metric].dropna()
        is_same = len(values) > 1 and values.min() == values.max()
        if len(values) and not is_same and not (metric == "response_mean_s" and _all_complete(table)):
            yield metric, table[table[metric] == (values.max() if largest else values.min())]


def _all_complete(table: pd.DataFrame) -> bool:
    """Whether every arrived task completed, so that the censored response says the same as the response."""
    return bool((table["unfinished"] == 0).all())


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
    evaluated = set(results.episodes["trial_id"])  # a published folder may hold nothing else of a training
    absent = [one for one in found if one.identity["trial_id"] not in evaluated]
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _range(values: pd.Series) -> str:
    present = values.dropna()
    if present.empty:
        return "unknown"
    low, high = int(present.min()), int(present.max())
    return f"{low}" if low == high else f"{low} to {high}"
