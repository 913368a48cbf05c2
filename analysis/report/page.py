"""A report as one HTML page without other files, network access or JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from ..rows import setting_label
from ..tables import render
from .sections import NamedFigure, NamedTable, Section, glance

MAX_FIGURES_BYTES = 12_000_000
"""Size of all figures of a page. Further ones are named, with their file."""
_HERE = Path(__file__).parent
OPEN_TABLES = ("table3",)
"""Tables that are open in the first setting; others are folded."""

Drawn = Callable[[NamedFigure], Path | str]


class _Parts:
    """Tables, figures and sections as the template takes them."""

    def __init__(self, draw: Drawn) -> None:
        self._draw, self._size = draw, 0

    def table(self, named: NamedTable, folded: bool) -> dict[str, Any]:
        shown = {"name": named.name, "title": named.title, "how": named.how, "html": render.to_html(named.shown)}
        return shown | {"folded": folded or not named.name.startswith(OPEN_TABLES)}

    def figure(self, named: NamedFigure) -> dict[str, Any]:
        path = self._draw(named)
        if isinstance(path, str):
            return {"title": named.title, "note": path}
        image = quote(" ".join(path.read_text(encoding="utf-8").split()), safe=" =:/,;()!*$@?")
        if self._size + len(image) > MAX_FIGURES_BYTES:
            left_out = f"Left out to keep this page small: see figures/{path.name} of the report's folder."
            return {"title": named.title, "note": left_out}
        self._size += len(image)
        classes = " ".join(["fixed"] * named.fixed + ["wide"] * named.wide)
        return {"name": named.name, "title": named.title, "svg": image, "classes": classes}

    def section(self, section: Section, folded: bool) -> dict[str, Any]:
        figures = [self.figure(item) for item in section.items if isinstance(item, NamedFigure)]
        tables = [self.table(item, folded) for item in section.tables]
        words = {name: getattr(section, name) for name in ("name", "title", "note", "best", "refusals")}
        return words | {"figures": figures, "tables": tables, "folded": folded}


def page(
    title: str,
    five: Sequence[str],
    missing: Sequence[str],
    sections: Sequence[Section],
    made: Sequence[str],
    config: Mapping[str, Any],
    draw: Drawn,
) -> str:
    """The whole page. It opens with the figures of `glance`.

    Args:
        title: of the page.
        five: lines below these figures, see `overview.five_lines`.
        missing: lines below these, see `overview.missing`.
        sections: of the report; settings after the first are folded.
        made: lines on the origin of the numbers, at the end.
        config: of the sweep, folded below.
        draw: writes a figure as SVG and returns its path, or the reason why it cannot be drawn.
    """
    parts = _Parts(draw)
    opening = [parts.figure(named) for named in glance(sections)]
    first = next((section for section in sections if any(section.setting)), None)
    bodies = [parts.section(one, any(one.setting) and one is not first) for one in sections]
    every = [one.setting for one in sections if any(one.setting)]
    links = {one.name: setting_label(one.setting, every) if any(one.setting) else one.title for one in sections}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True)
    return environment.get_template("page.html").render(
        title=title,
        glance=opening,
        five=five,
        missing=missing,
        links=links,
        sections=bodies,
        made=made,
        config=json.dumps(config, indent=1),
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        js=(_HERE / "page.js").read_text(encoding="utf-8"),
    )
