"""The view of one replayed episode: its schedule, and each of its decisions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ..figures import replicas
from ..labels import label
from ..load import Results
from ..rows import INVALID, variants
from ..tables import render
from . import charts, episodes
from .controls import one, selected_rows, show_figure, show_table
from .selection import Filters

ON_REPLICAS = (
    *("response_censored_p99_s", "jct_censored_s", "jct_censored_p99_s", "longest_hold_s"),
    *("ttft_mean_s", "hit_rate", "output_per_gpu_hour"),
)
WINDOW_S = 300
"""Calls of so long a time are drawn."""


def episode(results: Results, filters: Filters) -> None:
    """One evaluation episode: its numbers, its Gantt chart, and one decision with workflow and attention."""
    rows = _playable(selected_rows(results, filters), results)
    if rows.empty:
        return
    row = _chosen_row(rows)
    if pd.notna(row.get("hit_rate")):
        _calls(row, _fleet(tuple(map(str, results.homes)), tuple(row.items())))
        return
    inspected = _inspected(tuple(map(str, results.homes)), tuple(row.items()))
    episode, decisions = inspected.episode, inspected.decisions
    invalid = sum(int(row[name] or 0) for name in INVALID)
    figures = {
        "completed tasks": str(row["completed"]),
        "unfinished tasks": str(row["unfinished"]),
        "response (s)": render.format_value(row["response_mean_s"]),
        "response of all (s)": render.format_value(row["response_censored_s"]),
        "decisions": str(row["decisions"]),
        "of them invalid": str(invalid),
    }
    for column, (title, value) in zip(st.columns(len(figures)), figures.items(), strict=True):
        column.metric(title, value)
    if not len(decisions):
        st.info("This episode has no decisions.")
        return
    name = f"{row['method']}-n{row['test_servers']}-{row['eval_seed']}-{row['episode']}.gif"
    film = partial(_evaluation().film_of, inspected)
    st.download_button("Save as GIF", film, name, "image/gif", key="film", on_click="ignore")
    chosen = _decision_slider(len(decisions), tuple(row.items()))
    schedule = episode.schedule
    shown = episodes.nearest(schedule, float(decisions["clock_s"][chosen]))
    whole = len(shown) == len(schedule)
    span = (0.0, episode.end_s) if whole else (schedule["start_s"][shown[0]], schedule["start_s"][shown[-1]])
    figure = episodes.gantt(episode.chart(), shown, span, decisions[chosen])
    started_by = episodes.started_by(schedule[shown], decisions)
    st.session_state["decisions of bars"] = started_by.tolist()
    show_figure(figure, "gantt", on_select="rerun", selection_mode="points")
    some = "" if whole else f"The {len(shown):,} of {len(schedule):,} tasks that start nearest the decision. "
    st.caption(
        f"{some}One bar a task, in the colour of its workflow, whose number it bears; hatched: not finished at the end."
        " Triangles: arrivals. Click on a bar to choose the decision that started it."
        + " Some were started by no decision, as nothing else would have happened."
        * bool((started_by < 0).any())
    )
    _decision(inspected, chosen)
    _prices(inspected, tuple(map(str, results.homes)), row, float(decisions["clock_s"][chosen]))


def _calls(row: dict[str, Any], calls: pd.DataFrame) -> None:
    """An episode on replicas of a language model: its numbers, and the calls of some minutes."""
    for column, name in zip(st.columns(len(ON_REPLICAS)), ON_REPLICAS, strict=True):
        column.metric(label(name), render.format_value(row[name]))
    last = max(0, int(calls["end_s"].max() - WINDOW_S)) if len(calls) else 0
    begin = st.slider("From (s)", 0, last, 0, step=60, key="from") if last else 0
    st.pyplot(replicas.gantt(calls, begin, begin + WINDOW_S, str(row["method"])))
    st.caption("One bar a completed call, from the moment it is asked; a prefill that computes tokens again is red.")


@st.cache_resource(max_entries=4, show_spinner="Playing the episode again …")
def _fleet(places: tuple[str, ...], row: tuple[tuple[str, Any], ...]) -> pd.DataFrame:
    """The completed calls of an episode on replicas."""
    engine: Any = _evaluation().Replay(*places).episode(dict(row)).engine
    return pd.DataFrame(engine.calls())


def _playable(rows: pd.DataFrame, results: Results) -> pd.DataFrame:
    """The rows that can be replayed, of rules and of policies in this folder; shows a note on the others."""
    here = {training.scheduler for training in results.trainings if training.state == "finished"}
    kept = rows[(rows["kind"] != "learned") | rows["scheduler"].isin(here)]
    missing = rows.loc[~rows.index.isin(kept.index), "scheduler"].nunique()
    if missing:
        st.caption(f"Episodes of {missing} trained policies cannot be played again: policies/ does not hold these.")
    return kept


def _chosen_row(rows: pd.DataFrame) -> dict[str, Any]:
    """The evaluation row that the selectors choose."""
    columns = st.columns(4)
    name = one(columns[0], "Method", variants(rows), "episode method")
    rows = rows[rows["variant"] == name]
    seeds = sorted({int(seed) for seed in rows["train_seed"].dropna()})
    if seeds:
        seed = one(columns[1], "Training seed", seeds, "episode seed")
        rows = rows[rows["train_seed"] == seed]
    scales = sorted({int(n) for n in rows["test_servers"]})
    servers = one(columns[2], "Servers", scales, "episode servers")
    rows = rows[rows["test_servers"] == servers]
    keys = sorted(zip(rows["eval_seed"].astype(int), rows["episode"].astype(int), strict=True))
    several = len({seed for seed, _ in keys}) > 1
    text = "seed {0[0]}, {0[1]}" if several else "{0[1]}"
    key = one(columns[3], "Episode", keys, "episode number", text.format)
    row = rows[(rows["eval_seed"] == key[0]) & (rows["episode"] == key[1])].iloc[0]
    return {name: None if pd.isna(value) else value for name, value in row.items()}


@st.cache_resource(max_entries=4, show_spinner="Playing the episode again …")
def _inspected(places: tuple[str, ...], row: tuple[tuple[str, Any], ...]) -> Any:
    evaluation = _evaluation()
    return evaluation.inspect_episode(evaluation.Replay(*places), dict(row))


@st.cache_data(max_entries=64, show_spinner="Playing to the decision …")
def _explained(
    _inspected: Any, places: tuple[str, ...], row: tuple[Any, ...], clock_s: float
) -> tuple[Any, ...] | None:
    """A `Moment` as a plain tuple, or None for a policy without prices."""
    from rllib_scale.evaluation import explained

    found = explained.explain_played(_inspected.episode, clock_s)
    return None if found is None else (*found, explained.COLUMNS)


def _prices(inspected: Any, places: tuple[str, ...], row: dict[str, Any], clock_s: float) -> None:
    """For a price rule, why each waiting task starts or waits in a decision round; nothing for other policies."""
    found = _explained(inspected, places, tuple(row.items()), clock_s)
    if found is None:
        return
    at, numbers, prices, rows, left, columns = found
    st.markdown(f"Why each task starts or waits at {at:.2f} s")
    classes = ", ".join(f"{price:.3g} at {speed:g} GFLOPS" for speed, price in prices.items())
    st.caption(
        f"Price of a second: {classes}. The server of least cost is chosen: "
        f"weight × (kappa × wait + time) + price × time + penalty, with kappa {numbers['kappa']:.2f}. "  # noqa: RUF001
        "Columns of `its` are of the next best one."
        + f" {left} more tasks wait: no server is open for them."
        * bool(left)
    )
    table = pd.DataFrame(rows).reindex(columns=list(columns.values())).set_axis(list(columns), axis=1)
    show_table(table.astype({"next best": "Int64"}), table.columns, "prices-table")


def _evaluation() -> Any:
    """The package that replays episodes, imported when an episode is opened.

    All other views read tables alone: the dashboard starts without simulator and torch.
    """
    from rllib_scale.evaluation import inspection

    return inspection


def _decision_slider(count: int, episode: tuple[Any, ...]) -> int:
    """The decision that the slider, or a click on the bar of a task, chose; counted from 0."""
    if st.session_state.get("shown episode") != episode:
        st.session_state["shown episode"], st.session_state["decision"] = episode, 1
        st.session_state.pop("gantt", None)
    points = st.session_state.get("gantt", {}).get("selection", {}).get("points", [])
    picked = [point["point_index"] for point in points if point["curve_number"] == 0]  # bars, not arrivals
    if picked and st.session_state.get("picked") != picked:
        started_by = st.session_state["decisions of bars"][picked[0]]
        if started_by >= 0:
            st.session_state["decision"] = started_by + 1
    st.session_state["picked"] = picked
    if count == 1:
        return 0
    return int(st.slider("Decision", 1, count, key="decision")) - 1


def _decision(inspected: Any, chosen: int) -> None:
    """A decision: its workflow, and what the policy observed."""
    now, workload = inspected.decisions[chosen], inspected.workload
    workflow, task, server = int(now["workflow"]), int(now["task"]), int(now["server"])
    st.markdown(
        f"**Decision {chosen + 1}** at {now['clock_s']:.2f} s: task {task} of workflow {workflow} to server {server} — "
        f"{now['outcome']}"
    )
    left, right = st.columns([2, 3])
    first, last = workload.task_offsets[workflow : workflow + 2]
    edges = workload.edges[workload.edge_offsets[workflow] : workload.edge_offsets[workflow + 1]]
    demands = zip(*(getattr(workload, n)[first:last] for n in ("compute_gflop", "memory_gb", "output_gb")), strict=True)
    texts = [f"task {k}: {c:.1f} GFLOP, {m:.1f} GB, {d:.2f} GB of output" for k, (c, m, d) in enumerate(demands)]
    states = episodes.task_states(inspected.episode.schedule, inspected.decisions, chosen, len(texts), edges)
    with left:
        st.markdown(f"Workflow {workflow}")
        st.graphviz_chart(episodes.dag(edges, states, texts), alt=f"The tasks of workflow {workflow}")
        st.caption("Grey: waiting. Yellow: ready. Red: decided on now. Blue: running. Green: completed.")
    with right:
        servers = inspected.servers(chosen)
        if servers is None:
            dispatched = "A dispatcher decides on all ready tasks at once: no decision can be shown alone."
            large = "This episode has too many decisions and servers: the observations of its decisions were not kept."
            st.info(dispatched if inspected.is_dispatched else large)
            return
        view = _evaluation().look(inspected, chosen)
        st.markdown("Servers: probability and state" if view else "Servers: a rule has no probabilities")
        values = view.probabilities if view else None
        show_figure(charts.plot(episodes.probabilities(values, servers, server)), "probabilities")
        if view is not None and view.attention is not None:
            st.markdown("Attention weights over the servers")
            show_figure(charts.plot(episodes.attention(view.attention)), "attention")
        elif view is not None:
            st.caption("This network has no attention over the servers.")
