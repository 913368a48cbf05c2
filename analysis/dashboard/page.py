"""The page. Thin: it asks, shows what the other modules return, and turns their errors into notes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from analysis import comparisons, render
from analysis.dashboard import charts, episodes, selection
from analysis.dashboard.rows import KEY
from analysis.dashboard.selection import Filters, Options
from analysis.dashboard.store import Snapshot, Store, store_of
from analysis.load import variants
from analysis.stats import LOWER_IS_BETTER
from analysis.tables import OUTCOMES
from rllib_scale.errors import UserError

REFRESH_S = 3.0
"""How often the folder is looked at while a page is open."""
VIEWS = ("Results", "Training", "Compare", "Episode", "Trainings")
SHOWN = ("completed", "response_mean_s", "response_censored_s", "above_bound_percent", "unfinished")
COMPARED = {
    "completed": "completed tasks",
    "response_mean_s": "response (s)",
    "response_censored_s": "censored response (s)",
}
BY_METHOD = "method"
MOST_NOTES = 5
MOST_POINTS = 3000
TABLE_CSS = """
.rllib-table { overflow: auto; max-height: 32rem; border: 1px solid rgb(128 128 128 / 30%); border-radius: 8px; }
.rllib-table table { border-collapse: collapse; width: 100%; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
.rllib-table th, .rllib-table td {
  padding: 0.35rem 0.6rem; text-align: right; vertical-align: top; border: 0; white-space: nowrap;
  border-bottom: 1px solid rgb(128 128 128 / 20%);
}
.rllib-table thead th {
  position: sticky; top: 0; vertical-align: bottom; white-space: normal; font-weight: 600; backdrop-filter: blur(12px);
}
.rllib-table .text { text-align: left; }
.rllib-table td small { display: block; opacity: 0.7; }
"""
STATES = {
    "finished": "finished",
    "running": "running",
    "stopped": "stopped: no sign of life",
    "failed": "failed",
    "waiting": "not begun",
}
PLOT = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}


def main(folder: Path) -> None:
    """Draw the page of a results folder."""
    st.set_page_config(page_title=f"{folder.name} · rllib-scale", layout="wide")
    store = store_of(folder.absolute())
    snapshot = store.snapshot()
    options = selection.options(snapshot.units, snapshot.curves)
    with st.sidebar:
        filters = _header_and_filters(snapshot, options)
    _notes(snapshot.notes)
    dark = st.context.theme.type == "dark"
    views = {"Results": _results, "Training": _training, "Compare": _compare, "Episode": _episode}
    for name, tab in zip(VIEWS, st.tabs(VIEWS, key="view", on_change="rerun"), strict=True):
        if tab.open:
            with tab:
                try:
                    views.get(name, _trainings)(snapshot, filters, dark)
                except UserError as error:
                    st.warning(_escaped(str(error)))
    st.session_state["just_drawn"] = True
    _watch(store, snapshot.stamp)


@st.fragment(run_every=REFRESH_S)
def _watch(store: Store, shown: int) -> None:
    """Draws the page anew when the folder has changed."""
    if not st.session_state.pop("just_drawn", False) and store.stamp() != shown:
        st.rerun()


def _notes(notes: Iterable[str]) -> None:
    notes = list(notes)
    for note in notes[:MOST_NOTES]:
        st.info(_escaped(note))
    if len(notes) > MOST_NOTES:
        st.info(f"and {len(notes) - MOST_NOTES} more notes like these")


def _escaped(text: str) -> str:
    """Text for Streamlit's Markdown that is shown as it is."""
    for sign in "\\`*_[]$:~<>#":
        text = text.replace(sign, f"\\{sign}")
    return text


# ---------------------------------------------------------------------- sidebar


def _header_and_filters(snapshot: Snapshot, options: Options) -> Filters:
    st.title(_escaped(snapshot.sweep), anchor=False)
    states = ", ".join(f"{count} {STATES[state].partition(':')[0]}" for state, count in snapshot.states.items())
    st.caption(f"{snapshot.rows:,} evaluation rows" + (f" · trainings: {states}" if states else ""))
    st.caption(_escaped(str(snapshot.folder)))
    st.subheader("Setting", anchor=False, help="Rows that differ here answer different questions and never mix.")
    scenario = _one(st, "Scenario", [setting[0] for setting in options.settings], "Scenario")
    mask = _one(st, "Mask", [setting[1] for setting in options.settings if setting[0] == scenario], "Mask")
    both = (scenario, mask)
    decision = _one(st, "Decision", [setting[2] for setting in options.settings if setting[:2] == both], "Decision")
    st.subheader("Filters", anchor=False, help="Nothing chosen: all. Heuristics have neither seeds nor lambdas.")
    return Filters(
        setting=(scenario or "", mask or "", decision or ""),
        methods=_several("Methods", options.methods),
        seeds=_several("Training seeds", options.seeds),
        lambdas=_several("Lambdas", options.lambdas, "λ₁ = {0[0]:g}, λ₂ = {0[1]:g}"),
        scales=_several("Servers N", options.scales),
    )


def _one(place: Any, label: str, values: Iterable[Any], key: str, text: Callable[[Any], str] = str) -> Any:
    """One of the values, None where there are none; the choice stays while others arrive, as long as it is one."""
    choices = list(dict.fromkeys(values))
    if not choices:
        return None
    if st.session_state.get(key) not in choices:
        st.session_state[key] = choices[0]
    return place.selectbox(label, choices, key=key, format_func=text)


def _several(label: str, values: tuple[Any, ...], text: str = "{0}") -> tuple[Any, ...]:
    """Some of the values, or none; the choice stays while others arrive."""
    st.session_state[label] = [value for value in st.session_state.get(label, []) if value in values]
    return tuple(st.multiselect(label, values, key=label, placeholder="all", format_func=text.format))


# ---------------------------------------------------------------------- results


def _results(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
    units = _selected(snapshot, filters)
    if units.empty:
        return
    table = selection.table(units, SHOWN)
    by = _one(st.columns(3)[0], "Order at each N", [BY_METHOD, *SHOWN], "order", _heading)
    _table(_ranked(table, by), ("test_servers", "variant", "seeds", *SHOWN, "episodes"), "results-table")
    st.caption(
        "mean over training seeds ± standard deviation over the episodes of a seed; [low, high]: 95 % BCa bootstrap "
        "interval of the mean over seeds, from 5 seeds on. Read a response with the completed tasks beside it."
    )
    st.plotly_chart(charts.against_servers(table, units, dark), config=PLOT, key="against N")
    st.caption(charts.AGAINST_N_CAPTION)
    st.plotly_chart(charts.throughput_against_response(units, dark), config=PLOT, key="throughput")
    st.caption(charts.SCATTER_CAPTION)


def _heading(metric: str) -> str:
    return render.HEADINGS.get(metric, metric)


def _selected(snapshot: Snapshot, filters: Filters) -> pd.DataFrame:
    """The units that the filters leave, without those of which no mean can be told; says where there are none."""
    if snapshot.units.empty:
        st.info("No evaluation rows yet: they appear here as they are written.")
        return snapshot.units
    units = selection.apply(snapshot.units, filters)
    ambiguous = selection.repeated_seeds(units)
    if ambiguous:
        st.info(f"Left out, as several cells hold the same training seed: {', '.join(ambiguous)}.")
        units = units[~units["variant"].isin(ambiguous)]
    if units.empty:
        st.info("No row passes these filters.")
    return units


def _ranked(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """The table with the best of that metric first at each N; by method as it is."""
    if by == BY_METHOD:
        return table
    return table.sort_values(["test_servers", by], ascending=[True, by in LOWER_IS_BETTER], kind="stable")


def _table(table: pd.DataFrame, columns: Iterable[str], key: str) -> None:
    """The cells that the report prints, those of some columns; a long table scrolls in a frame of its own."""
    beside = [f"{column}{suffix}" for column in columns for suffix in ("", *render.SUFFIXES)]
    cells = render.to_html(table[[column for column in beside if column in table]])
    st.html(f'<style>{TABLE_CSS}</style><div class="rllib-table" id="{key}">{cells}</div>')


# ---------------------------------------------------------------------- training


def _training(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
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


# ---------------------------------------------------------------------- two variants, paired


def _compare(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
    units = _selected(snapshot, filters)
    names = variants(units) if len(units) else []
    if len(names) < 2:
        if names:
            st.info("Two methods are needed for a comparison.")
        return
    left, right, third = st.columns(3)
    first = _one(left, "First", names, "first")
    second = _one(right, "Second", [name for name in names if name != first], "second")
    metric = _one(third, "Episode by episode", COMPARED, "metric", COMPARED.__getitem__)
    key = (snapshot.stamp, filters, first, second)
    rows = _rows(units[units["variant"].isin([first, second])], key)
    paired = _paired(rows, first, second, key)
    st.caption(
        f"{_escaped(first)} minus {_escaped(second)} on identical episodes, averaged within a training seed, then over "
        "seeds. [low, high]: 95 % interval of a hierarchical bootstrap over seeds and episodes, claimed from 5 seeds "
        "on; p: Holm's over the verdicts shown; P: probability that the first does better in the same episode."
    )
    if paired.empty:
        st.info("The two were evaluated at no common number of servers.")
        return
    _table(paired, ("test_servers", "seeds", *OUTCOMES, "episodes"), "paired-table")
    st.plotly_chart(charts.differences(paired, COMPARED, dark), config=PLOT, key="differences")
    pairs = _episode_means(rows, first, second, metric)
    shown = pairs.sample(MOST_POINTS, random_state=0) if len(pairs) > MOST_POINTS else pairs
    figure = charts.episode_pairs(shown, (first, second), COMPARED[metric], dark)
    st.plotly_chart(figure, config=PLOT, key="episode pairs")
    some = f"{len(shown):,} of {len(pairs):,}, drawn at random" if len(shown) < len(pairs) else f"{len(pairs):,}"
    st.caption(f"Each point is an episode, a mean over training seeds; {some} episodes.")


@st.cache_data(max_entries=8, show_spinner="Reading rows …")
def _rows(_units: pd.DataFrame, key: tuple[Any, ...]) -> pd.DataFrame:
    return selection.evaluation_rows(_units)


@st.cache_data(max_entries=32, show_spinner="Comparing …")
def _paired(_rows: pd.DataFrame, first: str, second: str, key: tuple[Any, ...]) -> pd.DataFrame:
    return comparisons.paired_table(_rows, [(first, second)], shared_seeds=True)


def _episode_means(rows: pd.DataFrame, first: str, second: str, metric: str) -> pd.DataFrame:
    """Each episode under both, a mean over training seeds: test_servers, eval_seed, episode, first, second."""
    place = ["test_servers", "eval_seed", "episode"]
    means = [rows[rows["variant"] == name].groupby(place)[metric].mean().astype(float) for name in (first, second)]
    return pd.concat(means, axis=1, keys=["first", "second"], join="inner").dropna().reset_index()


# ---------------------------------------------------------------------- one episode


def _episode(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
    units = _selected(snapshot, filters)
    if units.empty:
        return
    row = _chosen_row(units, snapshot)
    inspected = _inspected(snapshot.folder, tuple(row.items()))
    episode, decisions = inspected.episode, inspected.decisions
    invalid = sum(
        int(row[name] or 0) for name in ("invalid_no_fit", "invalid_busy_avoidable", "invalid_busy_unavoidable")
    )
    figures = {
        "completed tasks": str(row["completed"]),
        "unfinished tasks": str(row["unfinished"]),
        "response (s)": render.format_value(row["response_mean_s"]),
        "censored (s)": render.format_value(row["response_censored_s"]),
        "decisions": str(row["decisions"]),
        "of them invalid": str(invalid),
    }
    for column, (label, value) in zip(st.columns(len(figures)), figures.items(), strict=True):
        column.metric(label, value)
    if not len(decisions):
        st.info("No decision was asked for in this episode.")
        return
    chosen = _decision_slider(len(decisions), decisions, tuple(row.items()))
    schedule = episode.schedule
    shown = episodes.nearest(schedule, float(decisions["clock_s"][chosen]))
    whole = len(shown) == len(schedule)
    span = (0.0, episode.end_s) if whole else (schedule["start_s"][shown[0]], schedule["start_s"][shown[-1]])
    tiers = [(tier.name, tier.count) for tier in episode.unit.env.cluster.tiers]
    figure = episodes.gantt(schedule[shown], tiers, span, decisions[chosen], dark)
    st.session_state["bars"] = shown.tolist()
    st.plotly_chart(figure, config=PLOT, key="gantt", on_select="rerun", selection_mode="points")
    some = "" if whole else f"The {len(shown):,} of {len(schedule):,} tasks that start nearest the decision. "
    st.caption(
        f"{some}One bar a task, in the colour of its workflow, whose number it bears; hatched: not finished at the end."
        " Triangles: arrivals. Click on a bar to choose the decision that started it."
    )
    _decision(inspected, chosen, dark)


def _chosen_row(units: pd.DataFrame, snapshot: Snapshot) -> dict[str, Any]:
    """The evaluation row that the selectors name."""
    columns = st.columns(4)
    name = _one(columns[0], "Method", variants(units), "episode method")
    units = units[units["variant"] == name]
    seeds = sorted({int(seed) for seed in units["train_seed"].dropna()})
    if seeds:
        seed = _one(columns[1], "Training seed", seeds, "episode seed")
        units = units[units["train_seed"] == seed]
    scales = sorted({int(n) for n in units["test_servers"]})
    servers = _one(columns[2], "Servers", scales, "episode servers")
    unit = units[units["test_servers"] == servers].iloc[:1]
    rows = _rows(unit, (snapshot.stamp, *unit[list(KEY)].iloc[0]))
    keys = sorted(zip(rows["eval_seed"].astype(int), rows["episode"].astype(int), strict=True))
    several = len({seed for seed, _ in keys}) > 1
    text = "seed {0[0]}, {0[1]}" if several else "{0[1]}"
    key = _one(columns[3], "Episode", keys, "episode number", text.format)
    row = rows[(rows["eval_seed"] == key[0]) & (rows["episode"] == key[1])].iloc[0]
    return {name: None if pd.isna(value) else value for name, value in row.items()}


@st.cache_resource(max_entries=4, show_spinner="Playing the episode again …")
def _inspected(folder: Path, row: tuple[tuple[str, Any], ...]) -> Any:
    from rllib_scale.experiments.replay import Replay
    from rllib_scale.inspect_policy import inspect_episode

    return inspect_episode(Replay(folder), dict(row))


def _decision_slider(count: int, decisions: Any, episode: tuple[Any, ...]) -> int:
    """The decision chosen by the slider, or by a click on the bar of a task; counted from 0."""
    if st.session_state.get("shown episode") != episode:
        st.session_state["shown episode"], st.session_state["decision"] = episode, 1
        st.session_state.pop("gantt", None)
    picked = st.session_state.get("gantt", {}).get("selection", {}).get("point_indices", [])
    if picked and st.session_state.get("picked") != picked:
        started = np.flatnonzero(decisions["outcome"] == "started")
        st.session_state["decision"] = int(started[st.session_state["bars"][picked[0]]]) + 1
    st.session_state["picked"] = picked
    if count == 1:
        return 0
    return int(st.slider("Decision", 1, count, key="decision")) - 1


def _decision(inspected: Any, chosen: int, dark: bool) -> None:
    """A decision: the workflow it is about, and what the policy saw."""
    from rllib_scale.inspect_policy import look

    now, workload = inspected.decisions[chosen], inspected.workload
    workflow, task, server = int(now["workflow"]), int(now["task"]), int(now["server"])
    st.markdown(
        f"**Decision {chosen + 1}** at {now['clock_s']:.2f} s: task {task} of workflow {workflow} to server {server} — "
        f"{now['outcome']}"
    )
    left, right = st.columns([2, 3])
    first, last = workload.task_offsets[workflow : workflow + 2]
    edges = workload.edges[workload.edge_offsets[workflow] : workload.edge_offsets[workflow + 1]]
    texts = [
        f"task {k}: {c:.1f} GFLOP, {m:.1f} GB, {d:.2f} GB of output"
        for k, (c, m, d) in enumerate(
            zip(*(getattr(workload, n)[first:last] for n in ("compute_gflop", "memory_gb", "output_gb")), strict=True)
        )
    ]
    states = episodes.task_states(inspected.episode.schedule, inspected.decisions, chosen, len(texts), edges)
    with left:
        st.markdown(f"Workflow {workflow}")
        st.plotly_chart(episodes.dag(edges, states, texts, dark), config=PLOT, key="dag")
    with right:
        servers = inspected.servers(chosen)
        if servers is None:
            dispatched = "A dispatcher looks at all ready tasks at once: there is no single decision to look into."
            large = "What each decision was taken on is too much to keep for so many decisions over so many servers."
            st.info(dispatched if inspected.is_dispatched else large)
            return
        view = look(inspected, chosen)
        st.markdown("Servers: probability and state" if view else "Servers: a rule has no probabilities")
        values = view.probabilities if view else None
        figure = episodes.probabilities(values, servers, server, dark)
        st.plotly_chart(figure, config=PLOT, key="probabilities")
        if view is not None and view.attention is not None:
            st.markdown("Attention weights over the servers")
            st.plotly_chart(episodes.attention(view.attention, dark), config=PLOT, key="attention")
        elif view is not None:
            st.caption("This network has no attention over the servers.")


# ---------------------------------------------------------------------- trainings


def _trainings(snapshot: Snapshot, filters: Filters, dark: bool) -> None:
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
        st.error(f"{_escaped(name)}: {_escaped(error)}")
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
