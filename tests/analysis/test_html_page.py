"""The page of a report by itself: it needs nothing, and what it is given stands in it as text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from matplotlib.figure import Figure
from rllib_scale_analysis.figures import evaluation as figures
from rllib_scale_analysis.figures import svg
from rllib_scale_analysis.report import page as html_page
from rllib_scale_analysis.report.page import HtmlPage
from rllib_scale_analysis.tables import render

from parsed_html import Parsed


@pytest.fixture
def image(tmp_path: Path) -> str:
    figure = Figure()
    figure.subplots().plot([1, 2], color="#d55e00")
    figures.save(figure, tmp_path / "f.svg")
    return (tmp_path / "f.svg").read_text()


NASTY = "<b>&\"'</b>"
TABLE = pd.DataFrame([{"variant": NASTY, "completed": 8.367, "completed_low": 7.9, "completed_high": 8.844}])


def a_page(image: str) -> HtmlPage:
    page = HtmlPage(NASTY, {NASTY: [NASTY, "second"]}, [NASTY], {NASTY: 1})
    page.section("one", NASTY, [NASTY], [NASTY], [NASTY])
    page.table("t", NASTY, TABLE, NASTY)
    page.figure("f", NASTY, image)
    page.note(NASTY, NASTY)
    page.section("two", "Second", [], [], [])
    page.figure("g", "Fixed", image, fixed=True, wide=True)
    return page


def test_what_it_is_given_stands_there_as_text(image: str) -> None:
    parsed = Parsed(a_page(image).text())
    assert "".join(parsed.within("title")) == NASTY
    assert "".join(parsed.within("h1")) == NASTY
    assert parsed.within("td") == [NASTY, "8.37 ", "[7.90, 8.84]"]
    assert parsed.within("figcaption") == [NASTY, "Fixed"]
    assert {text for text in parsed.within("li")} == {NASTY, "second"}
    assert json.loads("".join(parsed.within("pre"))) == {NASTY: 1}
    assert parsed.within("nav") == ["Summary", NASTY, "Second", "Manifest"]
    ids = [attributes["id"] for tag, attributes in parsed.attributes if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in parsed.attributes if tag == "a"}
    assert {link[1:] for link in links if link and link.startswith("#")} <= set(ids)


def test_it_loads_nothing(image: str) -> None:
    text = a_page(image).text()
    for tag, attributes in Parsed(text).attributes:
        assert tag not in ("link", "iframe", "object"), tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text


def test_the_csv_of_a_table_can_be_saved_from_the_page(image: str) -> None:
    links = [a for tag, a in Parsed(a_page(image).text()).attributes if tag == "a" and "download" in a]
    assert [link["download"] for link in links] == ["t.csv"]
    content = unquote(str(links[0]["href"]).split(",", 1)[1])
    assert content == render.to_csv(TABLE)


def test_both_themes_define_the_colours_of_the_figures_and_fixed_ones_keep_theirs(image: str) -> None:
    text = a_page(image).text()
    assert text.count("--cd55e00:") == 2
    rules = dict(re.findall(r"\.(s\d+)\{([^}]*)\}", text))
    figures_of_page = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    themed, fixed = (" ".join(rules[name] for name in re.findall(r'class="(s\d+)"', one)) for one in figures_of_page)
    assert "stroke:var(--cd55e00)" in themed
    assert "#d55e00" not in themed
    assert "stroke:#d55e00" in fixed
    assert 'class="fixed wide"' in figures_of_page[1]


def test_a_figure_too_many_is_named_instead(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_page, "MAX_BYTES", html_page.KEPT + 3 * len(svg.inline(image, "f", "t")))
    page = HtmlPage("t", {}, [], {})
    page.section("one", "One", [], [], [])
    for number in range(5):
        page.figure(f"f{number}", f"Figure {number}", image)
    text = page.text()
    assert len(text.encode()) < html_page.MAX_BYTES
    assert 2 <= text.count("<figure") < 5
    assert "<b>Figure 4.</b> Left out to keep this page small: see figures/f4.svg" in text
