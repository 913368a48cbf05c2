"""From rows to what is compared: ids in words, the variants of methods, and each episode once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from rllib_scale.errors import UserError

from . import names
from .names import ASKED_COLUMNS, PLAYED_COLUMNS, SCHEDULER_COLUMNS
from .rows import INVALID

METRICS: dict[str, tuple[str, str]] = {
    "invalid_share": ("float64", "invalid decisions over decisions; NaN without decisions"),
    "above_bound_percent": (
        "float64",
        "mean response of all tasks above the lower bound bound_capacity_s [%]; NaN without a bound",
    ),
}
DERIVED_COLUMNS = SCHEDULER_COLUMNS | PLAYED_COLUMNS | ASKED_COLUMNS | METRICS
"""Columns that rows have when they are loaded, beside those of `rllib_scale.results.columns`."""
DIMENSIONS = {"scheduler": "schedulers", "problem": "problems", "protocol": "protocols"}
"""Column of ids -> the table that says what they are."""


def labelled(tables: Mapping[str, pd.DataFrame], notes: list[str]) -> dict[str, pd.DataFrame]:
    """The tables `episodes`, `training` and `features` with DERIVED_COLUMNS, and the words of `schedulers` by id.

    A rule or a policy that was asked in several ways is a variant for each. Ways that differ in the reward or in what a
    rule does not observe play the same episodes, which count once.

    Args:
        tables: these and the DIMENSIONS.
        notes: receives a sentence for each thing that was joined.

    Raises:
        UserError: rows name what no dimension has.
    """
    played = names.problems(tables["problems"])
    words = {
        "scheduler": names.schedulers(tables["schedulers"], played),
        "problem": played.drop(columns="world"),
        "protocol": names.protocols(tables["protocols"]),
    }
    found = {name: _joined(tables[name], words) for name in ("episodes", "training", "features")}
    for name in ("episodes", "features"):
        frame = found[name]
        place = ["scheduler", "problem", "mask", "asked", "decision", "eval_seed", *["episode"] * (name == "episodes")]
        if frame["protocol"].nunique() > len(frame[["mask", "asked"]].drop_duplicates()):
            once = frame.drop_duplicates(place, ignore_index=True)
            if name == "episodes" and len(once) < len(frame):
                notes.append(
                    f"{len(frame) - len(once):,} of {len(frame):,} episodes were played more than once, under "
                    "rewards or in ways of which the scheduler sees nothing; they count once, with the first return."
                )
            frame = once
        if frame["asked"].nunique() > 1:
            ways = frame.groupby(["variant", "problem", "mask", "decision"])["asked"].transform("nunique")
            several = frame["variant"].isin(frame.loc[ways > 1, "variant"])
            frame["variant"] = frame["variant"].mask(several, frame["variant"] + " (" + frame["asked"] + ")")
        found[name] = frame
    found |= {"episodes": _measured(found["episodes"]), "schedulers": words["scheduler"]}
    _note_seeds(found["episodes"], notes)
    return found


def _joined(frame: pd.DataFrame, words: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Rows with the columns that their ids stand for."""
    found: dict[str, Any] = {}
    for key, of_ids in words.items():
        if key not in frame:
            continue
        at = of_ids.index.get_indexer(pd.Index(frame[key]))
        if (at < 0).any():
            unknown = frame[key].to_numpy()[at < 0][0]
            raise UserError(f"{key} {unknown}: rows name it, and {DIMENSIONS[key]} lacks it; the folder is not whole")
        found |= {str(name): column.array.take(at) for name, column in of_ids.items()}
    return frame.assign(**found)


def _measured(episodes: pd.DataFrame) -> pd.DataFrame:
    """The rows with METRICS."""
    invalid = episodes[list(INVALID)].sum(axis=1, min_count=len(INVALID)).astype("float64")
    decisions, bound = (episodes[name].astype("float64") for name in ("decisions", "bound_capacity_s"))
    return episodes.assign(
        invalid_share=(invalid / decisions.where(decisions > 0)).astype("float64"),
        above_bound_percent=100 * (episodes["response_censored_s"] / bound.where(bound > 0) - 1),
    )


def _note_seeds(episodes: pd.DataFrame, notes: list[str]) -> None:
    """Say where evaluation seeds are pooled."""
    seeds = episodes[episodes["family"].isna()].groupby("scenario")["eval_seed"].nunique()
    notes += [f"{name}: episodes of {count} evaluation seeds are pooled." for name, count in seeds.items() if count > 1]
