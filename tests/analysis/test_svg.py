"""SVG figures made fit for a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rllib_scale_analysis.figures import evaluation as figures
from rllib_scale_analysis.figures import svg
from rllib_scale_analysis.figures.style import METHOD_STYLES


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
    assert not re.search(r' (?:d|x|y)="[^"]*\.\d\d', text)


COORDINATE = st.floats(-1000, 1000).map(lambda x: round(x, 6))
POINT = st.tuples(COORDINATE, COORDINATE)


def absolute(path: str) -> list[tuple[float, float]]:
    """Every point of a path in the words of SVG, as a browser reads them."""
    points: list[tuple[float, float]] = []
    x = y = first_x = first_y = 0.0
    for command, text in re.findall(r"([MLCQlcqz])([^MLCQlcqz]*)", path):
        numbers = [float(number) for number in re.findall(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?", text)]
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        each = {"c": 3, "q": 2}.get(command.lower(), 1)
        for k in range(0, len(pairs), each):
            read = [(x + a, y + b) if command.islower() else (a, b) for a, b in pairs[k : k + each]]
            points += read
            x, y = read[-1]
        if command == "M":
            first_x, first_y = x, y
        elif command == "z":
            x, y = first_x, first_y
    return points


@given(
    st.lists(
        st.tuples(POINT, st.lists(st.tuples(st.sampled_from("LCQ"), POINT, POINT, POINT), max_size=5), st.booleans()),
        min_size=1,
        max_size=3,
    )
)
def test_a_path_keeps_its_points_to_a_tenth_of_a_point(parts: list[tuple[Any, list[Any], bool]]) -> None:
    said = []
    for begin, steps, closed in parts:
        said.append("M {!r} {!r}".format(*begin))
        for command, *points in steps:
            taken = points[: {"L": 1, "Q": 2, "C": 3}[command]]
            said.append(f"{command} " + " ".join(f"{x!r} {y!r}" for x, y in taken))
        said += ["z"] * closed
    path = " \n".join(said)
    found, expected = absolute(svg._short_path(path)), absolute(path)
    assert len(found) == len(expected)
    assert np.abs(np.array(found) - np.array(expected)).max() <= 0.0501


def test_bars_of_a_gantt_are_known_by_their_class_and_groups_that_say_nothing_are_gone(tmp_path: Path) -> None:
    figure = Figure()
    for bar in figure.subplots().barh([0, 1], [1, 2]):
        bar.set_gid("task-0-7")  # two charts of one workload name their bars alike
    figures.save(figure, tmp_path / "f.svg")
    found = elements(svg.inline((tmp_path / "f.svg").read_text(), "f", "t"))
    assert [[child.tag for child in e] for e in found if e.get("class") == "task"] == [["path"], ["path"]]
    ids = [e.get("id") for e in found if e.get("id")]
    assert len(ids) == len(set(ids))
    assert all(e.attrib for e in found if e.tag == "g")


def test_styles_as_classes_say_the_same(drawn: str) -> None:
    plain = svg.inline(drawn, "f", "t")
    classes: dict[str, str] = {}
    named = svg.classed(plain, classes)
    assert len(named) < len(plain)
    styles = {name: style for style, name in classes.items()}
    shown = [styles.get(e.get("class") or "") for e in elements(named)[1:]]
    assert shown == [e.get("style") for e in elements(plain)[1:]]
    assert svg.rules(classes).count("{") == len(classes)
    again = dict(classes)
    assert svg.classed(plain, again) == named
    assert again == classes


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
