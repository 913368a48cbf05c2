"""Figures of replicas: model against measurement, and what their calls did over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .chart import Chart, Marks, Panel
from .style import MARKERS, RC, VARIANT_COLOURS, Look

SHADES = {"held": "#DDDDDD", "waiting": "#F2B8A0", "prefill": "#56B4E9", "recompute": "#D55E00", "decode": "#0072B2"}


def fit_chart(rows: pd.DataFrame, errors: Sequence[dict[str, Any]]) -> Chart:
    """Latency of each request, and quantiles of each load.

    Args:
        rows: load, latency_s, latency_model_s.
        errors: of each load: load, fitted, latency_median.
    """
    points, steps = [], []
    for number, row in enumerate(errors):
        of = rows[rows["load"] == row["load"]]
        look = Look(VARIANT_COLOURS[number % len(VARIANT_COLOURS)], MARKERS[number % len(MARKERS)], "")
        name = f"{row['load']}, {'fitted' if row['fitted'] else 'not fitted'}: {row['latency_median']:.1%}"
        points.append(Marks(of["latency_s"], of["latency_model_s"], look, name, size=0.6))
        share = np.linspace(0, 1, 41)
        line = Look(look.colour, "", "-")
        steps.append(Marks(share, np.quantile(of["latency_s"], share), line, thin=True))
        steps.append(Marks(share, np.quantile(of["latency_model_s"], share), line))
    return Chart(
        [
            Panel(points, "Each request", "measured latency (s)", "model (s)"),
            Panel(steps, "Thin: measured, thick: model", "share of requests", "latency (s)", log_y=True),
        ],
        "Median relative error of a request's latency beside each load.",
    )


def gantt(calls: pd.DataFrame, begin_s: float, end_s: float, title: str) -> Figure:
    """Completed calls between two times, by replica: held, waiting, prefill, decode.

    A prefill is a recompute if more than a tenth of what earlier calls had computed was lost, or it was preempted.

    Args:
        calls: fields of RECORD in `rllib_scale.simulator.replicas.state`.
        begin_s: first time shown.
        end_s: last time shown.
        title: of the picture; the times shown are added.
    """
    shown = calls[(calls["end_s"] > begin_s) & (calls["asked_s"] < end_s)].sort_values(["replica", "asked_s"])
    again = (shown["hit"] < 0.9 * shown["reusable"]) | (shown["preemptions"] > 0)
    lanes, free_s, base, replica = list[int](), list[float](), 0, -1
    bases = dict[int, int]()
    for at, asked_s, ended_s in zip(shown["replica"], shown["asked_s"], shown["end_s"], strict=True):
        if at != replica:
            base, free_s, replica = base + len(free_s), [], at
            bases[int(at)] = base
        lane = next((number for number, time in enumerate(free_s) if time <= asked_s), len(free_s))
        free_s[lane : lane + 1] = [ended_s]
        lanes.append(base + lane)
    count = base + len(free_s)
    with mpl.rc_context(RC):
        figure = Figure(figsize=(10, min(12.0, 1.5 + 0.12 * count)), layout="constrained")
        figure.suptitle(f"{title}: {begin_s:g} to {end_s:g} s", x=0.01, ha="left")
        axes = figure.subplots()
        times = [shown[name].to_numpy() for name in ("asked_s", "placed_s", "admitted_s", "first_s", "end_s")]
        for number, name in enumerate(("held", "waiting", "prefill", "decode")):
            colours = np.where(again, SHADES["recompute"], SHADES[name]) if name == "prefill" else SHADES[name]
            axes.barh(lanes, times[number + 1] - times[number], 0.9, times[number], color=colours)
        axes.set(xlim=(begin_s, end_s), ylim=(count, -1), xlabel="time (s)", ylabel="replica")
        axes.set_yticks([*bases.values()], [str(number) for number in bases])
        handles = [Patch(color=of, label=name) for name, of in SHADES.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=5)
    return figure
