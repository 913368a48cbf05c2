"""The views of many rows: results, training curves, two variants compared, and all runs."""

from __future__ import annotations

import time
from typing import Any

import pandas as pd
import streamlit as st

from ..figures import comparison, evaluation
from ..figures import training as training_figures
from ..figures.chart import Chart
from ..figures.style import Look, looks
from ..labels import CURVES, LOWER_IS_BETTER, OUTCOMES, label
from ..load import Results
from ..report import summary
from ..rows import MOST_SHOWN, left_out, variants
from ..stats.families import endpoint
from ..tables import comparisons, methods, relative, render
from . import selection
from .controls import escaped, one, save_csv, selected_rows, several, show_chart, show_table
from .runs import RULE
from .runs import runs as table_of_runs
from .selection import Filters

SHOWN = (*methods.HEADLINE, "completed", "response_mean_s", "above_bound_percent", "unfinished")
BY_METHOD = "method"
SMOOTHING = (1, 5, 10, 20, 50, 100)
STATES = {
    "finished": "finished",
    "running": "running",
    "stopped": "stopped: no sign of life",
    "failed": "failed",
    "waiting": "not begun",
    RULE: "rule: nothing to train",
}
RUN_COLUMNS = {"train_seed": "seed", "lambda_decorrelation": "λ₁", "lambda_kl": "λ₂", "train_servers": "trained at N"}
RUN_COLUMNS |= {"planned": "of epochs", "rows": "evaluated episodes"}


def evaluations(results: Results, filters: Filters) -> None:
    """The best method in one sentence, the weights of an ablation, and every method at every scale."""
    rows = selected_rows(results, filters)
    if rows.empty:
        return
    table = _table4(rows, (results.stamp, filters))
    primary = endpoint(rows)
    hidden, too_many = left_out([(table, primary)])
    of = looks(rows, variants(rows[~rows["variant"].isin(hidden)]))
    for line in _verdict(rows, primary, (results.stamp, filters)):
        st.markdown(f"**{escaped(line)}**")
    weights = evaluation.lambda_map(rows, table[table["test_servers"] == table["test_servers"].min()], primary)
    if weights.panels:
        show_chart(weights, "weights")
    orders = list(dict.fromkeys([primary, BY_METHOD, *SHOWN]))
    by = one(st.columns(3)[0], "Order", orders, "order", label)
    show_chart(_picture(table, of, "" if by == BY_METHOD else by), "against N")
    ranked = _ranked(table, by)
    shown = ("test_servers", "variant", "observability", "seeds", *SHOWN, "episodes")
    show_table(ranked[~ranked["variant"].isin(hidden)], shown, "results-table")
    save_csv(ranked, "results")
    if len(on_replicas := methods.replicas_table(rows)):
        columns = ("test_servers", "variant", *methods.REPLICA_METRICS)
        show_table(on_replicas[~on_replicas["variant"].isin(hidden)], columns, "replicas-table")
        save_csv(on_replicas, "replicas")
    if too_many:
        st.caption(f"{too_many} The CSV file holds all.")
    st.caption(
        "mean over training seeds ± standard deviation over the episodes of a seed; [low, high]: 95 % interval of the "
        "mean over seeds (Student's t), from 5 seeds on. Read a response together with the completed tasks."
    )


def _picture(table: pd.DataFrame, of: dict[str, Look], by: str) -> Chart:
    """Every method against N, the best of a metric first; a row of points for each if there is one N."""
    if table["test_servers"].nunique() > 1:
        return evaluation.against_servers(table, of, by=by)
    return evaluation.methods(table, of, by=by)


@st.cache_data(max_entries=32, show_spinner="Summing up …")
def _verdict(_rows: pd.DataFrame, primary: str, key: tuple[Any, ...]) -> list[str]:
    """The first lines of a report on these rows."""
    servers = (methods.training_scales(_rows) or sorted(_rows["test_servers"].unique()))[0]
    base = relative.against_base(_rows[_rows["test_servers"] == servers])
    return summary.best_lines(methods.table3(_rows, int(servers)), int(servers), primary, base)


@st.cache_data(max_entries=32, show_spinner="Summing up …")
def _table4(_rows: pd.DataFrame, key: tuple[Any, ...]) -> pd.DataFrame:
    return methods.table4(_rows)


