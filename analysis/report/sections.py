"""What a report says: words, tables and figures, a section for each setting, as a function of the results alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from ..figures import evaluation as figures
from ..figures import paper_figures
from ..figures import training as curves
from ..load import Results, information_note, select, settings
from ..paper import PAPER_SERVERS, is_papers_setting
from ..tables import comparisons, features, lambdas, relative
from ..tables import decisions as behaviour
from ..tables import methods as tables
from . import summary, verdicts
from .replays import DrawGantt, chosen_episodes

HOW_TO_READ = (
    "mean ± standard deviation over the episodes of a seed; [low, high] is the 95 % BCa bootstrap interval of the mean "
    "over training seeds (of few seeds it covers less than it says: docs/statistics.md). A response time covers "
    "completed tasks alone: a policy that completes less shows a lower one, so read it with the completed and "
    "unfinished tasks; the censored response counts every arrived task up to the end, and the bound is what no "
    "scheduler can beat in it. The CSV also holds interquartile means."
)
PAIRED_HOW = (
    "first minus second on identical episodes (and training seeds; shared: those that both have), averaged within a "
    "seed, then over seeds. [low, high] is the 95 % interval of a hierarchical bootstrap over seeds and episodes, p is "
    "Holm's over all verdicts of this table. Lower or higher is said only where the interval excludes 0 and p is below "
    "0.05. P: probability that a seed of the first does better than one of the second in the same episode."
)
TABLE4_TITLE = "Table 4: response against the number of servers, zero-shot"
TABLE5_TITLE = "Table 5: the attention feature and its drift from the training scale"
WORKFLOWS_TITLE = "Whole workflows"
WORKFLOWS_HOW = (
    "makespan: from the arrival of a workflow, an agent's turn, say, to its last completion, over completed "
    "workflows: mean and percentiles of an episode, then the mean over episodes. On the cluster: the times from ready "
    "to finished summed over the tasks of a workflow, which release delays are no part of. Within objective: share of "
    "workflows that are done within twice their critical path (the fastest server that fits, release delays included, "
    "no queue and no transfer). Moved: share of the attempts at tasks with predecessors that ran on another server "
    "than the first of these. [low, high] as in Table 4."
)
SCENARIOS_TITLE = "Every setting side by side"


@dataclass(frozen=True)
class NamedTable:
    """A table with its title and file name, and how to read it. report.md shows it but where others hold its rows."""

    name: str
    title: str
    table: pd.DataFrame
    how: str
    in_markdown: bool = True


@dataclass(frozen=True)
class NamedFigure:
    """A figure, drawn when it is needed, with its title and file name.

    `draw` raises UserError where what it shows is not to be had. `fixed` colours mean numbers: no theme changes them.
    """

    name: str
    title: str
    draw: Callable[[], Figure]
    fixed: bool = False
    wide: bool = False


@dataclass
class Section:
    """A part of a report, with a name for links to it.

    Attributes:
        setting: scenario, mask and decision; empty where it is not of one setting.
        best: who stands first on average, and at what price.
        leaders: who is first in what.
        beside: our means beside the paper's.
        lines: every comparison with its numbers.
        verdicts: the same sorted: who won, and what is undecided.
        refusals: what could not be compared, and why.
        items: tables and figures in the order in which they are to be seen.
    """

    name: str
    title: str
    setting: tuple[str, str, str] = ("", "", "")
    best: list[str] = field(default_factory=list)
    leaders: str = ""
    beside: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    verdicts: verdicts.Verdicts = field(default_factory=verdicts.Verdicts)
    refusals: list[str] = field(default_factory=list)
    items: list[NamedTable | NamedFigure] = field(default_factory=list)

    @property
    def tables(self) -> list[NamedTable]:
        """Its tables in order."""
        return [item for item in self.items if isinstance(item, NamedTable)]


def sections(results: Results, gantt: DrawGantt | None = None) -> list[Section]:
    """The sections of a report: each setting in a fixed order, all of them side by side, the training.

    Args:
        results: of a folder.
        gantt: draws episodes of its rows; without it there are no Gantt charts.
    """
    found = [_section(results, setting, gantt) for setting in settings(results.episodes)]
    if len(found) > 1:
        every = Section("settings", SCENARIOS_TITLE)
        table = tables.scenarios_table(results.episodes)
        every.items.append(NamedTable("scenarios", SCENARIOS_TITLE, table, HOW_TO_READ, in_markdown=False))
        if (results.episodes["method"] == relative.BASE).any():
            for metric, name in (("response_censored_s", "Response"), ("sojourn_mean_s", "Time on the cluster")):
                if results.episodes[metric].notna().any():
                    draw = partial(relative.against_base_figure, results.episodes, metric)
                    title = f"{name} {relative.TITLE.lower()}"
                    every.items.append(NamedFigure(f"against-base-{metric.removesuffix('_s')}", title, draw))
        found.append(every)
    if len(results.training):
        training = Section("trainings", "Training")
        draw = partial(curves.training_curves, results.training)
        training.items.append(NamedFigure("training", "Training curves", draw))
        found.append(training)
    return found


def _section(results: Results, setting: tuple[str, str, str], gantt: DrawGantt | None) -> Section:
    rows = select(results.episodes, *setting)
    slug = re.sub(r"[^a-z0-9.]+", "-", "-".join(setting).lower())
    section = Section(slug, "Scenario {}, mask {}, decision {}".format(*setting), setting)
    scales = tables.training_scales(rows)
    for servers in scales:
        _add_training_scale(section, rows, servers, results.training)
    table4 = tables.table4(rows)
    section.items.append(NamedTable(f"table4-{slug}", TABLE4_TITLE, table4, _how(table4)))
    workflows = tables.workflows_table(rows)
    if len(workflows):
        section.items.append(NamedTable(f"workflows-{slug}", WORKFLOWS_TITLE, workflows, WORKFLOWS_HOW))
    beside_base = relative.against_base(rows)
    if len(beside_base):
        section.items.append(NamedTable(f"against-base-{slug}", relative.TITLE, beside_base, relative.HOW_TO_READ))
    if rows["test_servers"].nunique() > 1:
        title = "Response and completed tasks against the number of servers N"
        section.items.append(NamedFigure(f"servers-{slug}", title, partial(figures.against_servers, rows)))
    title = "Completed tasks against response"
    section.items.append(NamedFigure(f"throughput-{slug}", title, partial(figures.throughput_against_response, rows)))
    _add_comparisons(section, rows)
    _add_features(section, select(results.features, *setting))
    for servers in scales:
        _add_behaviour(section, rows, servers)
        if gantt is not None:
            _add_schedules(section, rows, servers, gantt)
    return section


def _how(table: pd.DataFrame) -> str:
    """How to read a ranking: with what its variants are told, where that is not the same."""
    note = information_note(table)
    return HOW_TO_READ if note is None else f"{note} {HOW_TO_READ}"


def _add_comparisons(section: Section, rows: pd.DataFrame) -> None:
    """The paired table, and what it says in words."""
    pairs, refused = comparisons.complete_pairs(rows, comparisons.default_pairs(rows), shared_seeds=True)
    section.refusals = [f"Not compared: {error}." for error in refused]
    paired = comparisons.paired_table(rows, pairs, shared_seeds=True)
    section.lines = verdicts.verdict_lines(paired)
    section.verdicts = verdicts.verdicts(paired)
    if len(paired):
        section.items.append(NamedTable(f"paired-{section.name}", "Paired differences", paired, PAIRED_HOW))


def _add_papers_figures(section: Section, rows: pd.DataFrame, training: pd.DataFrame) -> None:
    """Figures 3 to 6 in the paper's layout, of its setting and methods."""
    at_papers_scale = rows[rows["test_servers"] == PAPER_SERVERS]
    if not is_papers_setting(rows) or not paper_figures.papers_variants(at_papers_scale):
        return
    drawn: list[tuple[str, str, Callable[[], Figure]]] = [
        ("figure3", "Figure 3: completed tasks", partial(paper_figures.figure3, rows)),
        ("figure4", "Figure 4: response time", partial(paper_figures.figure4, rows)),
        ("figure5", "Figure 5: response time against the number of servers", partial(paper_figures.figure5, rows)),
    ]
    if paper_figures.papers_variants(training):
        drawn.append(("figure6", "Figure 6: training curves", partial(paper_figures.figure6, training)))
    section.items += [NamedFigure(f"{name}-{section.name}", title, draw) for name, title, draw in drawn]


