"""The report of a results folder: words, tables and figures in one folder."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic

from ..figures import draw
from ..figures.chart import Chart
from ..load import Results, load, settings
from ..tables import render
from . import summary
from .overview import five_lines, overview
from .page import page
from .replays import DrawGantt
from .sections import NamedFigure, NamedTable, Section, glance, sections
from .terminal import print_report

MARK = "<!-- written by rllib-scale report; overwritten by the next one -->"
TABLE_FILES = {".csv": render.to_csv, ".md": render.to_markdown, ".tex": render.to_latex}
FIGURE_FILES = (".png", ".svg")
MANY = 4
"""Settings from which it pays to draw in processes of their own, each of which takes seconds to begin."""


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    gantt: DrawGantt | None = None,
    console: Console | None = None,
    processes: int = 1,
) -> Path:
    """Write the report of a results folder: report.html, report.md, tables/ and figures/.

    A table is there as CSV, Markdown and LaTeX, a figure as PNG and SVG; report.html needs none of these files.

    Args:
        folder: the results folder.
        out: where to; by default FOLDER/report. An existing folder is overwritten only if it is an earlier report.
        gantt: draws episodes of the folder, see `analysis.replays`; without it there are no Gantt charts.
        console: shows the words and the main tables before they are written.
        processes: that draw the figures of MANY settings or more, while numbers of the next are computed. More than one
            need a main module that can be imported, as scripts with `if __name__ == "__main__":`.

    Returns:
        The path of report.md; report.html stands beside it.

    Raises:
        UserError: the results cannot be read, or `out` is something else than a report or cannot be written.
    """
    results = load(folder)
    target = Path(out) if out is not None else results.folder / "report"
    _require_own(target)
    try:
        with _drawing(processes if len(settings(results.episodes)) >= MANY else 1) as executor:
            files = _Files(target, executor)
            if not (page := target / "report.md").exists():
                _write_text(page, f"{MARK}\n\n# In progress\n")  # marks the folder as ours from the first file on
            content = []
            for section in sections(results, gantt):
                files.begin(section)
                content.append(section)
            if console is not None:
                print_report(results, console, content)
            return _write(results, files, content)
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


@contextmanager
def _drawing(processes: int) -> Iterator[Executor | None]:
    """Processes that draw; none for one, which is this one."""
    if processes < 2:
        yield None
        return
    executor = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _leave_interrupts)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """A Ctrl-C is for the process that waits for this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _draw_files(chart: Chart | Callable[[], Figure], path: Path) -> None:
    """Draw a figure and write its files, of which `path` is the PNG."""
    figure = draw.draw(chart) if isinstance(chart, Chart) else chart()
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)  # laid out once, not for each file
    for suffix in FIGURE_FILES:
        draw.save(figure, path.with_suffix(suffix))


@dataclass
class _Files:
    """The tables and figures of a report as files."""

    target: Path
    executor: Executor | None = None
    written: set[Path] = field(default_factory=set)
    begun: dict[str, Future[None]] = field(default_factory=dict)
    drawn: dict[str, Path | str] = field(default_factory=dict)

    def begin(self, section: Section) -> None:
        """Have its charts drawn while other things are done."""
        for named in section.items:
            if self.executor is not None and isinstance(named, NamedFigure) and isinstance(named.chart, Chart):
                self.begun[named.name] = self.executor.submit(_draw_files, named.chart, self._path(named))

    def table(self, named: NamedTable, section: str) -> Path:
        path = self.target / "tables" / f"{named.name}.csv"
        for suffix, to_text in TABLE_FILES.items():
            text = to_text(named.table)
            title = f"**{named.title}.** {section}.\n\n" if suffix == ".md" else ""
            _write_text(path.with_suffix(suffix), title + text)
            self.written.add(path.with_suffix(suffix))
        return path

    def figure(self, named: NamedFigure) -> Path | str:
        """The path of its PNG, or why it cannot be drawn; drawn once, however often it is asked for."""
        if named.name not in self.drawn:
            self.drawn[named.name] = self._draw(named)
        return self.drawn[named.name]

    def _path(self, named: NamedFigure) -> Path:
        return self.target / "figures" / f"{named.name}.png"

    def _draw(self, named: NamedFigure) -> Path | str:
        path = self._path(named)
        try:
            if named.name in self.begun:
                self.begun[named.name].result()
            else:
                _draw_files(named.chart, path)
        except UserError as error:
            return f"Not drawn: {error}."
        self.written |= {path.with_suffix(suffix) for suffix in FIGURE_FILES}
        return path

    def remove_others(self) -> None:
        """Remove those of an earlier report: nothing shows them any more."""
        for kind, suffixes in (("tables", tuple(TABLE_FILES)), ("figures", FIGURE_FILES)):
            for path in sorted((self.target / kind).glob("*")):
                if path.suffix in suffixes and path not in self.written:
                    path.unlink()


def _write(results: Results, files: _Files, content: list[Section]) -> Path:
    path = files.target / "report.md"
    files.written.add(path)
    title = f"Report: {results.manifest.get('sweep', results.folder.name)}"
    words, made = overview(results, content), summary.manifest_lines(results)
    opening, five = glance(content), five_lines(results, content)
    body = [MARK, "", f"# {title}", ""]
    for figure in opening:
        body += _markdown(figure, "", files)
    body += _bullets(five)
    for heading, lines in words.items():
        body += [f"**{heading}**", "", *_bullets(lines)]
    for section in content:
        body += [f"## {section.title}", "", *_bullets([*section.best, *section.refusals])]
        for item in section.items:
            body += _markdown(item, section.title, files)
    body += ["## What made these numbers", "", *_bullets(made)]
    _write_text(path, "\n".join(body).rstrip() + "\n")
    config = results.manifest.get("config", {})
    _write_text(path.with_suffix(".html"), page(title, opening, five, words, content, made, config, files.figure))
    files.remove_others()
    return path


def _markdown(named: NamedTable | NamedFigure, section: str, files: _Files) -> list[str]:
    """Write the files of a table or figure, and return what report.md shows of it."""
    if isinstance(named, NamedTable):
        path = files.table(named, section)
        shown = f"### {named.title}\n\n{render.to_markdown(named.table)}\n*{named.how}* " if named.in_markdown else ""
        return [f"{shown}[CSV](tables/{path.name})", ""]
    drawn = files.figure(named)
    if isinstance(drawn, str):
        return [f"*{named.title}.* {drawn}", ""]
    return [f"![{named.title}](figures/{drawn.name})", ""]


def _bullets(lines: list[str]) -> list[str]:
    return [*(f"- {line}" for line in lines), ""] if lines else []


def _write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda p: p.write_text(text, encoding="utf-8"))
