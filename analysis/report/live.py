"""The pages of live runs: what ran beside its simulation, the time that Ray took, and the waits of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from rllib_scale.results import runs
from rllib_scale.results.runs import Run, Side

from ..figures.chart import Chart, Marks, Panel
from ..figures.style import Look
from ..labels import label
from ..load import Results
from .replays import MOST_TASKS, DrawGantt
from .sections import NamedFigure, Section
from .sections import sections as sections_of

MEASURES = (
    *("response_censored_s", "response_mean_s", "jct_mean_s", "jct_p95_s", "sojourn_mean_s", "slo_share"),
    *("completed", "unfinished", "failed_attempts", "moved_share", "utilisation", "decisions"),
)
"""Columns of `episodes` that the first table shows, in this order."""
QUANTILES = {"median": 0.5, "95 %": 0.95, "99 %": 0.99, "largest": 1.0}
LIVE_LOOK, SIMULATED_LOOK = Look("#0072B2", "", "-"), Look("#D55E00", "", "--")
RUN_HOW = (
    "live is what happened on the Ray cluster; simulated is the same workload with the same scheduler and seed in the "
    "simulator, where Ray takes no time. Above it: live less simulated, over simulated."
)
WAITS_HOW = (
    "the wait of an attempt is from when its task was ready, as the scheduler was told, to its start: decisions and "
    "waits for a place. Its run is from the start to the end, with the time that Ray takes. Busy: share of the places "
    "that were in use from the start to the end of all."
)
OVERHEAD_HOW = (
    "the time of a task from the event that began the round in which it started until its end was known, less the time "
    "for which it slept: decisions, calls of Ray, moved outputs, and the threads of this machine. In seconds of the "
    "workload it is the part of a response that the simulation does not have."
)


@dataclass
class LiveSection(Section):
    """The part of a report about one live run."""

    def main_kind(self, sweep: str) -> str:
        """See `Section.main_kind`."""
        return "run"


@dataclass(frozen=True, eq=False)
class Played:
    """A run with the rows of `episodes` of the run and of its simulation."""

    run: Run
    live: pd.Series
    simulated: pd.Series


def take(results: Results) -> tuple[list[Played], Results]:
    """The live runs in results, and the results without them and their simulations, which compete with nothing.

    Raises:
        UserError: a run cannot be read.
    """
    rows, found, taken = results.episodes, [], np.zeros(len(results.episodes), dtype=bool)
    for run in (run for home in results.homes for run in runs.read(home)):
        own = [np.logical_and.reduce([rows[name] == value for name, value in side.key.items()]) for side in run.sides]
        if all(mask.any() for mask in own):
            found.append(Played(run, *(rows[mask].iloc[-1] for mask in own)))
            taken |= own[0] | own[1]
    return found, replace(results, episodes=rows[~taken])


def sections(results: Results, gantt: DrawGantt | None = None) -> Iterator[Section]:
    """The sections of a report: one for each live run, then those of all other results.

    Args:
        results: of some folders.
        gantt: draws episodes of its rows; None: no Gantt charts.

    Raises:
        UserError: a run cannot be read.
    """
    played, others = take(results)
    for one in played:
        yield section_of(one, gantt)
    yield from sections_of(others, gantt)


def section_of(one: Played, gantt: DrawGantt | None = None) -> LiveSection:
    """A run beside its simulation; see `sections`."""
    run, slug = one.run, one.run.slug
    section = LiveSection(f"live-{slug}", title_of(run))
    section.best = _lines(one)
    _add_gantt(section, one, gantt)
    section.add(f"run-times-{slug}", "Waits, and the time that Ray took", _times(run), wide=True)
    section.add_table(f"run-{slug}", "Live and simulated", _measures(one), RUN_HOW)
    section.add_table(f"run-waits-{slug}", "Waits and use of the servers", _waits(run), WAITS_HOW)
    section.add_table(f"run-overhead-{slug}", "Time of a task beyond its sleep", _overheads(run), OVERHEAD_HOW)
    return section


def title_of(run: Run) -> str:
    """Policy, servers and scenario of a run."""
    return f"{run.scheduler} on {run.cluster.num_servers} servers, {run.scenario}"


def _lines(one: Played) -> list[str]:
    """The first lines for a reader."""
    run, metric = one.run, "response_censored_s"
    live, simulated = float(one.live[metric]), float(one.simulated[metric])
    said = f"Live, the {label(metric).removesuffix(' (s)')} was {live:.2f} s"
    if simulated > 0:
        more = 100 * (live / simulated - 1)
        said += f", {abs(more):.1f} % {'above' if more >= 0 else 'below'} its simulation ({simulated:.2f} s)"
    lines = [f"{said}; {one.live['completed']} of {one.live['arrived']} tasks were completed."]
    if run.overheads_s:
        median, most, largest = (1e3 * value for value in np.quantile(run.overheads_s, (0.5, 0.99, 1.0)))
        lines.append(
            f"Ray added {median:.1f} ms to a task in the median, {most:.1f} ms to one in a hundred and "
            f"{largest:.1f} ms at most; a second of the workload took {1e3 * run.time_scale:g} ms."
        )
    waits = [float(_wait_s(side.schedule).mean()) for side in run.sides]
    lines.append(f"From ready to start took {waits[0]:.2f} s on average, {waits[1]:.2f} s in the simulation.")
    lines += [f"{run.guard[:1].upper()}{run.guard[1:]}."] * bool(run.guard)
    return lines + [f"Workflow {number} was given up: {why}" for number, why in run.failed.items()]


def _wait_s(schedule: pd.DataFrame) -> pd.Series:
    return schedule["start_s"] - schedule["ready_s"]


def _measures(one: Played) -> pd.DataFrame:
    """Metrics of both sides; those that neither has are left out."""
    rows = [("end of the run (s)", one.run.live.end_s, one.run.simulated.end_s)]
    rows += [(label(name), one.live[name], one.simulated[name]) for name in MEASURES if name in one.live]
    table = pd.DataFrame(rows, columns=["measure", "live", "simulated"], dtype=object)  # counts stay whole
    live, simulated = table["live"].astype(float), table["simulated"].astype(float)
    table["above it (%)"] = 100 * (live / simulated.where(simulated != 0) - 1)
    return table[live.notna() | simulated.notna()]


def _waits(run: Run) -> pd.DataFrame:
    """Attempts, waits and use of all servers and of each tier, on both sides."""
    places = {tier.name: tier.count * tier.max_concurrent for tier in run.cluster.tiers}
    groups = {"all": [*places]} | ({name: [name] for name in places} if len(places) > 1 else {})
    rows = []
    for servers, tiers in groups.items():
        available = sum(places[name] for name in tiers)
        live, simulated = (_used(side, tiers, available) for side in run.sides)
        row: dict[str, object] = {"servers": servers}
        for name in live:
            row |= {name: live[name], f"{name}, simulated": simulated[name]}
        rows.append(row)
    return pd.DataFrame(rows)


def _used(side: Side, tiers: list[str], places: int) -> dict[str, float]:
    """Utilisation of some tiers, with `places` places in all, on one side."""
    own = side.schedule[side.schedule["tier"].isin(tiers)]
    wait, runs = _wait_s(own), own["finish_s"].fillna(side.end_s) - own["start_s"]
    busy = float(runs.sum()) / (side.end_s * places) if side.end_s > 0 else 0.0
    waits = {"wait (s)": float(wait.mean()), "95 % of waits (s)": float(wait.quantile(0.95))}
    return {"attempts": len(own), **waits, "run (s)": float(runs.mean()), "busy": busy}


def _overheads(run: Run) -> pd.DataFrame:
    """Overhead of tasks beyond their sleep, in wall-clock time and time of the workload."""
    if not run.overheads_s:
        return pd.DataFrame()
    taken = np.array(run.overheads_s)
    values = [("mean", taken.mean()), *((name, np.quantile(taken, share)) for name, share in QUANTILES.items())]
    rows = [(name, 1e3 * float(value), float(value) / run.time_scale) for name, value in values]
    return pd.DataFrame(rows, columns=["measure", "time (ms)", "of the workload (s)"])


def _times(run: Run) -> Chart:
    """Which share of the tasks waited no longer than that, and of how many Ray took no more."""
    waits = [
        _shares(_wait_s(side.schedule), look, name)
        for side, look, name in zip(run.sides, (LIVE_LOOK, SIMULATED_LOOK), ("live", "simulated"), strict=True)
    ]
    panels = [Panel(waits, "From ready to start", "at most (s)", "share of the attempts")]
    if run.overheads_s:
        marks = [_shares(1e3 * np.array(run.overheads_s), LIVE_LOOK, "")]
        panels.append(Panel(marks, "Beyond the sleep of a task", "at most (ms)", "share of the tasks"))
    return Chart(panels, "Each curve says which share took no longer than that.")


def _shares(values: pd.Series | np.ndarray, look: Look, name: str) -> Marks:
    found = np.sort(np.asarray(values, dtype=float))
    return Marks(found, np.arange(1, len(found) + 1) / max(1, len(found)), look, name)


def _add_gantt(section: Section, one: Played, gantt: DrawGantt | None) -> None:
    """The chart of what ran, above that of its simulation."""
    if gantt is None:
        return
    rows, most = [one.live, one.simulated], max(len(side.schedule) for side in one.run.sides)
    if most > MOST_TASKS:
        section.note = f"Of {most:,} attempts no Gantt chart is drawn: more than {MOST_TASKS} are too narrow."
        return
    titles = [
        f"{name}: mean response {float(row['response_mean_s']):.2f} s, end after {side.end_s:.1f} s"
        for name, row, side in zip(("live", "simulated"), rows, one.run.sides, strict=True)
    ]
    drawn = partial(gantt, rows, titles)
    section.items.append(NamedFigure(f"gantt-{section.name}", "What ran, above its simulation", drawn, wide=True))
