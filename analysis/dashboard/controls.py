"""What all views of the page share: selectors, tables, and which rows they look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ..figures import draw
from ..figures.chart import Chart
from ..tables import render
from . import charts, selection
from .selection import Filters
from .store import Snapshot

PLOT = {
    "displaylogo": False,
    "toImageButtonOptions": {"format": "png", "scale": 2},
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
"""How plotly's figures are set up."""
STYLE = """<style>
[data-testid="stCaptionContainer"] { color: inherit !important; opacity: 0.85; }
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
.rllib-table td small { display: block; opacity: 0.8; }
</style>"""
"""Of the page: tables, and captions that have contrast enough to be read."""


def escaped(text: str) -> str:
    """Text for Streamlit's Markdown that is shown as it is."""
    for sign in "\\`*_[]$:~<>#":
        text = text.replace(sign, f"\\{sign}")
    return text


def one(place: Any, name: str, values: Iterable[Any], key: str, text: Callable[[Any], str] = str) -> Any:
    """One of the values, None where there are none; the choice stays while others arrive, and is in the page's URL."""
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
    """Some of the values, or none; the choice stays while others arrive, and is in the page's URL."""
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
    """What a selector holds or, where its view was closed meanwhile, held: Streamlit forgets what it does not draw."""
    return st.session_state.get(key, st.session_state.get(_kept(key)))


def save_csv(table: pd.DataFrame, name: str) -> None:
    """A button that saves what is shown, written when it is pressed."""
    to_text = partial(render.to_csv, table)
    st.download_button("Save as CSV", to_text, f"{name}.csv", "text/csv", key=f"csv {name}", on_click="ignore")


def show_chart(chart: Chart, key: str, dark: bool) -> None:
    """A chart, its caption, which alone says why where there is nothing to draw, and a button that saves both."""
    if chart.panels:
        st.plotly_chart(charts.plot(chart, dark), config=PLOT, key=key)
    st.caption(escaped(chart.caption))
    if chart.panels:
        to_png, name = partial(draw.png, chart), key.replace(" ", "-")
        st.download_button("Save as PNG", to_png, f"{name}.png", "image/png", key=f"png {name}", on_click="ignore")


def selected_rows(snapshot: Snapshot, filters: Filters) -> pd.DataFrame:
    """The evaluation rows that the filters leave; says where there are none."""
    if snapshot.episodes.empty:
        st.info("No evaluation rows yet: they appear here as they are written.")
        return snapshot.episodes
    rows = selection.apply(snapshot.episodes, filters)
    if rows.empty:
        st.info("No row passes these filters.")
    return rows


def show_table(table: pd.DataFrame, columns: Iterable[str], key: str) -> None:
    """The cells that the report prints, those of some columns; a long table scrolls in a frame of its own."""
    beside = [f"{column}{suffix}" for column in columns for suffix in ("", *render.SUFFIXES)]
    cells = render.to_html(table[[column for column in beside if column in table]])
    reached = f'tabindex="0" role="region" aria-label="{key.replace("-", " ")}"'
    st.html(f'<div class="rllib-table" id="{key}" {reached}>{cells}</div>')
