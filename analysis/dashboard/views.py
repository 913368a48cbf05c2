"""The views of the page over many rows: results, training curves, two variants paired, and the trainings' states."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from ..load import information_note, variants
from ..stats.summaries import LOWER_IS_BETTER
from ..tables import comparisons, render
from ..tables.methods import OUTCOMES
from . import charts, selection
from .controls import PLOT, cached_rows, escaped, heading, one, selected_units, show_table
from .selection import Filters
from .store import Snapshot

SHOWN = ("completed", "response_mean_s", "response_censored_s", "above_bound_percent", "unfinished")
COMPARED = {
    "completed": "completed tasks",
    "response_mean_s": "response (s)",
    "response_censored_s": "censored response (s)",
}
BY_METHOD = "method"
MOST_POINTS = 3000
STATES = {
    "finished": "finished",
    "running": "running",
    "stopped": "stopped: no sign of life",
    "failed": "failed",
    "waiting": "not begun",
}


def results(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
    """Every method at every scale: the table, the figures against N, completed tasks against response."""
    units = selected_units(snapshot, filters)
    if units.empty:
        return
    table = selection.table(units, SHOWN)
    by = one(st.columns(3)[0], "Order at each N", [BY_METHOD, *SHOWN], "order", heading)
    show_table(
        _ranked(table, by), ("test_servers", "variant", "information", "seeds", *SHOWN, "episodes"), "results-table"
    )
    if note := information_note(table):
        st.caption(escaped(note))
    st.caption(
        "mean over training seeds ± standard deviation over the episodes of a seed; [low, high]: 95 % BCa bootstrap "
        "interval of the mean over seeds, from 5 seeds on. Read a response with the completed tasks beside it."
    )
    if table[list(SHOWN)].isna().all(axis=None):
        st.info("None of these rows has a value: there is nothing to draw.")
        return
    st.plotly_chart(charts.against_servers(table, units, dark), config=PLOT, key="against N")
    counts = charts.counts(table)
    st.caption(f"{counts} {charts.AGAINST_N_CAPTION}")
    st.plotly_chart(charts.throughput_against_response(units, dark), config=PLOT, key="throughput")
    more = units["test_servers"].nunique() > charts.MOST_PANELS
    st.caption(
        f"{counts} {charts.SCATTER_CAPTION}"
        + (f" The {charts.MOST_PANELS} smallest N; a filter shows others." if more else "")
    )


def _ranked(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """The table with the best of that metric first at each N; by method as it is."""
    if by == BY_METHOD:
        return table
    return table.sort_values(["test_servers", by], ascending=[True, by in LOWER_IS_BETTER], kind="stable")


def training(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
    """Training curves, of running trainings too."""
    curves = selection.apply_to_trainings(snapshot.curves, filters)
    shown = [name for name in charts.CURVES if curves[name].notna().any()]
    if not shown:
        st.info("No training epochs yet." if snapshot.curves.empty else "No training passes these filters.")
        return
    metrics = st.multiselect(
        "Curves", shown, shown[:4], key="curves", format_func=lambda name: charts.CURVES[name], width=700
    )
    if metrics:
        figure, caption = charts.training_curves(curves, metrics, dark)
        st.plotly_chart(figure, config=PLOT, key="training curves")
        st.caption(caption)


def compare(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
    """Two variants on identical episodes: the paired table, the differences against N, and episode by episode."""
    units = selected_units(snapshot, filters)
    names = variants(units) if len(units) else []
    if len(names) < 2:
        if names:
            st.info("Two methods are needed for a comparison.")
        return
    left, right, third = st.columns(3)
    first = one(left, "First", names, "first")
    second = one(right, "Second", [name for name in names if name != first], "second")
    metric = one(third, "Episode by episode", COMPARED, "metric", COMPARED.__getitem__)
    key = (snapshot.stamp, filters, first, second)
    rows = cached_rows(units[units["variant"].isin([first, second])], key)
    paired = _paired(rows, first, second, key)
    st.caption(
        f"{escaped(first)} minus {escaped(second)} on identical episodes, averaged within a training seed, then over "
        "seeds. [low, high]: 95 % interval of a hierarchical bootstrap over seeds and episodes, claimed from 5 seeds "
        "on; p: Holm's over the verdicts shown; P: probability that the first does better in the same episode."
    )
    if paired.empty:
        st.info("The two were evaluated at no common number of servers.")
        return
    show_table(paired, ("test_servers", "seeds", *OUTCOMES, "episodes"), "paired-table")
    st.plotly_chart(charts.differences(paired, COMPARED, dark), config=PLOT, key="differences")
    st.caption(f"{charts.counts(paired)} {charts.DIFFERENCES_CAPTION}")
    pairs = _episode_means(rows, first, second, metric)
    shown = pairs.sample(MOST_POINTS, random_state=0) if len(pairs) > MOST_POINTS else pairs
    figure = charts.episode_pairs(shown, (first, second), COMPARED[metric], dark)
    st.plotly_chart(figure, config=PLOT, key="episode pairs")
    some = f"{len(shown):,} of {len(pairs):,}, drawn at random" if len(shown) < len(pairs) else f"{len(pairs):,}"
    st.caption(f"Each point is an episode, a mean over training seeds; {some} episodes.")


@st.cache_data(max_entries=32, show_spinner="Comparing …")
def _paired(_rows: pd.DataFrame, first: str, second: str, key: tuple[Any, ...]) -> pd.DataFrame:
    return comparisons.paired_table(_rows, [(first, second)], shared_seeds=True)


def _episode_means(rows: pd.DataFrame, first: str, second: str, metric: str) -> pd.DataFrame:
    """Each episode under both, a mean over training seeds: test_servers, eval_seed, episode, first, second."""
    place = ["test_servers", "eval_seed", "episode"]
    means = [rows[rows["variant"] == name].groupby(place)[metric].mean().astype(float) for name in (first, second)]
    return pd.concat(means, axis=1, keys=["first", "second"], join="inner").dropna().reset_index()


def trainings(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
    """What has become of each training, and the errors of those that failed."""
    now = time.time()
    records = [
        {
            "training": training.name,
            "method": str(training.identity["method"]),
            "train_seed": training.identity["train_seed"],
            "lambda_decorrelation": training.identity.get("lambda_decorrelation", np.nan),
            "lambda_kl": training.identity.get("lambda_kl", np.nan),
            "settings": training.identity.get("overrides", ""),
            "state": STATES[training.state],
            "epoch": f"{snapshot.epochs[training.name] or render.MISSING} of {training.epochs or render.MISSING}",
            "changed": "" if training.updated_s is None else _ago(now - training.updated_s),
            "error": training.error or "",
        }
        for training in snapshot.trainings
    ]
    if not records:
        st.info("No training is known: there is neither a manifest with a sweep nor a folder in policies/ or trials/.")
        return
    kept = selection.apply_to_trainings(pd.DataFrame(records), filters)
    for column, (state, count) in zip(st.columns(len(STATES)), _counted(kept).items(), strict=True):
        column.metric(state, count)
    columns = {"train_seed": "seed", "lambda_decorrelation": "λ₁", "lambda_kl": "λ₂"}
    st.dataframe(kept.rename(columns=columns), hide_index=True, key="trainings table")
    for name, error in kept.loc[kept["error"] != "", ["training", "error"]].itertuples(index=False):
        st.error(f"{escaped(name)}: {escaped(error)}")
    st.caption(
        "Ray Tune's files of a running training reach the folder with its checkpoints and every five minutes. Stopped: "
        "nothing has changed for a quarter of an hour. Failed trainings leave error.txt in trials/."
    )


def _counted(records: pd.DataFrame) -> dict[str, int]:
    return {text.partition(":")[0]: int((records["state"] == text).sum()) for text in STATES.values()}


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