def _ranked(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """The table, the best of a metric first at each N; unchanged if ordered by method."""
    if by == BY_METHOD:
        return table
    return table.sort_values(["test_servers", by], ascending=[True, by in LOWER_IS_BETTER], kind="stable")


def training(results: Results, filters: Filters) -> None:
    """Training curves, also of running trainings."""
    curves = selection.apply_to_trainings(results.training, filters)
    shown = [name for name in CURVES if curves[name].notna().any()]
    if not shown:
        st.info("No training epochs yet." if results.training.empty else "No training passes these filters.")
        return
    left, middle, right = st.columns([3, 1, 1])
    with left:
        metrics = several("Curves", tuple(shown), label, tuple(shown[:4]))
    axes = [name for name in training_figures.X if curves[name].notna().any()]
    x = one(middle, "Against", axes, "against", label)
    smoothing = one(right, "Mean over epochs", SMOOTHING, "smoothing")
    if metrics:
        show_chart(training_figures.training_curves(curves, metrics, smoothing, x), "training curves")
        save_csv(curves[["variant", "scheduler", "train_seed", *dict.fromkeys(["epoch", x]), *metrics]], "curves")


def compare(results: Results, filters: Filters) -> None:
    """Two variants on identical episodes: the paired table, and the differences at each N."""
    rows = selected_rows(results, filters)
    if rows.empty:
        return
    names = variants(rows)
    if len(names) < 2:
        st.info("There are no two methods to compare.")
        return
    left, right = st.columns(2)
    first = one(left, "First", names, "first")
    second = one(right, "Second", [name for name in names if name != first], "second")
    # The family of a verdict, and the seeds and episodes in it, are those of the whole setting, whatever is shown.
    whole = Filters(filters.setting)
    paired = _paired(selection.apply(results.episodes, whole), first, second, (results.stamp, whole))
    paired = paired[paired["test_servers"].isin(rows["test_servers"])]
    if paired.empty:
        st.info("These two were not evaluated at the same number of servers.")
        return
    st.caption(
        f"{escaped(first)} minus {escaped(second)} on identical episodes, averaged within a training seed, then over "
        "seeds. [low, high]: Student's 95 % interval over seeds and episodes, claimed from 5 seeds "
        "on; p: Holm's over the question's family in this setting, whatever is shown of it (docs/statistics.md); P: "
        "probability that the first does better in the same episode."
    )
    show_chart(comparison.differences(paired), "differences")
    show_table(paired, ("test_servers", "seeds", *OUTCOMES, "episodes"), "paired-table")
    save_csv(paired, "paired")


@st.cache_data(max_entries=32, show_spinner="Comparing …")
def _paired(_rows: pd.DataFrame, first: str, second: str, key: tuple[Any, ...]) -> pd.DataFrame:
    return comparisons.paired_table(_rows, [(first, second)])


def runs(results: Results, filters: Filters) -> None:
    """Every run: its settings, the state of its training, the number of its evaluations, its error."""
    every = table_of_runs(results)
    kept = selection.apply_to_trainings(every, filters)
    if kept.empty:
        nothing = "No run is known yet: there is none in the manifest, in trainings/, trials/ or episodes/."
        st.info(nothing if every.empty else "No run passes these filters.")
        return
    for column, (state, count) in zip(st.columns(len(STATES)), _counted(kept).items(), strict=True):
        column.metric(state, count)
    now = time.time()
    ago = kept["updated_s"].map(lambda at: _ago(now - at), na_action="ignore")
    table = kept.assign(state=kept["state"].map(STATES), updated_s=ago).drop(columns="kind")
    shown = table.rename(columns={"updated_s": "changed"}).dropna(axis=1, how="all")
    st.dataframe(shown.rename(columns=RUN_COLUMNS), hide_index=True, placeholder=render.MISSING, key="runs table")
    save_csv(shown, "runs")
    failed = kept.loc[kept["error"].notna(), ["run", "error"]]
    for name, error in failed[:MOST_SHOWN].itertuples(index=False):
        st.error(f"{escaped(name)}: {escaped(error)}")
    if len(failed) > MOST_SHOWN:
        st.error(f"and {len(failed) - MOST_SHOWN} more: see the column error")
    st.caption(
        "Finished: trained to its end, here or elsewhere if only its evaluation is here. Rules have no training. "
        "Stopped: nothing has changed for a quarter of an hour. Ray Tune's files of a running training reach "
        "the folder with its checkpoints and every 15 seconds (every five minutes where results lie on another "
        "machine). Failed trainings leave error.txt in trials/."
    )


def _counted(records: pd.DataFrame) -> dict[str, int]:
    return {text.partition(":")[0]: int((records["state"] == state).sum()) for state, text in STATES.items()}


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
