"""The page of a report by itself: it needs nothing, and what it is given stands in it as text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from rllib_scale_analysis.figures import draw
from rllib_scale_analysis.figures.chart import Chart, Marks, Panel
from rllib_scale_analysis.figures.style import Look
from rllib_scale_analysis.report import page as report_page
from rllib_scale_analysis.report.page import page
from rllib_scale_analysis.report.sections import NamedFigure, NamedTable, Section
from rllib_scale_analysis.tables import render

from parsed_html import Parsed

NASTY = "<b>&\"'</b>"
TABLE = pd.DataFrame([{"variant": NASTY, "completed": 8.367, "completed_low": 7.9, "completed_high": 8.844}])
CHART = Chart([Panel([Marks([1, 2], [1, 2], Look("#d55e00", "o", "-"), NASTY)])], NASTY)


class Files:
    """Draws into a folder; a figure by the name "gone" cannot be drawn."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def draw(self, named: NamedFigure) -> Path | str:
        if named.name == "gone":
            return NASTY
        assert isinstance(named.chart, Chart)
        path = self.folder / f"{named.name}.svg"
        draw.save(draw.draw(named.chart), path)
        return path


@pytest.fixture
def text(tmp_path: Path) -> str:
    opening = [NamedFigure("glance", NASTY, CHART), NamedFigure("gone", NASTY, CHART)]
    items = [NamedTable("t", NASTY, TABLE, NASTY), NamedFigure("f", NASTY, CHART)]
    first = Section("one", NASTY, ("paper", "none", "argmax"), best=[NASTY], refusals=[NASTY])
    first.items = [*items]
    second = Section("two", "Second", ("deep", "none", "argmax"))
    second.items = [NamedFigure("g", "Fixed", CHART, fixed=True, wide=True)]
    words = {NASTY: [NASTY, "second"]}
    return page(NASTY, opening, [NASTY], words, [first, second], [NASTY], {NASTY: 1}, Files(tmp_path).draw)


def test_what_it_is_given_stands_there_as_text(text: str) -> None:
    parsed = Parsed(text)
    assert "".join(parsed.within("title")) == NASTY
    assert "".join(parsed.within("h1")) == NASTY
    assert parsed.within("td") == [NASTY, "8.37 ", "[7.90, 8.84]"]
    assert parsed.within("figcaption") == [NASTY, NASTY, "Fixed"]
    assert {line for line in parsed.within("li")} == {NASTY, "second"}
    assert json.loads("".join(parsed.within("pre"))) == {NASTY: 1}
    assert parsed.within("nav") == ["Summary", "paper", "deep", "Manifest"]
    assert {NASTY, "Second"} <= set(parsed.within("h2"))
    assert NASTY in parsed.within("p"), "why a figure is not there"
    ids = [attributes["id"] for tag, attributes in parsed.attributes if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in parsed.attributes if tag == "a"}
    assert {link[1:] for link in links if link and link.startswith("#")} <= set(ids)


def test_it_opens_with_pictures_and_folds_other_settings(text: str) -> None:
    assert text.index('id="glance"') < text.index(">All verdicts in words<") < text.index('id="f"')
    body = text[text.index("<main>") :]
    assert [part.split("<")[0].strip(">") for part in body.split('<details class="setting"><summary><h2')[1:]] == [
        "Second"
    ]


def test_it_loads_nothing(text: str) -> None:
    for tag, attributes in Parsed(text).attributes:
        assert tag not in ("link", "iframe", "object"), tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text


def test_the_csv_of_a_table_can_be_saved_from_the_page(text: str) -> None:
    links = [a for tag, a in Parsed(text).attributes if tag == "a" and "download" in a]
    assert [link["download"] for link in links] == ["t.csv"]
    content = unquote(str(links[0]["href"]).split(",", 1)[1])
    assert content == render.to_csv(TABLE)


def test_both_themes_define_the_colours_of_the_figures_and_fixed_ones_keep_theirs(text: str) -> None:
    assert text.count("--cd55e00:") == 2
    rules = dict(re.findall(r"\.(s\d+)\{([^}]*)\}", text))
    drawn = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    themed, fixed = (
        " ".join(rules[name] for name in re.findall(r'class="(s\d+)"', one)) for one in (drawn[0], drawn[-1])
    )
    assert "stroke:var(--cd55e00)" in themed
    assert "#d55e00" not in themed
    assert "stroke:#d55e00" in fixed
    assert 'class="fixed wide"' in drawn[-1]


def test_a_figure_too_many_is_named_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [NamedFigure(f"f{number}", f"Figure {number}", CHART) for number in range(5)]
    whole = page("t", figures[:1], [], {}, [], [], {}, Files(tmp_path).draw)
    size = len(re.findall(r"<svg.*?</svg>", whole, re.DOTALL)[0].encode())
    monkeypatch.setattr(report_page, "MAX_BYTES", report_page.KEPT + 3 * size)
    text = page("t", figures, [], {}, [], [], {}, Files(tmp_path).draw)
    assert len(text.encode()) < report_page.MAX_BYTES
    assert 2 <= text.count("<figure") < 5
    assert "<b>Figure 4.</b> Left out to keep this page small: see figures/f4.svg" in text
