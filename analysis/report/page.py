"""A report as one HTML page that needs nothing but itself: no file, no network, and no JavaScript to be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from ..figures import svg
from ..load import setting_label
from ..tables import render
from .sections import NamedFigure, NamedTable, Section

MAX_BYTES, KEPT = 5_000_000, 500_000
"""Of the page, and of that for what is no figure and stands further down. Figures beyond it are named instead."""
_HERE = Path(__file__).parent
OPEN_TABLES = ("table3",)
"""Of the first setting; others are folded."""

Drawn = Callable[[NamedFigure], Path | str]


class _Parts:
    """What the template shows of tables and figures."""

    def __init__(self, draw: Drawn) -> None:
        self._draw = draw
        self.classes: dict[str, str] = {}
        self.size, self._figures = 0, 0

    def table(self, named: NamedTable, folded: bool) -> dict[str, Any]:
        html, csv = render.to_html(named.table), quote(render.to_csv(named.table), safe=" ,:;()=@")
        self.size += len(html.encode()) + len(csv)
        shown = {"name": named.name, "title": named.title, "how": named.how, "html": html, "csv": csv}
        return shown | {"folded": folded or not named.name.startswith(OPEN_TABLES)}

    def figure(self, named: NamedFigure) -> dict[str, Any]:
        path = self._draw(named)
        if isinstance(path, str):
            return {"title": named.title, "note": path}
        image = path.with_suffix(".svg").read_text(encoding="utf-8")
        drawn = svg.inline(image, f"f{self._figures}", named.title, self.classes, themed=not named.fixed)
        if self.size + len(drawn.encode()) > MAX_BYTES - KEPT:
            left_out = f"Left out to keep this page small: see figures/{path.stem}.svg of the report's folder."
            return {"title": named.title, "note": left_out}
        self._figures += 1
        self.size += len(drawn.encode())
        classes = " ".join(["fixed"] * named.fixed + ["wide"] * named.wide)
        return {"name": named.name, "title": named.title, "svg": drawn, "classes": classes}

    def section(self, section: Section, folded: bool) -> dict[str, Any]:
        figures = [self.figure(item) for item in section.items if isinstance(item, NamedFigure)]
        tables = [self.table(item, folded) for item in section.tables]
        words = {name: getattr(section, name) for name in ("name", "title", "best", "refusals")}
        return words | {"figures": figures, "tables": tables, "folded": folded}


def page(
    title: str,
    glance: Sequence[NamedFigure],
    five: Sequence[str],
    words: Mapping[str, Sequence[str]],
    sections: Sequence[Section],
    made: Sequence[str],
    config: Mapping[str, Any],
    draw: Drawn,
) -> str:
    """The whole page.

    Args:
        title: of the page.
        glance: the figures that it opens with.
        five: the lines below them.
        words: heading -> sentences, folded below these.
        sections: of the report; those of settings but the first are folded.
        made: what made the numbers, at the end.
        config: of the sweep, folded below.
        draw: writes a figure's files and gives the path of one of them, or says why it cannot be drawn.
    """
    parts = _Parts(draw)
    shown = [parts.figure(named) for named in glance]
    first = next((section for section in sections if any(section.setting)), None)
    bodies = [parts.section(one, any(one.setting) and one is not first) for one in sections]
    every = [one.setting for one in sections if any(one.setting)]
    links = {one.name: setting_label(one.setting, every) if any(one.setting) else one.title for one in sections}
    used = svg.colours(parts.classes)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True)
    return environment.get_template("page.html").render(
        title=title,
        glance=shown,
        five=five,
        words=words,
        links=links,
        sections=bodies,
        made=made,
        config=json.dumps(config, indent=1),
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        js=(_HERE / "page.js").read_text(encoding="utf-8"),
        light=svg.palette(used, dark=False),
        dark=svg.palette(used, dark=True),
        rules=svg.EVERYWHERE + svg.rules(parts.classes),
    )
