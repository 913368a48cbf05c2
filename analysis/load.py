"""Reads a results folder into typed frames: the columns of `rllib_scale.results.tables` and DERIVED_COLUMNS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from rllib_scale.errors import UserError
from rllib_scale.results import tables as results

from .methods import METHODS

DERIVED_COLUMNS: dict[str, tuple[str, str]] = {
    "variant": (
        "string",
        "readable name of what is compared: the method, and the settings that differ among its trials",
    ),
    "invalid_share": ("float64", "invalid decisions over decisions; NaN without decisions (episodes only)"),
    "above_bound_percent": (
        "float64",
        "censored response above the lower bound bound_capacity_s [%]; NaN without a bound (episodes only)",
    ),
}
SETTING = ("scenario", "mask", "decision")
"""A table or figure holds rows of one setting: others answer another question."""

PAPER_SETTING = ("paper", "none", "argmax")
TRAINING_KEY = ("trial_id", "epoch")
INVALID = ("invalid_no_fit", "invalid_busy_avoidable", "invalid_busy_unavoidable")
"""Columns with the invalid decisions, by cause."""
_TRIAL_COLUMNS = ("method", "kind", "lambda_decorrelation", "lambda_kl", "overrides", "train_servers")


@dataclass(frozen=True, eq=False)
class Results:
    """The contents of a results folder.

    Attributes:
        folder: the results folder.
        episodes: one row per evaluation episode: EPISODE_COLUMNS, a utilisation_TIER per tier, DERIVED_COLUMNS.
        training: one row per training epoch: TRAINING_COLUMNS and "variant".
        features: one row per (trial, setting, scale): FEATURE_COLUMNS and "variant"; empty if none were computed.
        manifest: sweep, config, config_hash, created, updated, host, versions.
        notes: one sentence for each file, column or row that could not be used.
    """

    folder: Path
    episodes: pd.DataFrame
    training: pd.DataFrame
    features: pd.DataFrame
    manifest: dict[str, Any]
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Shown in a notebook: the episodes of each variant."""
        of_variant = self.episodes.groupby([*SETTING, "variant", "test_servers"], sort=False, observed=True)
        table = of_variant.agg(train_seeds=("train_seed", "nunique"), episodes=("episode", "size"))
        lines = [f"{len(self.episodes)} episodes and {len(self.training)} epochs in {self.folder}", *self.notes]
        return "".join(f"<p>{escape(line)}</p>" for line in lines) + table.reset_index().to_html(index=False)


def load(folder: str | Path) -> Results:
    """Read a results folder.

    A resumed run may have written an episode or an epoch twice: the last row counts. Two things are left out, and notes
    name them: variants with several trials of one training seed, and training curves or features that cannot be read.

    Raises:
        UserError: the folder, its manifest or its evaluation rows are missing or unreadable.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such results folder")
    manifest = results.read_manifest(folder)
    if manifest is None:
        raise UserError(f"{folder}: not a results folder (no manifest.json)")
    notes: list[str] = []
    episodes, told = read_rows(folder / "episodes.parquet", results.EPISODE_COLUMNS, results.EPISODE_KEY)
    notes += told
    training = _optional(folder / "training.parquet", results.TRAINING_COLUMNS, TRAINING_KEY, notes)
    episodes, training = labelled(episodes, training, notes)
    features = results.typed(pd.DataFrame(), results.FEATURE_COLUMNS)
    if (folder / "features.parquet").is_file():
        features = _optional(folder / "features.parquet", results.FEATURE_COLUMNS, results.FEATURE_KEY, notes)
    labels = dict(zip(episodes["trial_id"], episodes["variant"], strict=True))
    variant = features["trial_id"].map(labels).astype("string")
    if variant.isna().any():
        trials = sorted(features.loc[variant.isna(), "trial_id"].unique())
        notes.append(f"features.parquet: left out, as they have no evaluation episodes: {', '.join(trials)}.")
    features = features.assign(overrides=features["overrides"].fillna(""), variant=variant)[variant.notna()]
    return Results(folder, episodes, training, features.reset_index(drop=True), manifest, tuple(notes))


def labelled(episodes: pd.DataFrame, training: pd.DataFrame, notes: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both as by `derive`, without variants with several trials of one training seed; a note names these."""
    episodes, training = derive(episodes, training)
    place = ["variant", "train_seed", *(name for name in results.EPISODE_KEY if name != "trial_id")]
    trials = episodes[["trial_id", "variant", "train_seed"]].drop_duplicates()
    of_one_seed = trials[trials.duplicated(["variant", "train_seed"], keep=False)]
    rows = episodes[episodes["trial_id"].isin(of_one_seed["trial_id"])]
    if mixed := sorted(rows.loc[rows.duplicated(place), "variant"].unique()):
        notes.append(f"Left out, as several trials of it hold the same training seed: {', '.join(mixed)}.")
        episodes = episodes[~episodes["variant"].isin(mixed)].reset_index(drop=True)
    return episodes, training


