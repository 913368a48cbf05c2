"""What the numbers say, in words that are made from the numbers alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from analysis.load import Results, variants
from analysis.paper import PAPER_EPOCHS
from analysis.render import MISSING, format_p, format_value
from analysis.resampling import MIN_SEEDS
from analysis.stats import no_interval
from rllib_scale.errors import UserError
from rllib_scale.experiments import status

NOUNS = {
    "completed": "completed tasks",
    "response_mean_s": "response time",
    "response_censored_s": "censored response time",
}
BETTER = {
    "completed": "completes more tasks than",
    "response_mean_s": "has a lower response time than",
    "response_censored_s": "has a lower censored response than",
}
"""What is said of the better one of a pair."""


@dataclass(frozen=True)
class Verdicts:
    """What a paired table decides, in sentences.

    Attributes:
        won: who is better than whom, where, and by how much.
        undecided: pairs and quantities without a difference beyond chance.
        unclaimed: pairs with too few seeds for any claim.
    """

    won: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    unclaimed: list[str] = field(default_factory=list)


def training_lines(results: Results) -> list[str]:
    """How long and with how many seeds each learned method was trained, against the paper's 1000 epochs."""
    learned = results.episodes[results.episodes["kind"] == "learned"]
    trained: dict[str, list[str]] = {}
    for name in variants(learned):
        cells = learned[learned["variant"] == name].drop_duplicates("cell")
        seeds = cells["train_seed"].nunique()
        how = f"{_range(cells['epochs'])} epochs ({_range(cells['env_steps'])} env steps), {_count(seeds, 'seed')}"
        trained.setdefault(how, []).append(name)
    lines = [f"Trained for {how}: {', '.join(names)}." for how, names in trained.items()]
    if trained:
        lines.append(f"The paper trains {PAPER_EPOCHS} epochs with one seed.")
    if (learned["epochs"] < PAPER_EPOCHS).any():
        lines.append(
            f"Fewer epochs than the paper's {PAPER_EPOCHS}: the figures show what the shorter training reaches, "
            "they are not a reproduction of the paper's."
        )
    seeds_of = learned.groupby("variant")["train_seed"].nunique()
    if len(seeds_of) and int(seeds_of.min()) < MIN_SEEDS:
        lines.append(f"Where a method has fewer than {MIN_SEEDS} seeds, no interval and no win or loss is claimed.")
    if results.episodes.empty:
        lines.append("No evaluation episode has been written yet.")
    return lines


def best_lines(table: pd.DataFrame) -> list[str]:
    """Who stands first at the training scale, and at what price."""
    lines = []
    for metric, largest in (("completed", True), ("response_mean_s", False), ("response_censored_s", False)):
        values = table[metric].dropna()
        if values.empty:
            continue
        row = table[table[metric] == (values.max() if largest else values.min())].iloc[0]
        beside = f" (with {format_value(row['completed'])} completed and {format_value(row['unfinished'])} unfinished)"
        lines.append(
            f"{'Most' if largest else 'Lowest'} {NOUNS[metric]} on average: {row['variant']}, "
            f"{format_value(row[metric])}{'' if largest else ' s' + beside}."
        )
    return lines


def verdict_lines(paired: pd.DataFrame) -> list[str]:
    """What is decided and what is not, one line for each pair of variants, with the numbers of its smallest scale.

    E.g. "scale - crossattn at N = 16: response time -0.40 s [-0.61, -0.20], lower (Holm-adjusted p = 0.012)".
    """
    lines = []
    for (first, second), rows in paired.groupby(["first", "second"], sort=False):
        smallest, others = rows.iloc[0], rows.iloc[1:]
        if (rows["seeds"] < MIN_SEEDS).all():
            lines.append(f"{first} - {second}: nothing is decided, {no_interval(int(rows['seeds'].max()))}.")
            continue
        parts = [f"{NOUNS[metric]} {_with_numbers(smallest, metric)}" for metric in NOUNS]
        line = f"{first} - {second} at N = {smallest['test_servers']}: {'; '.join(parts)}."
        if len(others):
            line += f" Further: {'; '.join(_verdicts(others, metric) for metric in NOUNS)}."
        bought = (rows["response_mean_s_verdict"] == "lower") & (rows["completed_verdict"] == "lower")
        if bought.any():
            line += f" Where N is {_scales(rows[bought])}, the lower response comes with fewer completed tasks."
        lines.append(line)
    return lines


