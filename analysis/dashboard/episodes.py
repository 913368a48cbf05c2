"""Figures of one replayed episode: its schedule, a workflow, and what a policy observed at a decision.

Schedules have dtype `rllib_scale.simulator.record.SCHEDULE`, decisions `rllib_scale.evaluation.inspection.DECISION`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from ..figures.chart import Chart, Grid, Marks, Panel
from ..figures.style import Look
from .charts import LAYOUT

if TYPE_CHECKING:
    from rllib_scale.envs import gantt as schedules

WHITE_ON = {"#0072B2": "#FFFFFF", "#D55E00": "#FFFFFF"}
"""Dark colours of bars, which numbers in black could not be read on."""
WAITING, READY, DECIDED, RUNNING, DONE = "waiting", "ready", "decided on now", "running", "completed"
STATE_COLOURS = {WAITING: "#BBBBBB", READY: "#F0E442", DECIDED: "#D55E00", RUNNING: "#56B4E9", DONE: "#009E73"}
SERVER_COLOURS = {"idle and fits": "#009E73", "busy": "#E69F00", "too small": "#999999", "empty row": "#CCCCCC"}
LANE_PX, THINNEST_LANE_PX, TALLEST_PX = 24, 4, 1000
LABEL_PX, MOST_NUMBERED = 14, 25
"""Height of a server's number; with thinner lanes only so many are numbered."""
ARRIVALS = -1.2
"""Where the arrivals stand on the axis of servers: above the first."""
CHOSEN = "#D55E00"
INK = "#555555"
MOST_BARS = 2000
"""A browser takes about a second for this many."""


def nearest(schedule: NDArray[Any], clock_s: float) -> NDArray[np.int64]:
    """The rows of a schedule that are drawn: those that start nearest to a time, at most MOST_BARS."""
    return np.sort(np.argsort(np.abs(schedule["start_s"] - clock_s), kind="stable")[:MOST_BARS])


