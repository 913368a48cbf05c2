"""SVG figures of matplotlib as parts of a page: ids of their own, and colours that are variables of its style."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Mapping
from xml.etree import ElementTree

import matplotlib as mpl

NAMED = "task-"
"""How the id of an element begins whose class becomes "task": a bar of a Gantt chart."""
EVERYWHERE = "svg *{stroke-linejoin:round;stroke-linecap:butt}"
"""What matplotlib declares in every figure."""
DARK_PAPER, DARK_INK = 0.115, 0.92
"""Lightness of white and of black in the dark theme."""
LEAST_CONTRAST = 3.5
"""Of a colour with the paper of the dark theme, as WCAG 2 defines it."""
LARGEST = 1.45
"""Pixels that a point of the figure has at most: its text does not grow out of proportion."""
_DROPPED = ("metadata", "style", "title")
_KEPT_WHOLE = ("d", "style", "id", "href", "clip-path")


def inline(svg: str, name: str, title: str, classes: dict[str, str], themed: bool = True) -> str:
    """The figure as an <svg> element for a page whose style holds EVERYWHERE and the `rules` of `classes`.

    Args:
        svg: as matplotlib writes it, text as text.
        name: set before every id, so that figures of one page do not mix theirs up; letters, digits, "." and "-".
        title: what it shows, read out in its place.
        classes: style -> its class; takes in new ones.
        themed: whether its colours become the variables that `palette` defines.
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in _DROPPED:
                parent.remove(child)
    ids: dict[str, str] = {}
    for element in root.iter():
        element.tag = _local(element.tag)
        old = {_local(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update(_attributes(old, name, ids, classes, themed))
        if element.tag != "text" and not (element.text or "").strip():
            element.text = None
        element.tail = None
    box = root.attrib["viewBox"]
    root.attrib.clear()
    frame = {"viewBox": box, "style": f"max-width:{float(box.split()[2]) * LARGEST:.0f}px"}
    root.attrib.update(frame | {"role": "img", "aria-label": title})
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _attributes(
    old: Mapping[str, str], name: str, ids: dict[str, str], classes: dict[str, str], themed: bool
) -> dict[str, str]:
    def of_page(own: str) -> str:
        return ids.setdefault(own, f"{name}-{len(ids)}")

    new = {key: _rounded(value) for key, value in old.items() if key not in _KEPT_WHOLE}
    declared = old.get("style", "")
    if "clip-path" in old:
        declared += f";clip-path:url(#{of_page(old['clip-path'][5:-1])})"
    style = _declarations(declared, themed)
    names = [classes.setdefault(style, f"s{len(classes)}")] if style else []
    if old.get("id", "").startswith(NAMED):
        names.append("task")
    elif "id" in old:
        new["id"] = of_page(old["id"])
    if names:
        new["class"] = " ".join(names)
    if "href" in old:
        new["href"] = f"#{of_page(old['href'][1:])}" if old["href"].startswith("#") else old["href"]
    if "d" in old:
        new["d"] = _rounded(old["d"])
    return new


def _declarations(style: str, themed: bool) -> str:
    """A style without fonts, its colours as variables."""
    pairs = [part.split(":", 1) for part in style.split(";") if ":" in part]
    kept = []
    for key, value in ((key.strip(), value.strip()) for key, value in pairs):
        if key == "font-family":
            continue
        if themed and value.startswith("#") and len(value) == 7:
            value = f"var(--c{value[1:]})"
        kept.append(f"{key}:{value}")
    return ";".join(kept)


def _rounded(text: str) -> str:
    """Numbers between blanks to a tenth; other words stay.

    >>> _rounded("M 10 20.04 L -0.52 3.999 z")
    'M 10 20 L -0.5 4 z'
    """
    return " ".join(_number(word) for word in text.split())


def _number(word: str) -> str:
    try:
        return f"{round(float(word), 1):g}"
    except ValueError:
        return word


def rules(classes: Mapping[str, str]) -> str:
    """CSS of the classes that `inline` has named."""
    return "".join(f".{name}{{{style}}}" for style, name in classes.items())


def colours(classes: Iterable[str]) -> set[str]:
    """The colours that a theme sets, as six hexadecimal digits, in the styles of `classes`."""
    return {part[:6] for style in classes for part in style.split("var(--c")[1:]}


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
