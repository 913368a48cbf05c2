"""From rows to what is compared: the variants of methods, and the worlds that they played."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from rllib_scale.config.pinned import DIGEST_SEPARATOR

from .rows import INVALID, of_families

DERIVED_COLUMNS: dict[str, tuple[str, str]] = {
    "variant": (
        "string",
        "readable name of what is compared: the method, and the settings that differ among its trials",
    ),
    "invalid_share": ("float64", "invalid decisions over decisions; NaN without decisions (episodes only)"),
    "above_bound_percent": (
        "float64",
        "mean response of all tasks above the lower bound bound_capacity_s [%]; NaN without a bound (episodes only)",
    ),
}
_TRIAL_COLUMNS = ("method", "kind", "lambda_decorrelation", "lambda_kl", "overrides", "train_servers")
_WORDS = ("overrides", "changes", "problem", "protocol", "asked")
"""Columns in which a missing value is an empty text."""
Frames = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def labelled(episodes: pd.DataFrame, training: pd.DataFrame, features: pd.DataFrame, notes: list[str]) -> Frames:
    """The frames with DERIVED_COLUMNS, each variant in its newest format and each setting with one world at a scale.

    Left out, with a note: variants with several trials of one training seed, and features without episodes.

    Args:
        episodes: rows of evaluation episodes.
        training: rows of training epochs.
        features: rows of features.
        notes: receives a sentence for each thing that was left out or joined.
    """
    episodes, training, features = (_filled(frame) for frame in (episodes, training, features))
    labels = variant_labels(_trials(episodes, training))
    training = training.assign(variant=training["trial_id"].map(labels).astype("string"))
    episodes = _newest_format(_derived(episodes, labels), notes)
    episodes, features = _by_world(episodes), _by_world(features)
    place = ["variant", "train_seed", "problem", "protocol", "mask", "decision", "eval_seed", "episode"]
    trials = episodes[["trial_id", "variant", "train_seed"]].drop_duplicates()
    of_one_seed = trials[trials.duplicated(["variant", "train_seed"], keep=False)]
    rows = episodes[episodes["trial_id"].isin(of_one_seed["trial_id"])]
    if mixed := sorted(rows.loc[rows.duplicated(place), "variant"].unique()):
        notes.append(f"Left out, as several trials of it hold the same training seed: {', '.join(mixed)}.")
        episodes = episodes[~episodes["variant"].isin(mixed)].reset_index(drop=True)
    _note_seeds(episodes, notes)
    names = episodes.drop_duplicates("trial_id").set_index("trial_id")["variant"]
    variant = features["trial_id"].map(names).astype("string")
    if variant.isna().any():
        without = sorted(features.loc[variant.isna(), "trial_id"].unique())
        notes.append(f"Features left out, as they have no evaluation episodes: {', '.join(without)}.")
    return episodes, training, features.assign(variant=variant)[variant.notna()].reset_index(drop=True)


def variant_labels(trials: pd.DataFrame) -> dict[str, str]:
    """Name each trial after its method and, if the method has several, after the settings that differ among them.

    Args:
        trials: one row per trial, with the columns trial_id, method, kind, lambda_decorrelation, lambda_kl, overrides,
            train_servers, epochs. The trials of one name differ in their seeds.

    Returns:
        Trial -> name, e.g. "scale" or "scale (λ1=0.01, λ2=0.001)".
    """
    labels: dict[str, str] = {}
    for method, group in trials.groupby("method"):
        ids = group["trial_id"].astype(str)
        parts = pd.DataFrame(
            {
                "λ1": "λ1=" + group["lambda_decorrelation"].map("{:g}".format),
                "λ2": "λ2=" + group["lambda_kl"].map("{:g}".format),
                "overrides": group["overrides"].astype(str),
                "servers": group["train_servers"].map("trained at N={}".format),
                "epochs": group["epochs"].map("{} epochs".format).where(group["epochs"].notna()),
                "content": ids.str.partition(DIGEST_SEPARATOR)[2].where(group["kind"] == "heuristic", ""),
            },
            index=group.index,
        )
        telling = [name for name in ("λ1", "λ2", "overrides") if parts[name].nunique() > 1]
        for name in ("servers", "epochs", "content"):  # unless the others tell them apart
            told = parts.groupby(telling)[name].nunique().max() if telling else parts[name].nunique()
            telling += [name] * bool(told > 1)
        for trial_id, values in zip(ids, parts[telling].itertuples(index=False), strict=True):
            described = ", ".join(str(value) for value in values if pd.notna(value) and value != "")
            labels[trial_id] = f"{method} ({described})" if described else str(method)
    return labels


def _filled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**{name: frame[name].fillna("") for name in _WORDS if name in frame})


def _trials(episodes: pd.DataFrame, training: pd.DataFrame) -> pd.DataFrame:
    """One row for each trial, from its episodes or else from its curve."""
    trained = training[["trial_id", *(name for name in _TRIAL_COLUMNS if name != "kind")]].drop_duplicates("trial_id")
    trained = trained.assign(kind="learned", epochs=pd.array([pd.NA] * len(trained), dtype="Int64"))
    evaluated = episodes[["trial_id", *_TRIAL_COLUMNS, "epochs"]].drop_duplicates("trial_id")
    return pd.concat([evaluated, trained]).drop_duplicates("trial_id")


def _derived(episodes: pd.DataFrame, labels: dict[str, str]) -> pd.DataFrame:
    """The rows with DERIVED_COLUMNS; a rule that was asked in several ways is a variant for each."""
    invalid = episodes[list(INVALID)].sum(axis=1, min_count=len(INVALID)).astype("float64")
    decisions, bound = (episodes[name].astype("float64") for name in ("decisions", "bound_capacity_s"))
    variant = episodes["trial_id"].astype("category").map(labels).astype("string")
    by = [variant, *(episodes[name] for name in ("problem", "mask"))]
    ways = episodes["asked"].groupby(by).nunique().groupby(level=0).max()
    several = variant.map(ways > 1).fillna(False).astype(bool) & (episodes["asked"] != "")
    return episodes.assign(
        variant=variant.where(~several, variant + " (" + episodes["asked"] + ")"),
        invalid_share=(invalid / decisions.where(decisions > 0)).astype("float64"),
        above_bound_percent=100 * (episodes["response_censored_s"] / bound.where(bound > 0) - 1),
    )


def _newest_format(episodes: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The rows of each variant that have its newest format."""
    found = episodes["format"].fillna(0)
    older = found < found.groupby(episodes["variant"]).transform("max")
    if names := sorted(episodes.loc[older, "variant"].unique()):
        notes.append(f"Rows of an earlier format are left out where there are newer ones: {', '.join(names)}.")
        return episodes[~older].reset_index(drop=True)
    return episodes


def _by_world(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows, with the digest of the world in words where one scenario was several at one scale."""
    place = ["scenario", "changes", "mask", "test_servers"]
    worlds = frame.groupby(place)["problem"].transform("nunique")
    several = (worlds > 1) & ~of_families(frame)
    if not several.any():
        return frame
    joined = (
        frame["changes"] + frame["changes"].map(lambda words: "; " if words else "") + "problem=" + frame["problem"]
    )
    return frame.assign(changes=frame["changes"].where(~several, joined))


def _note_seeds(episodes: pd.DataFrame, notes: list[str]) -> None:
    """Say which evaluation seeds are pooled."""
    seeds = episodes[~of_families(episodes)].groupby("scenario")["eval_seed"].unique()
    for scenario, found in seeds.items():
        if len(found) > 1:
            notes.append(f"{scenario}: episodes of the evaluation seeds {_listed(found)} are pooled.")


def _listed(values: Iterable[object]) -> str:
    *most, last = map(str, sorted(values, key=str))
    return f"{', '.join(most)} and {last}"
