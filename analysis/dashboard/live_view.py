"""The view of live runs: each policy as it ran and as it was simulated, as in a report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import streamlit as st

from rllib_scale.errors import UserError

from ..figures.chart import Chart
from ..load import Results
from ..report import live
from ..report.live import Played
from ..report.replays import DrawGantt
from ..report.sections import NamedFigure
from .controls import escaped, one, show_chart, show_table
from .selection import Filters


@lru_cache(maxsize=1)
def taken(results: Results) -> tuple[list[Played], Results, str]:
    """The live runs, and the results without them; a note, and all results, where a run cannot be read."""
    try:
        return (*live.take(results), "")
    except UserError as error:
        return [], results, str(error)


def live_runs(played: Sequence[Played], results: Results, filters: Filters) -> None:
    """One run of those that there are, beside its simulation; no filter applies."""
    found = {each.run.slug: each for each in played}
    chosen = found[one(st, "Run", found, "live run", lambda slug: live.title_of(found[slug].run))]
    section = live.section_of(chosen, _gantt(results))
    for line in section.best:
        st.markdown(escaped(line))
    if section.note:
        st.caption(escaped(section.note))
    for item in section.items:
        st.markdown(f"**{escaped(item.title)}**")
        if not isinstance(item, NamedFigure):
            show_table(item.shown, item.shown.columns, item.name)
            st.caption(escaped(item.how))
        elif isinstance(item.chart, Chart):
            show_chart(item.chart, item.name)
        else:
            st.pyplot(item.chart())


def _gantt(results: Results) -> DrawGantt:
    from rllib_scale.evaluation.replay import Replay

    return Replay(*results.homes)