def gantt(
    chart: schedules.Chart,
    rows: NDArray[np.int64],
    span_s: tuple[float, float],
    decision: Any = None,
) -> go.Figure:
    """A Gantt chart: one lane a place of a server, one bar a started task, in the order of the schedule.

    Args:
        chart: of the whole episode.
        rows: of its schedule, those that are drawn.
        span_s: ends of the time axis [s].
        decision: a DECISION row to be marked.
    """
    bar_lanes, lanes = chart.lanes[rows], chart.cluster.num_places
    chart = replace(chart, schedule=chart.schedule[rows])
    schedule = chart.schedule
    hatches = np.where(chart.finished, "", "/").tolist()
    bars = go.Bar(
        base=schedule["start_s"],
        x=chart.stop_s - schedule["start_s"],
        y=bar_lanes,
        orientation="h",
        width=0.82,
        marker={
            "color": chart.colours,
            "line": {"color": INK, "width": _outlines(schedule, decision)},
            "pattern": {"shape": hatches, "fillmode": "overlay", "fgcolor": "white", "size": 6},
        },
        text=[str(w) for w in schedule["workflow"].tolist()] if lanes <= 64 else None,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": [WHITE_ON.get(colour, "#000000") for colour in chart.colours]},
        customdata=np.column_stack(
            [*(schedule[name] for name in ("workflow", "task", "server", "ready_s")), chart.stop_s]
        ),
        hovertemplate="workflow %{customdata[0]}, task %{customdata[1]} on server %{customdata[2]}<br>"
        "ready %{customdata[3]:.2f} s, runs %{base:.2f} to %{customdata[4]:.2f} s<extra></extra>",
        showlegend=False,
    )
    workflow, arrival_s = chart.arrivals
    colour_of = dict(zip(schedule["workflow"].tolist(), chart.colours, strict=True))
    arrivals = go.Scatter(
        x=arrival_s,
        y=np.full(len(workflow), ARRIVALS),
        mode="markers",
        marker={"symbol": "triangle-down", "size": 9, "color": [colour_of[w] for w in workflow.tolist()]},
        customdata=workflow,
        hovertemplate="workflow %{customdata} arrives at %{x:.2f} s<extra></extra>",
        showlegend=False,
    )
    figure = go.Figure([bars, arrivals], layout=LAYOUT)
    lane = min(LANE_PX, max(THINNEST_LANE_PX, 640 // lanes))
    figure.update_layout(
        height=min(TALLEST_PX, 110 + lane * (lanes + 2)),
        margin={"t": 20, "b": 50, "l": 60, "r": 110},
        uniformtext={"mode": "hide", "minsize": 8},
        bargap=0,
    )
    figure.update_xaxes(title_text="time (s)", range=list(span_s) if span_s[1] > span_s[0] else None)
    numbered = chart.numbered(1 if lane >= LABEL_PX else math.ceil(lanes / MOST_NUMBERED))
    ticks = {"tickvals": list(numbered.values()), "ticktext": [str(server) for server in numbered]}
    figure.update_yaxes(title_text="server", range=[lanes - 0.4, ARRIVALS - 0.8], zeroline=False, **ticks)
    for label, first, end in chart.tiers:
        middle = {"x": 1.005, "xref": "paper", "xanchor": "left", "y": (first + end - 1) / 2, "showarrow": False}
        figure.add_annotation(text=label, **middle)
        if end < lanes:
            figure.add_hline(y=end - 0.5, line={"color": INK, "width": 1, "dash": "dot"})
    if decision is not None:
        figure.add_vline(x=float(decision["clock_s"]), line={"color": CHOSEN, "width": 2})
    return figure


def _outlines(schedule: NDArray[Any], decision: Any) -> list[float]:
    """Widths of the outlines: the task of the decision has one."""
    if decision is None:
        return [0.0] * len(schedule)
    same = (schedule["workflow"] == decision["workflow"]) & (schedule["task"] == decision["task"])
    return np.where(same, 3.0, 0.0).tolist()


def started_by(schedule: NDArray[Any], decisions: NDArray[Any]) -> NDArray[np.int64]:
    """(S,) the decision that started each attempt of a schedule, counted from 0.

    -1: none. The simulator starts a task itself if nothing else would ever happen.
    """
    names = ("workflow", "task", "server")
    begins = np.flatnonzero(decisions["outcome"] == "started")
    chosen = decisions[begins]
    keys = zip(*(chosen[name].tolist() for name in (*names, "clock_s")), strict=True)
    decision = dict(zip(keys, begins.tolist(), strict=True))
    attempts = zip(*(schedule[name].tolist() for name in (*names, "start_s")), strict=True)
    return np.array([decision.get(attempt, -1) for attempt in attempts], dtype=np.int64)


def task_states(
    schedule: NDArray[Any], decisions: NDArray[Any], chosen: int, num_tasks: int, edges: NDArray[np.int64]
) -> list[str]:
    """The state of each task of a decision's workflow, at the time of the decision.

    Args:
        schedule: SCHEDULE rows of the whole episode.
        decisions: DECISION rows.
        chosen: which of them.
        num_tasks: T of the workflow.
        edges: (E, 2) its edges.
    """
    now = decisions[chosen]
    own = schedule[schedule["workflow"] == now["workflow"]]
    decided = started_by(own, decisions)
    # A task that no decision started began after the decisions at that time.
    begun = (own["start_s"] < now["clock_s"]) | ((decided >= 0) & (decided < chosen))
    ended = own["finish_s"] <= now["clock_s"]
    done = set(own["task"][ended & (own["outcome"] == "finished")].tolist())
    running = set(own["task"][begun & ~ended].tolist())
    states = []
    for task in range(num_tasks):
        predecessors = edges[edges[:, 1] == task, 0].tolist()
        if task in done:
            states.append(DONE)
        elif task in running:
            states.append(RUNNING)
        elif task == now["task"]:
            states.append(DECIDED)
        else:
            states.append(READY if done.issuperset(predecessors) else WAITING)
    return states


def dag(edges: NDArray[np.int64], states: list[str], texts: list[str]) -> str:
    """A workflow in the DOT language: tasks in the colours of their states, from left to right, and their edges.

    Args:
        edges: (E, 2) predecessor and successor.
        states: of each of the T tasks, keys of STATE_COLOURS.
        texts: shown under the pointer.
    """
    common = [
        "rankdir=LR; bgcolor=transparent",
        f'node [shape=circle, style=filled, fixedsize=true, width=0.4, color="{INK}", fontname="sans-serif"]',
        f'edge [color="{INK}"]',
    ]
    tasks = [
        f'{task} [fillcolor="{STATE_COLOURS[state]}", penwidth={3 if state == DECIDED else 1}, tooltip="{text}"]'
        for task, (state, text) in enumerate(zip(states, texts, strict=True))
    ]
    arrows = [f"{a} -> {b}" for a, b in edges.tolist()]
    return f"digraph {{ {'; '.join([*common, *tasks, *arrows])} }}"


def probabilities(values: NDArray[np.float64] | None, states: NDArray[np.str_], chosen: int) -> Chart:
    """The probability of each server in the colour of its state, the chosen one circled; for a rule the states alone.

    Args:
        values: (N,); None for a rule.
        states: (N,) keys of SERVER_COLOURS.
        chosen: the server of the decision.
    """
    heights = np.zeros(len(states)) if values is None else values
    hover = np.array([f"server {k}" + ("" if values is None else f": {p:.3f}") for k, p in enumerate(heights)])
    marks = []
    for state, colour in SERVER_COLOURS.items():
        servers = np.flatnonzero(states == state)
        look = Look(colour, "o", "")
        marks.append(Marks(servers, heights[servers], look, state, hover=hover[servers].tolist()))
    circle = Look(CHOSEN, "o", "", hollow=True)
    marks.append(Marks([chosen], [heights[chosen]], circle, "chosen", size=2.0, hover=[str(hover[chosen])]))
    if values is None:
        return Chart([Panel(marks, x_label="server", rows=("",))], columns=1)
    top = float(values.max()) * 1.2 or 1.0
    return Chart([Panel(marks, x_label="server", y_label="probability", y_range=(-0.05 * top, top))], columns=1)


def attention(weights: NDArray[np.float64]) -> Chart:
    """Attention weights (L, H, N) over the servers: one row per head, the blocks from top to bottom."""
    blocks, heads, servers = weights.shape
    labels = [f"block {b + 1}, head {h + 1}" for b in range(blocks) for h in range(heads)]
    values = pd.DataFrame(weights.reshape(-1, servers), index=labels)
    return Chart([Panel(x_label="server", grid=Grid(values, values.map(lambda _: "")))], columns=1)
