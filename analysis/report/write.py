"""The report of a results folder: words, tables and figures in one folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic

from ..figures import draw
from ..figures.chart import Chart
from ..load import Results, load
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


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    gantt: DrawGantt | None = None,
    console: Console | None = None,
) -> Path:
    """Write the report of a results folder: report.html, report.md, tables/ and figures/.

    A table is there as CSV, Markdown and LaTeX, a figure as PNG and SVG; report.html needs none of these files.

    Args:
        folder: the results folder.
        out: where to; by default FOLDER/report. An existing folder is overwritten only if it is an earlier report.
        gantt: draws episodes of the folder, see `analysis.replays`; without it there are no Gantt charts.
        console: shows the words and the main tables before they are written.

    Returns:
        The path of report.md; report.html stands beside it.

    Raises:
        UserError: the results cannot be read, or `out` is something else than a report or cannot be written.
    """
    results = load(folder)
    target = Path(out) if out is not None else results.folder / "report"
    _require_own(target)
    try:
        content = sections(results, gantt)
        if console is not None:
            print_report(results, console, content)
        return _write(results, target, content)
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


@dataclass
class _Files:
    """The tables and figures of a report as files."""

    target: Path
    written: set[Path]
    drawn: dict[str, Path | str] = field(default_factory=dict)

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

    def _draw(self, named: NamedFigure) -> Path | str:
        path = self.target / "figures" / f"{named.name}.png"
        try:
            figure = draw.draw(named.chart) if isinstance(named.chart, Chart) else named.chart()
        except UserError as error:
            return f"Not drawn: {error}."
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
            figure.set_layout_engine(None)  # laid out once, not for each file
        for suffix in FIGURE_FILES:
            draw.save(figure, path.with_suffix(suffix))
            self.written.add(path.with_suffix(suffix))
        return path

    def remove_others(self) -> None:
        """Remove those of an earlier report: nothing shows them any more."""
        for kind, suffixes in (("tables", tuple(TABLE_FILES)), ("figures", FIGURE_FILES)):
            for path in sorted((self.target / kind).glob("*")):
                if path.suffix in suffixes and path not in self.written:
                    path.unlink()


def _write(results: Results, target: Path, content: list[Section]) -> Path:
    path = target / "report.md"
    if not path.exists():
        _write_text(path, f"{MARK}\n\n# In progress\n")  # marks the folder as ours from the first file on
    files = _Files(target, {path})
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
