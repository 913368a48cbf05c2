"""The report of a results folder: one page, and its tables and figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic
from rllib_scale.results.storage import Location

from ..figures import draw
from ..figures.chart import Chart
from ..load import load
from ..tables import render
from . import summary
from .live import sections
from .overview import five_lines, next_steps, remarks
from .page import page
from .replays import DrawGantt
from .sections import NamedFigure
from .terminal import print_report

PAGE, MARKER = "report.html", "written-by-rllib-scale.txt"
"""The marker stands in every folder that a report made: only there are files replaced."""
FILES = (PAGE, "tables/*.csv", "tables/*.tex", "figures/*.svg")


def write_report(
    folders: str | Path | Location | Sequence[Location],
    out: str | Path | None = None,
    gantt: DrawGantt | None = None,
    console: Console | None = None,
    latex: bool = False,
) -> Path:
    """Write the report of results: report.html, tables/*.csv and figures/*.svg.

    The files of an earlier report are replaced or removed. Other files stay.

    Args:
        folders: a results folder, or several.
        out: folder of the report; by default `report` in the first, which must be on this machine.
        gantt: draws episodes of these, see `report.replays`; None: no Gantt charts.
        console: shows the summary and the main tables; None: nothing is shown.
        latex: whether to write tables/*.tex, too.

    Returns:
        The path of report.html.

    Raises:
        UserError: the results cannot be read, the report cannot be written, or no report made its folder.
    """
    results = load(*([folders] if isinstance(folders, str | Path | Location) else folders))
    target = Path(out) if out is not None else (results.homes[0].local or Path()) / "report"
    _claim(target)
    content = list(sections(results, gantt))
    if console is not None:
        print_report(results, console, content)
    written: set[Path] = set()

    def write(name: str, text: str) -> Path:
        path = target / name
        write_atomic(path, lambda p: p.write_text(text, encoding="utf-8"))
        written.add(path)
        return path

    def draw_figure(named: NamedFigure) -> Path | str:
        """The path of its SVG, or the reason why it cannot be drawn."""
        try:
            figure = draw.draw(named.chart) if isinstance(named.chart, Chart) else named.chart()
        except UserError as error:
            return f"Not drawn: {error}."
        path = target / "figures" / f"{named.name}.svg"
        draw.save(figure, path)
        written.add(path)
        return path

    for named in (table for section in content for table in section.tables):
        write(f"tables/{named.name}.csv", render.to_csv(named.table))
        if latex:
            write(f"tables/{named.name}.tex", render.to_latex(named.table))
    title = f"Report: {results.sweep}"
    made = [*summary.training_lines(results), *summary.manifest_lines(results)]
    config = results.manifest.get("config", {})
    steps = next_steps(results, content)
    text = page(title, five_lines(content), steps, remarks(results), content, made, config, draw_figure)
    path = write(PAGE, text)
    for earlier in {found for pattern in FILES for found in target.glob(pattern)} - written:
        earlier.unlink()
    return path


def _claim(target: Path) -> None:
    """Mark a folder as a report's; one that holds anything must be marked already."""
    try:
        if not (target / MARKER).is_file() and target.is_dir() and any(target.iterdir()):
            raise UserError(f"{target}: not empty, and no report made it; move it away")
        target.mkdir(parents=True, exist_ok=True)
        (target / MARKER).write_text(f"Every report replaces or removes {', '.join(FILES)} in this folder.\n")
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from None
