"""SVG figures of matplotlib made fit for a page: small, with ids of their own, in colours that follow its theme."""

from __future__ import annotations

import colorsys
import html
import re
from collections.abc import Iterable

import matplotlib as mpl

_HEX = re.compile(r"#([0-9a-f]{6})\b")
_TAG = re.compile(r"<[^>]+>")
_STYLE = re.compile(r'style="[^"]*"')
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(?:xlink:)?(href="#|url\(#)([^")]*)')
_COORDINATES = re.compile(r' (?:d|x|y|transform)="[^"]*"')
_FONT = re.compile(r" ?font-family:[^;\"]*;?")
_NO_TURN = re.compile(r' transform="rotate\(-0 [^"]*"')
NAMED = "task-"
"""How an id begins that is kept though nothing in the figure refers to it: a bar of a Gantt chart."""
DARK_PAPER, DARK_INK = 0.115, 0.92
"""Lightness of white and of black in the dark theme."""
LEAST_CONTRAST = 3.5
"""Of a colour with the paper of the dark theme, as WCAG 2 defines it."""
LARGEST = 1.45
"""Pixels that a point of the figure has at most: its text does not grow out of proportion."""


def inline(svg: str, name: str, title: str, themed: bool = True) -> str:
    """The figure as an <svg> element for a page.

    Args:
        svg: as matplotlib writes it, text as text.
        name: set before every id, so that figures of one page do not mix theirs up; letters, digits, "." and "-".
        title: what it shows, read out in its place.
        themed: whether its colours become the variables that `palette` defines.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<title>.*?</title>", "", svg, flags=re.DOTALL)
    start = svg.index(">") + 1
    view = re.search(r'viewBox="([\d. ]*)"', svg[:start])
    box = view.group(1) if view else "0 0 1 1"
    frame = f'viewBox="{box}" style="max-width:{float(box.split()[2]) * LARGEST:.0f}px"'
    used = {found.group(2) for found in _REFERENCE.finditer(svg)}
    body = _TAG.sub(lambda tag: _tag(tag.group(), name, used, themed), svg[start:])
    body = re.sub(r">\s+<(?!/?tspan|/text)", "><", body)
    return f'<svg {frame} role="img" aria-label="{html.escape(title)}">{body.strip()}'


def _tag(tag: str, name: str, used: set[str], themed: bool) -> str:
    def id_of_page(found: re.Match[str]) -> str:
        own = found.group(1)
        return f' id="{name}-{own}"' if own in used or own.startswith(NAMED) else ""

    tag = _NO_TURN.sub("", re.sub(r"\s+", " ", tag))
    tag = _COORDINATES.sub(lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found.group()), tag)
    tag = _REFERENCE.sub(rf"\g<1>{name}-\g<2>", _ID.sub(id_of_page, tag))
    return _STYLE.sub(lambda found: _style(found.group(), themed), tag)


def _style(text: str, themed: bool) -> str:
    text = re.sub(r"([:;]) ", r"\1", _FONT.sub("", text))
    return _HEX.sub(r"var(--c\1)", text) if themed else text


def colours(svg: str) -> set[str]:
    """The colours of an `inline` figure that a theme sets, as six hexadecimal digits."""
    return set(re.findall(r"var\(--c([0-9a-f]{6})\)", svg))


def palette(used: Iterable[str], dark: bool) -> str:
    """CSS declarations of the colours of a theme."""
    return "".join(f"--c{colour}:{dark_colour(colour) if dark else '#' + colour};" for colour in sorted(used))


def dark_colour(colour: str) -> str:
    """What stands for a colour on dark paper: greys turned over, others made lighter until they can be seen.

    >>> dark_colour("ffffff"), dark_colour("000000"), dark_colour("e69f00")
    ('#1d1d1d', '#ebebeb', '#e69f00')
    """
    red, green, blue = mpl.colors.to_rgb(f"#{colour}")
    if max(red, green, blue) - min(red, green, blue) < 0.02:
        level = DARK_INK + (red + green + blue) / 3 * (DARK_PAPER - DARK_INK)
        return str(mpl.colors.to_hex((level, level, level)))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    paper = _luminance((DARK_PAPER,) * 3)
    while (_luminance((red, green, blue)) + 0.05) / (paper + 0.05) < LEAST_CONTRAST and lightness < 1:
        lightness = min(1.0, lightness + 0.01)
        red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
    return str(mpl.colors.to_hex((red, green, blue)))


def _luminance(rgb: tuple[float, ...]) -> float:
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