def _add_training_scale(section: Section, rows: pd.DataFrame, servers: int, training: pd.DataFrame) -> None:
    """Table 3 and its figures, and the heat maps of a lambda grid."""
    slug = f"{section.name}-n{servers}"
    table3 = tables.table3(rows, servers)
    section.best += summary.best_lines(table3, servers)
    section.leaders = section.leaders or summary.leaders(table3)
    if servers == PAPER_SERVERS:
        section.beside = summary.paper_lines(table3, tables.table4(rows))
    title = f"Table 3: methods at the training scale, N = {servers}"
    section.items.append(NamedTable(f"table3-{slug}", title, table3, _how(table3)))
    if servers == PAPER_SERVERS:
        _add_papers_figures(section, rows, training)
    section.items.append(NamedFigure(f"methods-{slug}", title, partial(figures.method_bars, rows, servers)))
    for number, grid in enumerate(lambdas.lambda_grids(rows), start=1):
        title = f"Weights of SRR: {lambdas.grid_name(grid)} at N = {servers}"
        weights = lambdas.lambda_table(grid, servers)
        section.items.append(NamedTable(f"weights{number}-{slug}", title, weights, HOW_TO_READ))
        draw = partial(lambdas.lambda_heatmaps, grid, servers)
        section.items.append(NamedFigure(f"lambdas{number}-{slug}", title, draw, fixed=True))


