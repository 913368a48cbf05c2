"""SVG figures of matplotlib made fit for a page: small, with ids of their own, in colours that follow its theme."""

from __future__ import annotations

import colorsys
import html
import re
from collections.abc import Iterable, Mapping

import matplotlib as mpl

_HEX = re.compile(r"#([0-9a-f]{6})\b")
_TAG = re.compile(r"<[^>]+>")
_STYLE = re.compile(r' style="([^"]*)"')
_CLIP = re.compile(r' clip-path="([^"]*)"')
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(?:xlink:)?(href="#|url\(#)([^")]*)')
_PATH = re.compile(r' d="([^"]*)"')
_STEP = re.compile(r"([MLQCz])([^MLQCz]*)")
_POSITION = re.compile(r' ([xy])="(-?\d+\.\d+)"')
_TRANSFORM = re.compile(r' transform="[^"]*"')
_FONT = re.compile(r" ?font-family:[^;\"]*;?")
_NO_TURN = re.compile(r' transform="rotate\(-0 [^"]*"')
_DROPPED = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<title>.*?</title>|<style.*?</style>", re.DOTALL)
NAMED = "task-"
"""How the id of an element begins whose class becomes "task": a bar of a Gantt chart."""
EVERYWHERE = "svg *{stroke-linejoin:round;stroke-linecap:butt}"
"""What matplotlib declares in every figure."""
UNITS = 10
"""Coordinates are whole numbers of this part of a point."""
DARK_PAPER, DARK_INK = 0.115, 0.92
"""Lightness of white and of black in the dark theme."""
LEAST_CONTRAST = 3.5
"""Of a colour with the paper of the dark theme, as WCAG 2 defines it."""
LARGEST = 1.45
"""Pixels that a point of the figure has at most: its text does not grow out of proportion."""


def inline(svg: str, name: str, title: str, themed: bool = True) -> str:
    """The figure as an <svg> element for a page whose style holds EVERYWHERE.

    Args:
        svg: as matplotlib writes it, text as text.
        name: set before every id, so that figures of one page do not mix theirs up; letters, digits, "." and "-".
        title: what it shows, read out in its place.
        themed: whether its colours become the variables that `palette` defines.
    """
    svg = _DROPPED.sub("", svg[svg.index("<svg") :])
    start = svg.index(">") + 1
    view = re.search(r'viewBox="([\d. ]*)"', svg[:start])
    box = view.group(1) if view else "0 0 1 1"
    frame = f'viewBox="{box}" style="max-width:{float(box.split()[2]) * LARGEST:.0f}px"'
    used = dict.fromkeys(found.group(2) for found in _REFERENCE.finditer(svg))
    ids = {own: f"{name}-{number}" for number, own in enumerate(used)}
    body = _TAG.sub(lambda tag: _tag(tag.group(), ids, themed), svg[start:])
    body = re.sub(r">\s+<(?!/?tspan|/text)", "><", body).strip()
    return f'<svg {frame} role="img" aria-label="{html.escape(title)}">{_without_bare_groups(body)}'


def _tag(tag: str, ids: Mapping[str, str], themed: bool) -> str:
    def id_of_page(found: re.Match[str]) -> str:
        own = found.group(1)
        return f' id="{ids[own]}"' if own in ids else ' class="task"' if own.startswith(NAMED) else ""

    tag = _NO_TURN.sub("", re.sub(r"\s+", " ", tag))
    tag = _PATH.sub(lambda found: f' d="{_short_path(found.group(1))}"', tag)
    tag = _POSITION.sub(lambda found: f' {found.group(1)}="{_number(round(float(found.group(2)) * UNITS))}"', tag)
    tag = _TRANSFORM.sub(lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found.group()), tag)
    tag = _REFERENCE.sub(lambda found: f"{found.group(1)}{ids[found.group(2)]}", _ID.sub(id_of_page, tag))
    if (style := _STYLE.search(tag)) and (clip := _CLIP.search(tag)):
        tag = _CLIP.sub("", tag).replace(style.group(), f' style="{style.group(1)}; clip-path:{clip.group(1)}"')
    return _STYLE.sub(lambda found: _style(found.group(), themed), tag)


def _style(text: str, themed: bool) -> str:
    text = re.sub(r"([:;]) ", r"\1", _FONT.sub("", text))
    return _HEX.sub(r"var(--c\1)", text) if themed else text


def _number(units: int) -> str:
    """A coordinate as short as can be: 12 is "1.2", -5 is "-.5"."""
    return f"{units / UNITS:g}".replace("0.", ".", 1) if abs(units) < UNITS else f"{units / UNITS:.7g}"


def _short_path(path: str) -> str:
    """The path from point to point, each a step from the one before; errors of rounding do not add up.

    >>> _short_path("M 10 20.04 L 10.52 20.06 L 12 20 z")
    'M10 20l.5 .1 1.5-.1z'
    """
    out: list[str] = []
    here = first = (0, 0)
    before = ""
    for command, text in _STEP.findall(path):
        if command == "z":
            out.append("z")
            here, before = first, "z"
            continue
        numbers = [round(float(number) * UNITS) for number in text.split()]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        if command == "M":
            here = first = points[0]
            steps = points
        else:
            steps = [(x - here[0], y - here[1]) for x, y in points]
            here = points[-1]
        said = " ".join(_number(number) for step in steps for number in step).replace(" -", "-")
        sign = command if command == "M" else command.lower()
        joined = sign == before and not said.startswith("-")
        out.append(f"{' ' if joined else '' if sign == before else sign}{said}")
        before = sign
    return "".join(out)


def _without_bare_groups(body: str) -> str:
    """The same elements without the groups that say nothing."""
    kept: list[bool] = []

    def of_group(found: re.Match[str]) -> str:
        tag = found.group()
        if tag != "</g>":
            kept.append(tag != "<g>")
            return tag if kept[-1] else ""
        return tag if kept.pop() else ""

    return re.sub(r"<g\b[^>]*[^/]>|<g>|</g>", of_group, body)


def classed(figure: str, classes: dict[str, str]) -> str:
    """An `inline` figure whose styles are classes of the page; `classes`, style -> its name, takes in the new ones."""

    def named(found: re.Match[str]) -> str:
        return f' class="{classes.setdefault(found.group(1), f"s{len(classes)}")}"'

    head, body = figure[: figure.index(">")], figure[figure.index(">") :]
    return head + _STYLE.sub(named, body)


def rules(classes: Mapping[str, str]) -> str:
    """CSS of the classes that `classed` has named."""
    return "".join(f".{name}{{{style}}}" for style, name in classes.items())


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
