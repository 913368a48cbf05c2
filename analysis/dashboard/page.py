"""The page: header, filters, notes, and the views of other modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import streamlit as st

from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location

from ..load import Reader, Results, reader_of
from ..rows import Setting
from . import episode_view, live_view, selection, views
from .controls import DARK_STYLE, STYLE, escaped, one, several
from .runs import RULE, runs
from .selection import Filters, Options

REFRESH_S = 3.0
"""Time between two checks of the folder while a page is open [s]."""
VIEWS = {
    "Results": views.evaluations,
    "Training": views.training,
    "Compare": views.compare,
    "Episode": episode_view.episode,
    "Runs": views.runs,
}
MOST_NOTES = 5


def main(homes: Sequence[Location]) -> None:
    """Draw the page of results."""
    st.set_page_config(page_title=f"{homes[0].name} · rllib-scale", layout="wide")
    st.html(STYLE)
    reader = reader_of(*homes)
    whole = reader.read()
    played, results, note = live_view.taken(whole)
    options = selection.options(results.episodes, results.training)
    with st.sidebar:
        filters = _header_and_filters(results, options, len(played))
    _notes([*results.notes, *filter(None, [note])])
    shown = dict(VIEWS)
    if played:  # where there is nothing else, it comes first
        own = {"Live": partial(live_view.live_runs, played)}
        shown = own | shown if results.episodes.empty else shown | own
    if st.context.theme.type == "dark":
        st.html(DARK_STYLE)
    for view, tab in zip(
        shown.values(), st.tabs(list(shown), key="view", on_change="rerun", bind="query-params"), strict=True
    ):
        if tab.open:
            with tab:
                try:
                    view(results, filters)
                except UserError as error:
                    st.warning(escaped(str(error)))
    st.session_state["just_drawn"] = True
    _watch(reader, results.stamp)


@st.fragment(run_every=REFRESH_S)
def _watch(reader: Reader, shown: int) -> None:
    """Draws the page again when the results have changed."""
    if not st.session_state.pop("just_drawn", False) and reader.stamp() != shown:
        st.rerun()


def _notes(notes: Iterable[str]) -> None:
    notes = list(notes)
    for note in notes[:MOST_NOTES]:
        st.info(escaped(note))
    if len(notes) > MOST_NOTES:
        st.info(f"and {len(notes) - MOST_NOTES} more notes like these")


def _header_and_filters(results: Results, options: Options, live_runs: int) -> Filters:
    st.title(escaped(results.sweep), anchor=False)
    counts = Counter(runs(results)["state"])
    rules = counts.pop(RULE, 0)
    states = ", ".join(f"{count} {views.STATES[state].partition(':')[0]}" for state, count in counts.items())
    parts = [f"{len(results.episodes):,} evaluation rows", f"trainings: {states}" * bool(states)]
    parts += [f"rules: {rules}" * bool(rules), f"live runs: {live_runs}" * bool(live_runs)]
    st.caption(" · ".join(filter(None, parts)))
    st.caption(escaped(", ".join(map(str, results.homes))))
    st.subheader("Setting", anchor=False, help="Rows that differ here answer different questions and never mix.")
    scenario = one(st, "Scenario", [setting[0] for setting in options.settings], "Scenario")
    mask = one(st, "Mask", [setting[1] for setting in options.settings if setting[0] == scenario], "Mask")
    both = (scenario, mask)
    decision = one(st, "Decision", [setting[2] for setting in options.settings if setting[:2] == both], "Decision")
    st.subheader("Filters", anchor=False, help="Nothing chosen: all. Heuristics have neither seeds nor lambdas.")
    return Filters(
        setting=Setting(scenario or "", mask or "", decision or ""),
        methods=several("Methods", options.methods),
        seeds=several("Training seeds", options.seeds),
        lambdas=several("Lambdas", options.lambdas, "λ₁ = {0[0]:g}, λ₂ = {0[1]:g}".format),
        scales=several("Servers N", options.scales),
    )