def _add_features(section: Section, rows: pd.DataFrame) -> None:
    """Table 5 and the drift, of a sweep that looked at the attention feature."""
    if rows.empty:
        return
    table5 = features.table5(rows)
    section.items.append(NamedTable(f"table5-{section.name}", TABLE5_TITLE, table5, features.HOW_TO_READ))
    if features.has_drift(rows):
        title = "Drift of the attention feature against the number of servers N"
        draw = partial(features.drift_against_servers, rows)
        section.items.append(NamedFigure(f"drift-{section.name}", title, draw))


def _add_behaviour(section: Section, rows: pd.DataFrame, servers: int) -> None:
    """Invalid decisions by cause and utilisation by tier."""
    slug = f"{section.name}-n{servers}"
    title, table = f"Decisions and utilisation at N = {servers}", behaviour.behaviour_table(rows, servers)
    section.items.append(NamedTable(f"decisions-{slug}", title, table, behaviour.HOW_TO_READ))
    section.items += [
        NamedFigure(
            f"invalid-{slug}",
            f"Invalid decisions by cause, N = {servers}",
            partial(behaviour.invalid_decisions, rows, servers),
        ),
        NamedFigure(
            f"utilisation-{slug}",
            f"Utilisation by tier, N = {servers}",
            partial(behaviour.utilisation_by_tier, rows, servers),
        ),
    ]


def _add_schedules(section: Section, rows: pd.DataFrame, servers: int, gantt: DrawGantt) -> None:
    """Gantt charts of chosen episodes."""
    for choice in chosen_episodes(rows, servers):
        names = " and ".join(str(row["variant"]) for row in choice.rows)
        title = f"Schedules of one episode: {names}, {choice.why}"
        draw = partial(gantt, choice.rows, choice.titles)
        section.items.append(NamedFigure(f"gantt-{choice.name}-{section.name}-n{servers}", title, draw, wide=True))
