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

_HERE = Path(__file__).parent
Drawn = Callable[[NamedFigure], Path | str]


def _table(named: NamedTable, opened: str) -> dict[str, Any]:
    """Content of a table on the page; it is open if it is of the kind `opened`."""
    shown = {"name": named.name, "title": named.title, "how": named.how, "html": render.to_html(named.shown)}
    return shown | {"folded": not named.name.startswith(f"{opened}-")}


def _figure(named: NamedFigure, draw: Drawn) -> dict[str, Any]:
    path = draw(named)
    if isinstance(path, str):
        return {"title": named.title, "note": path}
    image = quote(" ".join(path.read_text(encoding="utf-8").split()), safe=" =:/,;()!*$@?")
    classes = " ".join(["fixed"] * named.fixed + ["wide"] * named.wide)
    return {"name": named.name, "title": named.title, "svg": image, "classes": classes}


def _section(section: Section, draw: Drawn, folded: bool, sweep: str) -> dict[str, Any]:
    figures = [_figure(item, draw) for item in section.items if isinstance(item, NamedFigure)]
    opened = "none" if folded else section.main_kind(sweep)
    tables = [_table(item, opened) for item in section.tables]
    words = {name: getattr(section, name) for name in ("name", "title", "note", "best")}
    return words | {"figures": figures, "tables": tables, "folded": folded}


def page(
    title: str,
    five: Sequence[str],
    steps: Sequence[tuple[str, str]],
    remarks: Mapping[str, Sequence[str]],
    sections: Sequence[Section],
    made: Sequence[str],
    config: Mapping[str, Any],
    draw: Drawn,
) -> str:
    """The whole page. It opens with the first of the lines and the figures of `glance`.

    Args:
        title: of the page.
        five: the verdict, and lines below these figures, see `overview.five_lines`.
        steps: what to do next, see `overview.next_steps`.
        remarks: headings and lines below these, see `overview.remarks`.
        sections: of the report; settings after the first are folded.
        made: lines on the origin of the numbers, at the end.
        config: of the sweep, folded below.
        draw: writes a figure as SVG and returns its path, or the reason why it cannot be drawn.
    """
    opening = [_figure(named, draw) for named in glance(sections)]
    first = next((section for section in sections if any(section.setting)), None)
    sweep = str(config.get("name", ""))
    bodies = [_section(one, draw, any(one.setting) and one is not first, sweep) for one in sections]
    every = [one.setting for one in sections if any(one.setting)]
    links = {one.name: setting_label(one.setting, every) if any(one.setting) else one.title for one in sections}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True)
    return environment.get_template("page.html").render(
        title=title,
        glance=opening,
        verdict=five[0],
        five=five[1:],
        steps=steps,
        remarks=remarks,
        links=links,
        sections=bodies,
        made=made,
        config=json.dumps(config, indent=1),
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        js=(_HERE / "page.js").read_text(encoding="utf-8"),
    )
