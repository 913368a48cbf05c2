"""The sections of a report: words, tables and figures of each setting, as functions of the results alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from ..figures import comparison, evaluation, training
from ..figures.chart import Chart
from ..figures.style import Look, looks
from ..labels import label
from ..load import Results
from ..rows import (
    NO_SETTING,
    PAPER_SETTING,
    Setting,
    asked_note,
    left_out,
    observability_note,
    of_families,
    select,
    setting_label,
    settings,
    variants,
)
from ..stats.families import TESTED, endpoint
from ..stats.intervals import COVERAGE
from ..tables import comparisons, family, features, league, methods, relative
from . import summary
from .replays import DrawGantt, title_of, typical_episode

HOW_TO_READ = (
    f"mean ± standard deviation over the episodes of a seed; [low, high] is the 95 % interval of the mean over "
    f"training seeds: {COVERAGE}. All means at a number of servers are of the episodes that all methods have there: "
    '"4, of 30" where one has more. In the mean response of all tasks that arrived, a task that is not done counts up '
    "to the end of the episode; no scheduler can be below its bound. The response of completed tasks is lower for a "
    "policy that completes fewer: read it with the completed and unfinished tasks. JCT: job completion time, from the "
    "arrival of a workflow to its last completion, over completed workflows."
)
PAIRED_HOW = (
    "first minus second on the episodes (and training seeds) that both have, averaged within a seed, then over seeds: "
    '"4, of 30" where one of them has more. [low, high] is Student\'s 95 % interval over seeds and episodes, p is '
    "Holm's in the family of the question, in the primary endpoint or in the other outcomes (docs/statistics.md). The "
    "verdict is lower or higher if p is below 0.05, and equal if no episode differs; it needs 3 episodes. It is about "
    "trainings like these: if one training of five fails, 5 seeds show no failure in one case of three. P: probability "
    "that a seed of the first does better than one of the second in the same episode."
)
TABLE4_TITLE = "Table 4: response against the number of servers, zero-shot"
TABLE5_TITLE = "Table 5: the attention feature and its drift from the training scale"
WORKFLOWS_TITLE = "Whole workflows"
WORKFLOWS_HOW = (
    "JCT, job completion time: from the arrival of a workflow (such as a turn of an agent) to its last completion, "
    "over completed workflows: mean and percentiles of an episode, then the mean over episodes. On the cluster: the "
    "times from ready to finished, summed over the tasks of a workflow, without release delays. Within objective: "
    "share of workflows that complete within twice their critical path (on the fastest server that fits, with release "
    "delays, without queues and transfers). Moved: share of the attempts at tasks with predecessors that ran on "
    "another server than the first predecessor. [low, high] as in Table 4."
)
REPLICAS_TITLE = "Replicas of a language model"
REPLICAS_HOW = (
    "Tasks are calls and workflows are turns, both after the warm-up. Held calls count from the moment they are asked, "
    "also in the mean response, which is the time that calls were open over the calls that were answered (Little's "
    "law). Hit rate: prompt tokens found in caches. Recomputed: tokens lost from caches since an earlier call, or by "
    "preemption. Working set: tokens of active agents over the memory for contexts. Within objective: calls whose "
    "first token and time per token meet service.slo_ttft_s and service.slo_tpot_s; goodput: such calls per second. "
    "[low, high] as in Table 4."
)
SCENARIOS_TITLE = "Every setting side by side"


@dataclass(frozen=True, eq=False)
class NamedTable:
    """A table with its title and file name, and how to read it.

    Attributes:
        table: all of it, as its file holds it.
        hidden: variants whose rows pages leave out.
    """

    name: str
    title: str
    table: pd.DataFrame
    how: str
    hidden: frozenset[str] = frozenset()

    @property
    def shown(self) -> pd.DataFrame:
        """The rows that a page shows."""
        names = [column for column in ("variant", "first", "second") if column in self.table]
        return self.table[~self.table[names].isin(self.hidden).any(axis=1)] if self.hidden else self.table


@dataclass(frozen=True)
class NamedFigure:
    """A figure with its title and file name: a chart or a function that draws a Gantt chart.

    The function may raise UserError. `fixed` colours stand for numbers: no theme changes them.
    """

    name: str
    title: str
    chart: Chart | Callable[[], Figure]
    fixed: bool = False
    wide: bool = False


@dataclass
class Section:
    """A part of a report; links use its name.

    Attributes:
        setting: of its rows; empty if it covers several.
        scales: numbers of servers that methods were trained at.
        hidden: variants that pages leave out because there are too many; `note` says so.
        asked: says which variants were asked otherwise than most.
        endpoint: the primary one.
        table4, paired, base: tables of its setting.
        best: lines on the best methods.
        items: tables and figures in their order on the page.
    """

    name: str
    title: str
    setting: Setting = NO_SETTING
    scales: list[int] = field(default_factory=list)
    hidden: frozenset[str] = frozenset()
    note: str = ""
    asked: str | None = None
    endpoint: str = TESTED[0]
    table4: pd.DataFrame = field(default_factory=pd.DataFrame)
    paired: pd.DataFrame = field(default_factory=pd.DataFrame)
    base: pd.DataFrame = field(default_factory=pd.DataFrame)
    best: list[str] = field(default_factory=list)
    items: list[NamedTable | NamedFigure] = field(default_factory=list)

    def add(self, name: str, title: str, chart: Chart, fixed: bool = False, wide: bool = False) -> None:
        """Add a figure, unless it is empty."""
        if chart.panels:
            self.items.append(NamedFigure(name, title, chart, fixed, wide))

    def add_table(self, name: str, title: str, table: pd.DataFrame, how: str) -> None:
        """Add a table, unless it has no rows."""
        if len(table):
            note = f"{self.note} tables/{name}.csv holds all rows. " if self.hidden else ""
            self.items.append(NamedTable(name, title, table, f"{note}{how}", self.hidden))

    def hide(self, tables: Sequence[tuple[pd.DataFrame, str]]) -> None:
        """Leave out variants that some tables hold too many of."""
        self.hidden, self.note = left_out(tables)

    def rows_shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Rows without the variants that are left out."""
        return rows[~rows["variant"].isin(self.hidden)] if self.hidden else rows

    @property
    def tables(self) -> list[NamedTable]:
        """Its tables in order."""
        return [item for item in self.items if isinstance(item, NamedTable)]

    def take(self, kind: str) -> list[NamedFigure]:
        """Remove its figures of a kind, e.g. "methods", and return them."""
        found = [item for item in self.items if isinstance(item, NamedFigure) and item.name.startswith(f"{kind}-")]
        self.items = [item for item in self.items if item not in found]
        return found

    def table(self, kind: str) -> NamedTable:
        """The first of its tables of a kind, e.g. "paired"."""
        return next(named for named in self.tables if named.name.startswith(f"{kind}-"))

    def main_kind(self, sweep: str) -> str:
        """The kind of table that a sweep is about: the one of its name, as of `table4`, else Table 3."""
        return sweep if any(named.name.startswith(f"{sweep}-") for named in self.tables) else "table3"

    @property
    def where(self) -> str:
        """The first words of the captions of its figures."""
        where = f"{self.setting.title}. "
        return f"{where}{self.note} " if self.note else where

    def at_first_scale(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table at the first scale that methods were trained at."""
        return table[table["test_servers"] == self.scales[0]] if self.scales and len(table) else table.iloc[:0]


def sections(results: Results, gantt: DrawGantt | None = None) -> Iterator[Section]:
    """The sections of a report: each setting in a fixed order, all settings side by side, the training curves.

    Args:
        results: of a folder.
        gantt: draws episodes of its rows; None: no Gantt charts.
    """
    found: list[Section] = []
    is_family = of_families(results.episodes)
    families, results = results.episodes[is_family], replace(results, episodes=results.episodes[~is_family])
    for setting in settings(results.episodes):
        found.append(_section(results, setting, gantt))
        yield found[-1]
    if len(found) > 1:
        yield _together(results, found)
    for setting in settings(families):
        yield _family(select(families, *setting), setting)
    if len(results.training):
        curves = Section("trainings", "Training")
        curves.add("training", "Training curves", training.training_curves(results.training), wide=True)
        yield curves


def _together(results: Results, found: Sequence[Section]) -> Section:
    """All settings side by side."""
    together = Section("settings", SCENARIOS_TITLE)
    together.hide([(one.table4, one.endpoint) for one in found])
    table = methods.side_by_side({one.setting: one.table4 for one in found})
    together.add_table("scenarios", SCENARIOS_TITLE, table, HOW_TO_READ)
    together.add_table("league", league.TITLE, league.league(results.episodes), league.HOW_TO_READ)
    every = [one.setting for one in found]
    bases = {setting_label(one.setting, every): together.rows_shown(one.base) for one in found if len(one.base)}
    identities = results.episodes[["variant", "method", "kind"]].drop_duplicates()
    of = looks(identities, variants(together.rows_shown(identities)))
    for metric, name in (("response_censored_s", "Response"), ("sojourn_mean_s", "Time on the cluster")):
        title = f"{name} {relative.TITLE.lower()}"
        chart = comparison.against_base(bases, of, metric)
        together.add(f"against-base-{metric.removesuffix('_s')}", title, chart, wide=True)
    return together


def glance(content: Sequence[Section]) -> list[NamedFigure]:
    """The first figures of a report, which leave their sections: what an ablation is about, each question or all
    methods, one episode under two schedulers, and the ranks; at the scale of training.
    """
    of_setting = [section for section in content if any(section.setting) and section.scales]
    every = [section.setting for section in of_setting]
    names = [setting_label(section.setting, every) for section in of_setting]
    named = list(zip(names, of_setting, strict=True))
    tables = {name: (one.at_first_scale(one.table4), one.endpoint) for name, one in named}
    means = {
        name: dict(zip(table["variant"].astype(str), table[metric].astype(float), strict=True))
        for name, (table, metric) in tables.items()
    }
    opening = Section("", "")
    if of_setting:
        opening.items += of_setting[0].take("lambdas")
    pairs = {
        name: (one.at_first_scale(one.table("paired").shown), one.endpoint) for name, one in named if len(one.paired)
    }
    title = "Who is better, by how much, and is it decided?"
    opening.add("verdicts", title, comparison.forest(pairs, means), wide=True)
    if of_setting:
        opening.items += [] if opening.items else of_setting[0].take("methods")[:1]
        opening.items += of_setting[0].take("gantt")[:1]
    title = "Rank of every method in every setting, 1 the best"
    hidden, note = left_out([(one.table4, one.endpoint) for one in of_setting])
    opening.add("ranks", title, comparison.ranks(tables, hidden, note), fixed=True, wide=True)
    return [item for item in opening.items if isinstance(item, NamedFigure)]


def _section(results: Results, setting: Setting, gantt: DrawGantt | None) -> Section:
    rows = select(results.episodes, *setting)
    slug = _slug(setting)
    papers = " (the paper's setting)" if setting == PAPER_SETTING else ""
    section = Section(slug, setting.title + papers, setting)
    section.asked, section.endpoint = asked_note(rows), endpoint(rows)
    section.scales, section.table4 = methods.training_scales(rows), methods.table4(rows)
    section.base = relative.against_base(rows)
    section.hide([(section.table4, section.endpoint)])
    shown = section.rows_shown(rows)
    of = looks(rows, variants(shown))
    for servers in section.scales:
        _add_training_scale(section, rows, servers, of)
    section.add_table(f"table4-{slug}", TABLE4_TITLE, section.table4, _how(section, section.table4))
    section.add_table(f"workflows-{slug}", WORKFLOWS_TITLE, methods.workflows_table(rows), WORKFLOWS_HOW)
    section.add_table(f"replicas-{slug}", REPLICAS_TITLE, methods.replicas_table(rows), REPLICAS_HOW)
    section.add_table(f"against-base-{slug}", relative.TITLE, section.base, relative.HOW_TO_READ)
    if rows["test_servers"].nunique() > 1:
        by = methods.ranking(section.table4, section.endpoint)
        chart = evaluation.against_servers(section.table4, of, section.where, by)
        section.add(f"servers-{slug}", "Against the number of servers N", chart, wide=True)
    _add_comparisons(section, rows)
    _add_features(section, select(results.features, *setting))
    for servers in section.scales:
        table, title = methods.behaviour_table(rows, servers), f"Decisions and utilisation at N = {servers}"
        section.add_table(f"decisions-{slug}-n{servers}", title, table, methods.BEHAVIOUR_HOW)
        if gantt is not None:
            _add_schedules(section, shown, servers, gantt)
    return section


def _family(rows: pd.DataFrame, setting: Setting) -> Section:
    """A scenario of many problems, which are compared with a rule one by one and then averaged."""
    section = Section(_slug(setting), setting.title)
    base, found = family.log_ratios(rows)
    title, table = family.TITLE.format(base), family.family_table(rows, found)
    section.best = summary.family_lines(table, setting[0], base)
    section.add_table(f"family-{section.name}", title, table, family.HOW_TO_READ.format(base))
    ratios = {name: family.by_problem(logs) for name, logs in found.items()}
    chart = comparison.over_problems(ratios, base, looks(rows, list(ratios)))
    section.add(f"over-problems-{section.name}", f"{title}: response on each", chart, wide=True)
    return section


def _slug(setting: Setting) -> str:
    """Part of file names: short, and another one for each setting."""
    name, _, changes = setting.scenario.partition(" with ")
    digest = f"-{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else ""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join((name, *setting[1:])).lower()) + digest


def _how(section: Section, table: pd.DataFrame) -> str:
    """Explanation of a ranking, with the observability of its variants if that differs."""
    return " ".join(filter(None, [observability_note(section.rows_shown(table)), section.asked, HOW_TO_READ]))


def _add_comparisons(section: Section, rows: pd.DataFrame) -> None:
    """The paired table."""
    section.paired = comparisons.paired_table(rows)
    how = f"{PAIRED_HOW} The primary endpoint here: {label(section.endpoint)}."
    section.add_table(f"paired-{section.name}", "Paired differences", section.paired, how)


def _add_training_scale(section: Section, rows: pd.DataFrame, servers: int, of: dict[str, Look]) -> None:
    """Table 3 and its figure."""
    slug = f"{section.name}-n{servers}"
    table3 = methods.table3(rows, servers)
    base = section.base[section.base["test_servers"] == servers]
    section.best += summary.best_lines(table3, servers, section.endpoint, base)
    title = f"Table 3: methods at the training scale, N = {servers}"
    section.add_table(f"table3-{slug}", title, table3, _how(section, table3))
    chart = evaluation.methods(
        table3, of, f"{section.where}N = {servers}. ", by=methods.ranking(table3, section.endpoint)
    )
    section.add(f"methods-{slug}", f"All methods on {servers} servers, the best first", chart, wide=True)
    title = f"Weights of SRR on {servers} servers"
    chart = evaluation.lambda_map(rows, table3, section.endpoint)
    section.add(f"lambdas-{slug}", title, chart, fixed=True, wide=True)


def _add_features(section: Section, rows: pd.DataFrame) -> None:
    """Table 5 and, if a feature was measured at several scales, its drift."""
    table5 = features.table5(rows)
    section.add_table(f"table5-{section.name}", TABLE5_TITLE, table5, features.HOW_TO_READ)
    shown = section.rows_shown(rows)
    if features.has_drift(shown):
        title = "Drift of the attention feature against the number of servers N"
        section.add(f"drift-{section.name}", title, training.drift(shown))


def _add_schedules(section: Section, rows: pd.DataFrame, servers: int, gantt: DrawGantt) -> None:
    """The Gantt charts of one episode."""
    if chosen := typical_episode(rows, servers):
        names = " and ".join(str(row["variant"]) for row in chosen)
        title = f"One workload under {names}: episode {chosen[0]['episode']} on {servers} servers"
        draw = partial(gantt, chosen, [title_of(row) for row in chosen])
        section.items.append(NamedFigure(f"gantt-typical-{section.name}-n{servers}", title, draw, wide=True))