def verdicts(paired: pd.DataFrame) -> Verdicts:
    """Sort the verdicts of a paired table, as of `comparisons.paired_table`, into sentences.

    E.g. "fastest-idle completes more tasks than scale: by 4.90 at N = 16, 14.73 at N = 32". Where a lower response
    comes with fewer completed tasks, the sentence says so.
    """
    found = Verdicts()
    for (first, second), rows in paired.groupby(["first", "second"], sort=False):
        if (rows["seeds"] < MIN_SEEDS).all():
            found.unclaimed.append(f"{first} and {second} ({_count(int(rows['seeds'].max()), 'seed')})")
            continue
        open_at = []
        for metric in NOUNS:
            better = "higher" if metric == "completed" else "lower"
            for winner, loser, verdict in (
                (first, second, better),
                (second, first, "lower" if better == "higher" else "higher"),
            ):
                won = rows[rows[f"{metric}_verdict"] == verdict]
                if len(won):
                    found.won.append(_won(str(winner), str(loser), metric, won, fewer_of_first=winner == first))
            undecided = rows[rows[f"{metric}_verdict"] == "undecided"]
            if len(undecided):
                open_at.append(f"{NOUNS[metric]} at N = {_scales(undecided)}")
        if open_at:
            found.undecided.append(f"{first} and {second}: {'; '.join(open_at)}")
    return found


def _won(winner: str, loser: str, metric: str, rows: pd.DataFrame, fewer_of_first: bool) -> str:
    unit = " s" if metric.endswith("_s") else ""
    sizes = [
        f"{format_value(abs(float(row[metric])))}{unit} at N = {row['test_servers']}" for _, row in rows.iterrows()
    ]
    fewer = rows["completed_verdict"] == ("lower" if fewer_of_first else "higher")
    where = "" if fewer.all() else f" at N = {_scales(rows[fewer])}"
    bought = f", while completing fewer tasks{where}" if metric == "response_mean_s" and fewer.any() else ""
    return f"{winner} {BETTER[metric]} {loser}: by {', '.join(sizes)}{bought}"


def _with_numbers(row: pd.Series, metric: str) -> str:
    """E.g. "-0.40 s [-0.61, -0.20], lower (Holm-adjusted p = 0.012)"."""
    value, low, high = (format_value(row[f"{metric}{suffix}"]) for suffix in ("", "_low", "_high"))
    unit = " s" if metric.endswith("_s") else ""
    verdict, p = row[f"{metric}_verdict"], row[f"{metric}_p_adjusted"]
    if low == MISSING:
        return f"{value}{unit}, {verdict}"
    return f"{value}{unit} [{low}, {high}], {verdict} (Holm-adjusted p = {format_p(p)})"


def _verdicts(rows: pd.DataFrame, metric: str) -> str:
    """E.g. "response time lower at N = 16, 32 and undecided at N = 48"."""
    groups = rows.groupby(f"{metric}_verdict", sort=False)
    said = [f"{verdict} at N = {_scales(group)}" for verdict, group in groups]
    return f"{NOUNS[metric]} {' and '.join(said)}"


def _scales(rows: pd.DataFrame) -> str:
    return ", ".join(str(servers) for servers in rows["test_servers"])


def manifest_lines(results: Results) -> list[str]:
    """What made the numbers: sweep, config hash, dates, host, versions."""
    manifest = results.manifest
    host, versions = manifest.get("host", {}), manifest.get("versions", {})
    return [
        f"sweep: {manifest.get('sweep', 'unknown')}",
        f"config hash: {manifest.get('config_hash', 'unknown')}",
        f"created {manifest.get('created', 'unknown')}, updated {manifest.get('updated', 'unknown')}",
        "host: " + ", ".join(f"{key} {value}" for key, value in host.items()),
        "versions: " + ", ".join(f"{key} {value}" for key, value in versions.items()),
        f"rows: {len(results.episodes)} evaluation episodes, {len(results.training)} training epochs",
    ]


def training_state_lines(folder: Path, now_s: float) -> list[str]:
    """What failed, and what is not finished, among the trainings of a results folder. `now_s`: Unix time."""
    found: list[status.Training] = []
    for home in status.homes(folder):
        try:
            found += status.trainings(home, now_s)
        except UserError:
            found += status.found_trainings(home, now_s)
    lines = [f"Training failed: {one.name}: {one.error}" for one in found if one.state == "failed"]
    for state, said in (("running", "still running"), ("stopped", "stopped before its end"), ("waiting", "not begun")):
        names = [one.name for one in found if one.state == state]
        if names:
            lines.append(f"Not in these numbers, as {said}: {', '.join(names)}.")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _range(values: pd.Series) -> str:
    present = values.dropna()
    if present.empty:
        return "unknown"
    low, high = int(present.min()), int(present.max())
    return f"{low}" if low == high else f"{low} to {high}"
