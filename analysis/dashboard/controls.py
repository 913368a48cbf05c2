"""Selectors, tables and charts that all views of the page share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ..figures.chart import Chart
from ..load import Results
from ..tables import render
from . import charts, selection
from .selection import Filters

PLOT = {
    "displaylogo": False,
    "toImageButtonOptions": {"format": "png", "scale": 2},
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
"""Settings of plotly's figures."""
STYLE = """<style>
[data-testid="stCaptionContainer"] { color: inherit !important; opacity: 0.85; }
[data-testid="stMainBlockContainer"] { padding-left: 2rem; padding-right: 2rem; }
@media (max-width: 640px) {
  [data-testid="stMainBlockContainer"] { padding-left: 1rem; padding-right: 1rem; }
  [class*="st-key-wide-"] { overflow-x: auto; }
  [class*="st-key-wide-"] [data-testid="stElementContainer"] { min-width: 40rem; }
}
.rllib-table { overflow-x: auto; border: 1px solid rgb(128 128 128 / 30%); border-radius: 8px; }
.rllib-table table { border-collapse: collapse; width: 100%; font-size: 0.8rem; font-variant-numeric: tabular-nums; }
.rllib-table th, .rllib-table td {
  padding: 0.35rem 0.45rem; text-align: right; vertical-align: top; border: 0; white-space: nowrap;
  border-bottom: 1px solid rgb(128 128 128 / 20%);
}
.rllib-table thead th {
  vertical-align: bottom; white-space: normal; font-weight: 600;
}
.rllib-table .text { text-align: left; }
.rllib-table small { display: block; opacity: 0.8; }
</style>"""
"""Style of tables, and of captions with enough contrast."""
DARK_STYLE = """<style>
.stPlotlyChart, .stGraphVizChart { filter: invert(0.886) hue-rotate(180deg); }
</style>"""
"""On a dark page: figures are drawn for a light one; their hues stay."""


def escaped(text: str) -> str:
    """Text that Streamlit's Markdown shows unchanged."""
    for sign in "\\`*_[]$:~<>#":
        text = text.replace(sign, f"\\{sign}")
    return text


def one(place: Any, name: str, values: Iterable[Any], key: str, text: Callable[[Any], str] = str) -> Any:
    """One of the values, None without any; the choice stays while values are added, and is in the page's URL."""
    choices = list(dict.fromkeys(values))
    if not choices:
        return None
    before = _last_choice(key)
    if before is not None:
        st.session_state[key] = before if before in choices else choices[0]
    chosen = place.selectbox(name, choices, key=key, format_func=text, bind="query-params")
    st.session_state[_kept(key)] = chosen
    return chosen


def several(
    name: str, values: tuple[Any, ...], text: Callable[[Any], str] = str, default: tuple[Any, ...] = ()
) -> tuple[Any, ...]:
    """Some of the values, or none; the choice stays while values are added, and is in the page's URL."""
    before = _last_choice(name)
    if before is not None:
        st.session_state[name] = [value for value in before if value in values]
    bound = {"key": name, "bind": "query-params"}
    chosen = st.multiselect(name, values, list(default), placeholder="all", format_func=text, **bound)
    st.session_state[_kept(name)] = chosen
    return tuple(chosen)


def _kept(key: str) -> str:
    return f"{key}, kept while its view is closed"


def _last_choice(key: str) -> Any:
    """The choice of a selector, also after its view was closed: Streamlit forgets selectors that it does not draw."""
    return st.session_state.get(key, st.session_state.get(_kept(key)))


def save_csv(table: pd.DataFrame, name: str) -> None:
    """A button that saves a table, which is written when the button is pressed."""
    to_text = partial(render.to_csv, table)
    st.download_button("Save as CSV", to_text, f"{name}.csv", "text/csv", key=f"csv {name}", on_click="ignore")


def show_figure(figure: Any, key: str, **how: Any) -> None:
    """A figure of plotly in its own colours."""
    st.plotly_chart(figure, theme=None, config=PLOT, key=key, **how)


def show_chart(chart: Chart, key: str) -> None:
    """A chart and its caption; the caption alone if the chart is empty.

    On a narrow page a chart of several columns scrolls sideways in its own frame, as its panels would overlap.
    """
    is_wide = min(chart.columns, len(chart.panels)) > 1
    if chart.panels:
        with st.container(key=f"wide {key}") if is_wide else nullcontext():
            show_figure(charts.plot(chart), key)
    st.caption(escaped(chart.caption))


def selected_rows(results: Results, filters: Filters) -> pd.DataFrame:
    """The evaluation rows that pass the filters; shows a note if there are none."""
    if results.episodes.empty:
        st.info("No evaluation rows yet: they appear here as they are written.")
        return results.episodes
    rows = selection.apply(results.episodes, filters)
    if rows.empty:
        st.info("No row passes these filters.")
    return rows


def show_table(table: pd.DataFrame, columns: Iterable[str], key: str) -> None:
    """Some columns of a table, with the cells of the report; a wide table scrolls sideways in its own frame."""
    shown = [f"{column}{suffix}" for column in columns for suffix in ("", *render.SUFFIXES)]
    cells = render.to_html(table[[column for column in shown if column in table]])
    reached = f'tabindex="0" role="region" aria-label="{key.replace("-", " ")}"'
    st.html(f'<div class="rllib-table" id="{key}" {reached}>{cells}</div>')
