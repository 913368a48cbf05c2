"""The report of a results folder: words, tables and figures in one folder, and the tables on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console, Group
from rich.text import Text

from analysis import comparisons, features, figures, render, summary, tables
from analysis.load import Results, load, select, settings
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic

MARK = "<!-- written by rllib-scale report; overwritten by the next one -->"
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
SCENARIOS_TITLE = "Every setting side by side"
TABLE3_SHOWN = (
    *("variant", "seeds", *tables.OUTCOMES, tables.BOUND),
    *("paper_completed", "paper_response_mean_s", "episode_return", "invalid_share", "episodes", "without_response"),
)
TABLE4_SHOWN = (
    *("variant", "seeds", "response_mean_s", "paper_response_mean_s", "completed", "unfinished"),
    *("response_censored_s", tables.BOUND, "without_response"),
)
PAIRED_SHOWN = ("test_servers", "seeds", *tables.OUTCOMES, "episodes")


@dataclass(frozen=True)
class NamedTable:
    """A table with its title and file name, how to read it, and what of it a terminal shows.

    A terminal shows a table of the columns `shown` for each value of `group`, titled by `group_title`.
    """

    name: str
    title: str
    table: pd.DataFrame
    how: str
    shown: tuple[str, ...]
    group: tuple[str, ...] = ()
    group_title: str = ""

    def for_terminal(self, width: int) -> list[Group]:
        """The rich tables for a terminal of `width` columns."""
        if not self.group:
            return render.to_terminal(self.table, self.title, self.shown, width)
        shown = []
        for values, rows in self.table.groupby(list(self.group), sort=False):
            title = f"{self.title} · {self.group_title.format(*values)}"
            shown += render.to_terminal(rows, title, self.shown, width)
        return shown


@dataclass(frozen=True)
class NamedFigure:
    """A figure, drawn when it is needed, with its title and file name."""

    name: str
    title: str
    draw: Callable[[], Figure]


@dataclass
class Section:
    """What a report says of one (scenario, mask, decision)."""

    title: str
    lines: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    tables: list[NamedTable] = field(default_factory=list)
    figures: list[NamedFigure] = field(default_factory=list)


def sections(results: Results) -> list[Section]:
    """The sections of a report, one for each setting, in a fixed order."""
    return [_section(results, setting) for setting in settings(results.episodes)]


def _section(results: Results, setting: tuple[str, str, str]) -> Section:
    rows = select(results.episodes, *setting)
    slug = re.sub(r"[^a-z0-9.]+", "-", "-".join(setting).lower())
    section = Section("Scenario {}, mask {}, decision {}".format(*setting))
    for servers in tables.training_scales(rows):
        table3 = tables.table3(rows, servers)
        section.lines += [f"N = {servers}. {line}" for line in summary.best_lines(table3)]
        title = f"Table 3: methods at the training scale, N = {servers}"
        section.tables.append(NamedTable(f"table3-{slug}-n{servers}", title, table3, HOW_TO_READ, TABLE3_SHOWN))
        section.figures.append(
            NamedFigure(f"methods-{slug}-n{servers}", title, partial(figures.method_bars, rows, servers))
        )
    table4 = tables.table4(rows)
    section.tables.append(
        NamedTable(f"table4-{slug}", TABLE4_TITLE, table4, HOW_TO_READ, TABLE4_SHOWN, ("test_servers",), "N = {}")
    )
    pairs, refused = comparisons.complete_pairs(rows, comparisons.default_pairs(rows), shared_seeds=True)
    section.refusals = [f"Not compared: {error}." for error in refused]
    paired = comparisons.paired_table(rows, pairs, shared_seeds=True)
    section.lines += summary.verdict_lines(paired)
    if len(paired):
        title, pair = "Paired differences", ("first", "second")
        section.tables.append(
            NamedTable(f"paired-{slug}", title, paired, PAIRED_HOW, PAIRED_SHOWN, pair, "{} minus {}")
        )
    if rows["test_servers"].nunique() > 1:
        title = "Response and completed tasks against the number of servers N"
        section.figures.append(NamedFigure(f"servers-{slug}", title, partial(figures.against_servers, rows)))
    _add_features(section, select(results.features, *setting), slug)
    title = "Completed tasks against response"
    section.figures.append(NamedFigure(f"throughput-{slug}", title, partial(figures.throughput_against_response, rows)))
    return section


def _add_features(section: Section, rows: pd.DataFrame, slug: str) -> None:
    """Table 5 and the drift, of a sweep that looked at the attention feature."""
    if rows.empty:
        return
    how, shown = features.HOW_TO_READ, features.TABLE5_SHOWN
    table5 = NamedTable(f"table5-{slug}", TABLE5_TITLE, features.table5(rows), how, shown, ("variant",), "{}")
    section.tables.append(table5)
    if features.has_drift(rows):
        title = "Drift of the attention feature against the number of servers N"
        section.figures.append(NamedFigure(f"drift-{slug}", title, partial(features.drift_against_servers, rows)))


def print_report(results: Results, console: Console) -> None:
    """Print the report's words and tables; they fit 100 columns unless names are long."""
    for line in (*results.notes, *summary.training_lines(results)):
        console.print(Text(line))
    for section in sections(results):
        console.print()
        console.print(Text(section.title, style="bold underline"))
        for named in section.tables:
            for table in named.for_terminal(console.width):
                console.print(table, crop=False)
                console.print()
        for line in (*section.lines, *section.refusals):
            console.print(Text(f"- {line}"))
        console.print(Text(f"How to read: {HOW_TO_READ}", style="dim"))
        for what, how in (("Paired differences", PAIRED_HOW), ("Table 5", features.HOW_TO_READ)):
            if any(named.how == how for named in section.tables):
                console.print(Text(f"{what}: {how}", style="dim"))


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a results folder: report.md, tables/*.csv and *.md, figures/*.png.

    Args:
        folder: the results folder.
        out: where to; by default FOLDER/report. An existing folder is overwritten only if it is an earlier report.

    Returns:
        The path of report.md.

    Raises:
        UserError: the results cannot be read, or `out` is something else than a report or cannot be written.
    """
    results = load(folder)
    target = Path(out) if out is not None else results.folder / "report"
    _require_own(target)
    try:
        return _write(results, target)
    except OSError as error:
        raise UserError(f"{target}: the report folder cannot be written ({error.strerror})") from None


def _require_own(target: Path) -> None:
    """Nothing but a report of this program is overwritten."""
    if not target.exists():
        return
    if not target.is_dir():
        raise UserError(f"{target}: is a file; give another folder for the report")
    page = target / "report.md"
    if any(target.iterdir()) and not (page.is_file() and page.read_text(encoding="utf-8").startswith(MARK)):
        raise UserError(f"{target}: not empty and not a report of this program; give another folder for the report")


def _write(results: Results, target: Path) -> Path:
    page = target / "report.md"
    if not page.exists():
        _write_text(page, f"{MARK}\n\n# In progress\n")  # marks the folder as ours from the first file on
    written = {page}
    body = [MARK, "", f"# Report: {results.manifest.get('sweep', results.folder.name)}", ""]
    body += _bullets([*results.notes, *summary.training_lines(results)])
    for section in sections(results):
        body += [f"## {section.title}", "", *_bullets([*section.lines, *section.refusals])]
        for named in section.tables:
            path, markdown = target / "tables" / f"{named.name}.csv", render.to_markdown(named.table)
            _write_text(path, render.to_csv(named.table))
            _write_text(path.with_suffix(".md"), f"**{named.title}.** {section.title}.\n\n{markdown}")
            written |= {path, path.with_suffix(".md")}
            body += [f"### {named.title}", "", markdown, f"*{named.how}* [CSV](tables/{path.name})", ""]
        for figure in section.figures:
            body += _figure(figure, target, written)
    if len(settings(results.episodes)) > 1:
        path, every = target / "tables" / "scenarios.csv", tables.scenarios_table(results.episodes)
        _write_text(path, render.to_csv(every))
        _write_text(path.with_suffix(".md"), f"**{SCENARIOS_TITLE}.**\n\n{render.to_markdown(every)}")
        written |= {path, path.with_suffix(".md")}
        body += [f"## {SCENARIOS_TITLE}", "", f"[CSV](tables/{path.name})", ""]
    if len(results.training):
        curves = NamedFigure("training", "Training curves", lambda: figures.training_curves(results.training))
        body += ["## Training", "", *_figure(curves, target, written)]
    body += ["## What made these numbers", "", *_bullets(summary.manifest_lines(results))]
    _write_text(page, "\n".join(body).rstrip() + "\n")
    for kind, suffixes in (("tables", (".csv", ".md")), ("figures", (".png",))):
        for path in sorted((target / kind).glob("*")):
            if path.suffix in suffixes and path not in written:
                path.unlink()  # of an earlier report: nothing in report.md shows it any more
    return page


def _figure(named: NamedFigure, target: Path, written: set[Path]) -> list[str]:
    path = target / "figures" / f"{named.name}.png"
    figures.save(named.draw(), path)
    written.add(path)
    return [f"![{named.title}](figures/{path.name})", ""]


def _bullets(lines: list[str]) -> list[str]:
    return [*(f"- {line}" for line in lines), ""] if lines else []


def _write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda p: p.write_text(text, encoding="utf-8"))