def _lacking_note(path: Path, columns: Iterable[str]) -> list[str]:
    """A sentence if a readable table lacks some of the columns."""
    present = {results.RENAMED_COLUMNS.get(name, name) for name in pq.read_schema(path).names}
    lacking = [column for column in columns if column not in present]
    if not lacking:
        return []
    return [f"{path.name}: without {', '.join(lacking)}; these are shown as missing."]


def read_rows(path: Path, columns: Mapping[str, tuple[str, str]], key: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a table, each key once, and notes on them, one sentence each.

    Raises:
        UserError: the table is missing or unreadable, or lacks values of its key.
    """
    frame = results.read_table(path, columns)
    for name in (*key, "method", *(("kind",) if "kind" in columns else ())):
        if frame[name].isna().any():
            raise UserError(f"{path}: column {name!r} has missing values; not a table of this program")
    notes = _lacking_note(path, columns)
    kept = frame.drop_duplicates(list(key), keep="last", ignore_index=True)
    if len(kept) < len(frame):
        notes.append(f"{path.name}: {len(frame) - len(kept)} rows stood there twice; the last of each counts.")
    return kept, notes


def _optional(path: Path, columns: Mapping[str, tuple[str, str]], key: Sequence[str], notes: list[str]) -> pd.DataFrame:
    """As `read_rows`, but without rows if the table cannot be read."""
    try:
        rows, told = read_rows(path, columns, key)
        notes += told
        return rows
    except UserError as error:
        notes.append(f"{error}. What it would show is left out.")
        return results.typed(pd.DataFrame(), columns)


def derive(episodes: pd.DataFrame, training: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both frames with DERIVED_COLUMNS, and with "" for missing overrides."""
    episodes = episodes.assign(overrides=episodes["overrides"].fillna(""))
    training = training.assign(overrides=training["overrides"].fillna(""))
    trained = training[["trial_id", *(name for name in _TRIAL_COLUMNS if name != "kind")]].drop_duplicates("trial_id")
    trained = trained.assign(kind="learned", epochs=pd.array([pd.NA] * len(trained), dtype="Int64"))
    evaluated = episodes[["trial_id", *_TRIAL_COLUMNS, "epochs"]].drop_duplicates("trial_id")
    trials = pd.concat([evaluated, trained]).drop_duplicates("trial_id")
    labels = variant_labels(trials)
    invalid = episodes[list(INVALID)].sum(axis=1, min_count=len(INVALID)).astype("float64")
    decisions, bound = (episodes[name].astype("float64") for name in ("decisions", "bound_capacity_s"))
    episodes = episodes.assign(
        variant=episodes["trial_id"].map(labels).astype("string"),
        invalid_share=(invalid / decisions.where(decisions > 0)).astype("float64"),
        above_bound_percent=100 * (episodes["response_censored_s"] / bound.where(bound > 0) - 1),
    )
    return episodes, training.assign(variant=training["trial_id"].map(labels).astype("string"))


def variant_labels(trials: pd.DataFrame) -> dict[str, str]:
    """Name each trial after its method and, if the method has several, after the settings that differ among them.

    Args:
        trials: one row per trial, with the columns trial_id, method, lambda_decorrelation, lambda_kl, overrides,
            train_servers, epochs. The trials of one name differ in their seeds.

    Returns:
        Trial -> name, e.g. "scale" or "scale (λ1=0.01, λ2=0.001)".
    """
    labels: dict[str, str] = {}
    for method, group in trials.groupby("method"):
        parts = pd.DataFrame(
            {
                "λ1": "λ1=" + group["lambda_decorrelation"].map("{:g}".format),
                "λ2": "λ2=" + group["lambda_kl"].map("{:g}".format),
                "overrides": group["overrides"].astype(str),
                "servers": group["train_servers"].map("trained at N={}".format),
                "epochs": group["epochs"].map("{} epochs".format).where(group["epochs"].notna()),
            },
            index=group.index,
        )
        telling = [name for name in parts if parts[name].nunique() > 1]
        for trial_id, values in zip(group["trial_id"], parts[telling].itertuples(index=False), strict=True):
            described = ", ".join(str(value) for value in values if pd.notna(value) and value != "")
            labels[str(trial_id)] = f"{method} ({described})" if described else str(method)
    return labels


def settings(episodes: pd.DataFrame) -> list[tuple[str, str, str]]:
    """The (scenario, mask, decision) combinations of a frame, the paper's first."""
    present = {(str(s), str(m), str(d)) for s, m, d in episodes[list(SETTING)].drop_duplicates().to_numpy()}
    return sorted(present, key=lambda setting: (setting != PAPER_SETTING, setting))


def setting_label(setting: tuple[str, str, str], every: list[tuple[str, str, str]]) -> str:
    """The scenario and what else differs among the settings: "steady-0.7", "paper, mask feasible"."""
    parts = [setting[0]]
    for k in (1, 2):
        if len({other[k] for other in every if other[0] == setting[0]}) > 1:
            parts.append(f"{SETTING[k]} {setting[k]}")
    return ", ".join(parts)


def select(episodes: pd.DataFrame, scenario: str, mask: str, decision: str) -> pd.DataFrame:
    """The rows of one setting."""
    chosen = (episodes["scenario"] == scenario) & (episodes["mask"] == mask) & (episodes["decision"] == decision)
    return episodes[chosen.astype(bool)]


def information_note(table: pd.DataFrame) -> str | None:
    """One line if the variants of a ranking do not observe the same; else None.

    Args:
        table: with the columns variant and information.
    """
    rows = table.drop_duplicates(["variant", results.OBSERVABILITY])
    groups = rows.groupby(results.OBSERVABILITY, sort=True)["variant"]
    if groups.ngroups < 2:
        return None
    most = groups.size().idxmax()
    others = [f"{', '.join(map(str, names))}: {observed}" for observed, names in groups if observed != most]
    return f"The methods do not all observe the same: {'; '.join(others)}; the others: {most}."


def require_one_setting(episodes: pd.DataFrame) -> None:
    """Refuse a frame of several scenarios, masks or decision rules.

    Raises:
        UserError: naming the column and its values.
    """
    for column in SETTING:
        values = sorted(str(value) for value in episodes[column].unique())
        if len(values) > 1:
            raise UserError(
                f"the frame mixes {column}s: {', '.join(values)}; a table or figure takes one, "
                "chosen by analysis.select"
            )


def variants(frame: pd.DataFrame) -> list[str]:
    """The variants of a frame: learned methods before rules, each kind in its fixed order, then by name."""
    order = {name: position for position, name in enumerate(METHODS)}
    rows = frame[["variant", "method"]].drop_duplicates()
    heuristic = set(frame.loc[frame["kind"] == "heuristic", "variant"]) if "kind" in frame else set()
    keyed = [(v in heuristic, order.get(m, len(order)), str(m), str(v)) for v, m in rows.itertuples(index=False)]
    return [variant for *_, variant in sorted(keyed)]
