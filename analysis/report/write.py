"""The report of a results folder: one page, and its tables and figures as files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic

from ..figures import draw
from ..figures.chart import Chart
from ..load import load
from ..tables import render
from . import summary
from .overview import five_lines, missing
from .page import page
from .replays import DrawGantt
from .sections import NamedFigure, NamedTable, sections
from .terminal import print_report

PAGE, LISTING = "report.html", "written-by-rllib-scale.txt"
"""The listing names each file of a report before it is written: only these files are ever replaced."""
LISTABLE = re.compile(rf"{re.escape(PAGE)}|(tables|figures)/[^/]+")


def write_report(
    folder: str | Path,
    out: str | Path | None = None,
    gantt: DrawGantt | None = None,
    console: Console | None = None,
    latex: bool = False,
) -> Path:
    """Write the report of a results folder: report.html, tables/*.csv and figures/*.svg.

    Files of an earlier report are replaced or removed. Other files stay.

    Args:
        folder: the results folder.
        out: folder of the report; by default FOLDER/report.
        gantt: draws episodes of the folder, see `report.replays`; None: no Gantt charts.
        console: shows the summary and the main tables; None: nothing is shown.
        latex: whether to write tables/*.tex, too.

    Returns:
        The path of report.html.

    Raises:
        UserError: the results cannot be read, a file cannot be written, or it exists and no report wrote it.
    """
    results = load(folder)
    files = _Files(Path(out) if out is not None else results.folder / "report")
    files.claim(PAGE)
    content = list(sections(results, gantt))
    if console is not None:
        print_report(results, console, content)
    for named in (table for section in content for table in section.tables):
        files.table(named, latex)
    title = f"Report: {results.sweep}"
    made = [*summary.training_lines(results), *summary.manifest_lines(results)]
    config = results.manifest.get("config", {})
    opening = (five_lines(results, content), missing(results, content))
    text = page(title, *opening, content, made, config, files.figure)
    path = files.write(PAGE, text)
    files.remove_others()
    return path


@dataclass
class _Files:
    """The files of a report. `earlier`: those of earlier reports."""

    target: Path
    earlier: set[str] = field(init=False)
    written: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        listing = self.target / LISTING
        lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
        self.earlier = {name for name in lines if LISTABLE.fullmatch(name)}

    def claim(self, name: str) -> Path:
        """The path of a file, which is listed from now on."""
        path = self.target / name
        if name not in self.earlier and name not in self.written:
            if path.exists():
                raise UserError(f"{path}: not written by an earlier report; move it away")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with (self.target / LISTING).open("a", encoding="utf-8") as listing:
                    listing.write(f"{name}\n")
            except OSError as error:
                raise UserError(f"{path}: cannot be written ({error.strerror})") from None
        self.written[name] = path
        return path

    def write(self, name: str, text: str) -> Path:
        path = self.claim(name)
        _write_text(path, text)
        return path

    def table(self, named: NamedTable, latex: bool) -> None:
        for suffix, to_text in {"csv": render.to_csv, "tex": render.to_latex}.items():
            if suffix == "csv" or latex:
                self.write(f"tables/{named.name}.{suffix}", to_text(named.table))

    def figure(self, named: NamedFigure) -> Path | str:
        """The path of its SVG, or the reason why it cannot be drawn."""
        try:
            figure = draw.draw(named.chart) if isinstance(named.chart, Chart) else named.chart()
        except UserError as error:
            return f"Not drawn: {error}."
        path = self.claim(f"figures/{named.name}.svg")
        draw.save(figure, path)
        return path

    def remove_others(self) -> None:
        """Remove files of earlier reports that this one does not have."""
        for name in self.earlier - set(self.written):
            (self.target / name).unlink(missing_ok=True)
        _write_text(self.target / LISTING, "".join(f"{name}\n" for name in self.written))


def _write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda p: p.write_text(text, encoding="utf-8"))
