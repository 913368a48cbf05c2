"""Figures as parts of a page: ids of their own, colours as variables, positions kept."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rllib_scale_analysis.figures import draw, svg

from parsed_html import Parsed


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2, 3], [3, 1, 2], "o-", color="#d55e00")
    axes.set_title("<title> & 'text'")
    bars = axes.barh([0, 1], [1, 2])
    for bar in bars:
        bar.set_gid("task-1")
    path = tmp_path_factory.mktemp("svg") / "f.svg"
    draw.save(figure, path)
    return path.read_text()


def ids(text: str) -> list[str]:
    return [str(attributes["id"]) for _, attributes in Parsed(text).attributes if "id" in attributes]


def test_text_stays_and_what_a_page_has_once_is_dropped(image: str) -> None:
    drawn = svg.inline(image, "f0", "A & B", {})
    assert "&lt;title&gt; &amp; 'text'" in drawn
    assert 'aria-label="A &amp; B"' in drawn
    for tag in ("<metadata", "<style", "<title", "<!--", "<?xml", "xmlns:ns"):
        assert tag not in drawn


def test_ids_of_two_figures_are_apart_and_references_are_met(image: str) -> None:
    first, second = (svg.inline(image, name, "t", {}) for name in ("f0", "f1"))
    assert not set(ids(first)) & set(ids(second))
    classes: dict[str, str] = {}
    drawn = svg.inline(image, "f0", "t", classes)
    used = {a["href"] for _, a in Parsed(drawn).attributes if "href" in a}
    used |= {f"#{part.split(')')[0]}" for part in svg.rules(classes).split("url(#")[1:]}
    assert used
    assert {str(link)[1:] for link in used} <= set(ids(drawn))


def test_bars_of_a_schedule_are_a_class(image: str) -> None:
    drawn = ElementTree.fromstring(svg.inline(image, "f0", "t", {}))
    marked = [e for e in drawn.iter() if "task" in e.attrib.get("class", "").split()]
    assert len(marked) == 2


def test_colours_are_variables_where_a_theme_sets_them(image: str) -> None:
    themed, fixed = {}, {}
    svg.inline(image, "f0", "t", themed)
    svg.inline(image, "f0", "t", fixed, themed=False)
    assert "d55e00" in svg.colours(themed)
    assert svg.colours(fixed) == set()
    assert "#d55e00" in svg.rules(fixed)
    for dark in (False, True):
        declared = svg.palette(svg.colours(themed), dark)
        assert all(f"--c{colour}:#" in declared for colour in svg.colours(themed))
    assert "--cd55e00:#d55e00;" in svg.palette(["d55e00"], dark=False)


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20))
def test_positions_are_kept_to_a_tenth(numbers: list[float]) -> None:
    path = " ".join(f"L {number:.6f}" for number in numbers)
    words = svg._rounded(path).split()
    assert words[::2] == ["L"] * len(numbers)
    np.testing.assert_allclose([float(word) for word in words[1::2]], numbers, atol=0.051, rtol=1e-5)


def test_a_figure_is_smaller_than_matplotlibs(image: str) -> None:
    assert len(svg.inline(image, "f0", "t", {})) < 0.8 * len(image)
