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
_ID = re.compile(r'\bid="|(?:xlink:)?href="#|url\(#')
_COORDINATES = re.compile(r' (?:d|x|y)="[^"]*"')
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
    body = _TAG.sub(lambda tag: _tag(tag.group(), name, themed), svg[start:])
    body = re.sub(r">\s+<(?!/?tspan|/text)", "><", body)
    return f'<svg {frame} role="img" aria-label="{html.escape(title)}">{body.strip()}'


def _tag(tag: str, name: str, themed: bool) -> str:
    tag = re.sub(r"\s+", " ", tag)
    tag = _COORDINATES.sub(lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found.group()), tag)
    tag = _ID.sub(lambda found: found.group().replace("xlink:", "") + f"{name}-", tag)
    if themed:
        tag = _STYLE.sub(lambda found: _HEX.sub(r"var(--c\1)", found.group()), tag)
    return tag


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
