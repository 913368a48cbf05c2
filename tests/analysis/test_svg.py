"""SVG figures made fit for a page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from analysis import figures, svg
from analysis.style import METHOD_STYLES


@pytest.fixture
def drawn(tmp_path: Path) -> str:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [0.123456, 0.654321], color="#332288", label="0.123456 & <more>", clip_on=True)
    axes.legend()
    figures.save(figure, tmp_path / "f.svg")
    return (tmp_path / "f.svg").read_text()


def elements(text: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter())


def test_it_is_one_element_with_its_title_and_as_many_parts(drawn: str) -> None:
    text = svg.inline(drawn, "fig", 'a "title" & more')
    root = elements(text)[0]
    assert root.get("aria-label") == 'a "title" & more'
    assert root.get("viewBox")
    paths = [e for e in elements(drawn) if e.tag.endswith("path")]
    assert len([e for e in elements(text) if e.tag.endswith("path")]) == len(paths) > 5
    assert len(text) < 0.9 * len(drawn)


def test_texts_stay_as_they_are_and_coordinates_are_short(drawn: str) -> None:
    text = svg.inline(drawn, "fig", "t")
    assert {e.text for e in elements(text) if e.tag.endswith("text")} == {
        e.text for e in elements(drawn) if e.tag.endswith("text")
    }
    assert "0.123456 &amp; &lt;more&gt;" in text
    assert not re.search(r'\bd="[^"]*\.\d{3}', text)


def test_ids_of_two_figures_do_not_meet_and_references_lead_to_ids(drawn: str) -> None:
    first, second = (svg.inline(drawn, name, "t") for name in ("one", "two"))
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    targets = set(re.findall(r'(?:href="#|url\(#)([^")]*)', first))
    assert targets
    assert targets <= ids[0]


def test_colours_follow_the_theme_unless_they_are_fixed(drawn: str) -> None:
    themed, fixed = svg.inline(drawn, "f", "t"), svg.inline(drawn, "f", "t", themed=False)
    assert "332288" in svg.colours(themed)
    assert "#332288" not in themed
    assert svg.colours(fixed) == set()
    assert "#332288" in fixed
    light, dark = (svg.palette(svg.colours(themed), dark=dark) for dark in (False, True))
    assert "--c332288:#332288;" in light
    assert set(re.findall(r"--c(\w+):", light)) == set(re.findall(r"--c(\w+):", dark)) == svg.colours(themed)


def contrast(first: str, second: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("method", METHOD_STYLES)
def test_every_method_is_seen_on_dark_paper(method: str) -> None:
    paper = svg.dark_colour("ffffff")
    assert contrast(svg.dark_colour(METHOD_STYLES[method][0][1:].lower()), paper) >= 3.3


def test_methods_stay_apart_on_dark_paper() -> None:
    dark = [svg.dark_colour(colour[1:].lower()) for colour, _ in METHOD_STYLES.values()]
    assert len(set(dark)) == len(dark)
