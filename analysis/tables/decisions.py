"""What each method's decisions are like: invalid ones by cause, and how busy each tier is, in one setting."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rllib_scale.results.tables import UTILISATION_PREFIX

from ..figures import style
from ..figures.evaluation import setting_caption
from ..load import require_one_setting, variants
from ..stats.summaries import summarise
from .methods import interval_note
from .render import TIER_PREFIX

CAUSES = {
    "invalid_no_fit": "server too small",
    "invalid_busy_avoidable": "busy, another was free",
    "invalid_busy_unavoidable": "busy, none was free",
}
"""Why a decision was invalid, as `rllib_scale.results.tables.METRIC_COLUMNS` defines it."""
VALID_COLOUR, CAUSE_COLOURS = "#D9D9D9", ("#B2182B", "#F4A582", "#4393C3")
TIER_COLOURS = ("#B3CDE3", "#6497B1", "#03396C", "#A6A6A6", "#595959")
HOW_TO_READ = (
    "means over training seeds of the mean over a seed's episodes; [low, high] is their 95 % interval. Decisions, all "
    "and invalid, are per episode; an invalid one costs a clock step. Utilisation: share of the time servers are busy."
)


def tiers(episodes: pd.DataFrame) -> list[str]:
    """The tiers that the rows have a utilisation of."""
    names = [str(name) for name in episodes if str(name).startswith(UTILISATION_PREFIX)]
    return [name.removeprefix(UTILISATION_PREFIX) for name in names if episodes[name].notna().any()]


def behaviour_table(episodes: pd.DataFrame, servers: int) -> pd.DataFrame:
    """Decisions, those of them that were invalid by cause, and utilisation, at one number of servers.

    Args:
        episodes: rows of one setting.
        servers: the scale N.

    Returns:
        One row per variant: seeds and seeds_note; decisions, the CAUSES, utilisation and tier_NAME for each tier, with
        their _low and _high over seeds.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    rows = episodes[episodes["test_servers"] == servers]
    of_tier = {f"{TIER_PREFIX}{tier}": f"{UTILISATION_PREFIX}{tier}" for tier in tiers(rows)}
    metrics = {name: name for name in ("decisions", *CAUSES, "utilisation")} | of_tier
    records = []
    for name in variants(rows):
        own = rows[rows["variant"] == name]
        summaries = summarise(own, tuple(metrics.values()))
        seeds = summaries["decisions"].seeds
        note = interval_note(seeds, bool((own["kind"] == "heuristic").any()))
        record: dict[str, Any] = {"variant": name, "seeds": seeds, "seeds_note": note}
        for column, metric in metrics.items():
            summary = summaries[metric]
            record |= {column: summary.mean, f"{column}_low": summary.low, f"{column}_high": summary.high}
        records.append(record)
    columns = [column + suffix for column in metrics for suffix in ("", "_low", "_high")]
    return pd.DataFrame(records, columns=["variant", "seeds", "seeds_note", *columns])


def invalid_decisions(episodes: pd.DataFrame, servers: int) -> Figure:
    """Decisions of an episode at one number of servers: the valid ones, and the invalid ones by cause."""
    table = behaviour_table(episodes, servers)
    if table["decisions"].isna().all():
        return style.empty_figure(f"no evaluation episodes with decisions at N = {servers}")
    parts = {"valid": table["decisions"] - table[list(CAUSES)].sum(axis=1)}
    parts |= {text: table[cause] for cause, text in CAUSES.items()}
    with mpl.rc_context(style.RC):
        figure, axes = _rows_of_bars(table)
        left = np.zeros(len(table))
        for (text, values), colour in zip(parts.items(), (VALID_COLOUR, *CAUSE_COLOURS), strict=True):
            widths = values.fillna(0).to_numpy(float)
            axes.barh(table["variant"], widths, 0.72, left=left, color=colour, label=text)
            left += widths
        axes.set_xlabel("decisions in an episode")
        style.legend(figure, axes, len(parts))
        style.caption(
            figure,
            f"N = {servers}. {_caption(episodes, servers)} Mean over seeds and episodes; an invalid decision "
            "costs a clock step.",
        )
    return figure


def utilisation_by_tier(episodes: pd.DataFrame, servers: int) -> Figure:
    """Share of the time that the servers of each tier are busy, at one number of servers."""
    table = behaviour_table(episodes, servers)
    shown = [f"{TIER_PREFIX}{tier}" for tier in tiers(episodes) if f"{TIER_PREFIX}{tier}" in table]
    if table.empty or not shown:
        return style.empty_figure(f"no utilisation of tiers at N = {servers}")
    with mpl.rc_context(style.RC):
        figure, axes = _rows_of_bars(table)
        height = 0.8 / len(shown)
        for position, column in enumerate(shown):
            y = np.arange(len(table)) + (position - (len(shown) - 1) / 2) * height
            colour = TIER_COLOURS[position % len(TIER_COLOURS)]
            axes.barh(
                y, table[column].to_numpy(float), 0.9 * height, color=colour, label=column.removeprefix(TIER_PREFIX)
            )
        axes.set_xlabel("utilisation (share of the time)")
        axes.set_xlim(0, 1)
        style.legend(figure, axes, len(shown))
        style.caption(figure, f"N = {servers}. {_caption(episodes, servers)} Mean over seeds and episodes.")
    return figure


def _rows_of_bars(table: pd.DataFrame) -> tuple[Figure, Axes]:
    """A figure with a row of bars for each variant, the first on top."""
    figure = Figure(figsize=(7.2, 2.2 + 0.36 * len(table)), layout="constrained")
    axes = figure.subplots()
    axes.set_yticks(range(len(table)), table["variant"])
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    return figure, axes


def _caption(episodes: pd.DataFrame, servers: int) -> str:
    return setting_caption(episodes[episodes["test_servers"] == servers])
