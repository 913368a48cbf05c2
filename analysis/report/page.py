"""A report as one HTML page that needs nothing but itself: no file, no network, and no JavaScript to be read."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from ..figures import svg
from ..tables import render

MAX_BYTES = 5_000_000
"""Of the page. Figures that would make it larger are named instead."""
KEPT = 500_000
"""Of these for what is not a figure and stands further down."""
_HERE = Path(__file__).parent
STYLE = _HERE / "page.css"
SCRIPT = _HERE / "page.js"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What a browser may load for the page: what stands in it."""


class HtmlPage:
    """Collects the parts of a page in their order; `text` is the page.

    Args:
        title: of the page.
        summary: heading -> sentences, on top.
        made: what made the numbers, at the end.
        config: of the sweep, folded below.
    """

    def __init__(
        self, title: str, summary: Mapping[str, Sequence[str]], made: Sequence[str], config: Mapping[str, Any]
    ) -> None:
        self._title = title
        self._links = [("summary", "Summary")]
        cards = [f"<div><h3>{html.escape(heading)}</h3>{_list(lines)}</div>" for heading, lines in summary.items()]
        self._body = ['<section id="summary"><h2>Summary</h2><div class="cards">', *cards, "</div>"]
        told = html.escape(json.dumps(config, indent=1), quote=False)
        folded = f"<details><summary>Config</summary><pre>{told}</pre></details>"
        self._made = f'<section id="made"><h2>What made these numbers</h2>{_list(made)}{folded}</section>'
        self._figures = 0
        self._classes: dict[str, str] = {}
        self._grid_is_open = False
        self._size = sum(map(len, self._body)) + len(self._made)

    def section(self, name: str, title: str, best: Sequence[str], lines: Sequence[str], refused: Sequence[str]) -> None:
        """Begin a section: who is best, and, folded, every comparison and what was not compared."""
        self._close_grid()
        self._links.append((name, title))
        self._add(f'</section>\n<section id="{name}"><h2>{html.escape(title)}</h2>{_list(best)}')
        for what, said in (("Comparisons in words", lines), ("Not compared", refused)):
            if said:
                self._add(f"<details><summary>{what} ({len(said)})</summary>{_list(said)}</details>")

    def table(self, name: str, title: str, table: pd.DataFrame, how: str) -> None:
        """Add a table, with its CSV to be saved."""
        self._close_grid()
        csv = quote(render.to_csv(table), safe=" ,:;()=@")
        self._add(
            f'<h3 id="{name}">{html.escape(title)}</h3><div class="table" tabindex="0">{render.to_html(table)}</div>'
            f"<details><summary>How to read it</summary><p>{html.escape(how[0].upper() + how[1:])}</p></details>"
            f'<p class="files"><a download="{name}.csv" href="data:text/csv;charset=utf-8,{csv}">Save as CSV</a></p>'
        )

    def figure(self, name: str, title: str, image: str, fixed: bool = False, wide: bool = False) -> None:
        """Add a figure, an SVG of matplotlib; `fixed` keeps its colours in every theme, `wide` gives it a whole row."""
        drawn = svg.classed(svg.inline(image, f"f{self._figures}", title, themed=not fixed), self._classes)
        if self._size + len(drawn.encode()) > MAX_BYTES - KEPT:
            self.note(title, f"Left out to keep this page small: see figures/{name}.svg of the report's folder.")
            return
        self._figures += 1
        classes = " ".join(["fixed"] * fixed + ["wide"] * wide)
        self._open_grid()
        self._add(
            f'<figure id="{name}" class="{classes}">{drawn}<figcaption>{html.escape(title)}</figcaption></figure>'
        )

    def note(self, title: str, text: str) -> None:
        """Say why a figure is not there."""
        self._open_grid()
        self._add(f'<p class="note"><b>{html.escape(title)}.</b> {html.escape(text)}</p>')

    def text(self) -> str:
        """The whole page."""
        self._close_grid()
        rules = svg.rules(self._classes)
        light, dark = (svg.palette(svg.colours(rules), dark=dark) for dark in (False, True))
        drawn = f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{svg.EVERYWHERE}{rules}"
        links = [f'<a href="#{name}">{html.escape(text)}</a>' for name, text in [*self._links, ("made", "Manifest")]]
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">',
                f"<title>{html.escape(self._title)}</title>",
                f"<style>\n{STYLE.read_text(encoding='utf-8')}{drawn}</style>\n</head>\n<body>",
                f"<header><h1>{html.escape(self._title)}</h1></header>\n<nav>{''.join(links)}</nav>\n<main>",
                *self._body,
                f"</section>\n{self._made}\n</main>",
                f"<script>\n{SCRIPT.read_text(encoding='utf-8')}</script>\n</body>\n</html>\n",
            ]
        )

    def _add(self, part: str) -> None:
        self._body.append(part)
        self._size += len(part.encode())

    def _open_grid(self) -> None:
        if not self._grid_is_open:
            self._add('<div class="figures">')
        self._grid_is_open = True

    def _close_grid(self) -> None:
        if self._grid_is_open:
            self._add("</div>")
        self._grid_is_open = False


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>" if lines else ""
