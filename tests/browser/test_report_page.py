"""The report in a browser: it loads alone and without an error, and can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, expect
from rllib_scale_analysis.report.write import write_report

from artificial_results import artificial_episodes, artificial_features, artificial_training, write_folder
from browser_page import faults

pytestmark = pytest.mark.browser

Theme = Literal["light", "dark"]
USED = "a, summary, th, .table"
OPEN = "document.querySelectorAll('details').forEach((one) => (one.open = true))"
TABLE3 = "#table3-paper-none-argmax-n16"
FOLDED = "#table3-steady-0\\.7-feasible-argmax-n16"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of several settings with everything that a report can hold but schedules."""
    rows = artificial_episodes(scales=(16, 48), methods=("scale", "crossattn", "ppo", "fastest-idle"), episodes=3)
    grid = [r | {"lambda_kl": 0.1, "cell": r["cell"] + "-grid"} for r in rows if r["method"] == "scale"]
    steady = [r | {"scenario": "steady-0.7", "mask": "feasible"} for r in rows]
    folder = tmp_path_factory.mktemp("artificial") / "r"
    write_folder(folder, [*rows, *grid, *steady], artificial_training(), artificial_features(scales=(16, 48)))
    return write_report(folder)


def check_layout(page: Page, report: Path, theme: Theme, width: int) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(report.as_uri())
    assert page.title() == "Report: artificial"
    first = page.locator("#summary figure img").first.bounding_box()
    assert first is not None
    assert first["y"] < 900, "a picture is in the first view"
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing is wider than the page"
    images = page.evaluate("[...document.images].map((one) => one.naturalWidth)")
    assert len(images) > 10
    assert min(images) > 100
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 384) == (theme == "dark")
    hidden = "[...document.querySelectorAll('.table')].filter((box) => box.scrollHeight > box.clientHeight + 2).length"
    assert page.evaluate(hidden) == 0, "no table hides rows in a box that scrolls"


def test_it_loads_alone_sorts_a_table_and_a_link_opens_what_is_folded(page: Page, report: Path) -> None:
    check_layout(page, report, "light", 1440)
    page.reload()
    table = page.locator(f"{TABLE3} + .table")
    frame = pd.read_csv(report.parent / "tables" / "table3-paper-none-argmax-n16.csv")
    heading = table.locator("th", has_text="completed tasks").first
    for descending in (True, False):
        heading.click()
        names = table.locator("tbody td:first-child").all_inner_texts()
        assert names == frame.sort_values("completed", ascending=not descending)["variant"].tolist()
    heading.focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    target = page.locator(FOLDED)
    assert not target.is_visible(), "other settings are folded"
    page.locator("nav a", has_text="steady-0.7").focus()
    page.keyboard.press("Enter")
    expect(page.locator("details.setting").first).to_have_attribute("open", "")
    page.goto(f"{report.as_uri()}{FOLDED}".replace("\\", ""))
    page.reload()
    target.wait_for(state="visible")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 720, 1440])
def test_every_theme_and_width_without_a_grave_fault_of_accessibility(
    page: Page, report: Path, theme: Theme, width: int
) -> None:
    check_layout(page, report, theme, width)
    assert faults(page) == []


@pytest.mark.slow
def test_without_javascript_words_and_tables_are_there(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert "Does learning beat the rule? Of " in page.locator("#summary").inner_text()
    assert page.locator("table tbody td").first.is_visible()
    assert page.locator("figure img").first.is_visible()
    context.close()


@pytest.mark.slow
def test_the_keyboard_reaches_all_that_can_be_used(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    seen = f"[...document.querySelectorAll('{USED}')].filter((one) => one.checkVisibility())"
    wanted = page.evaluate(f"{seen}.length")
    page.evaluate("addEventListener('focusin', (event) => (event.target.dataset.reached = ''))")
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
    missed = f"{seen}.filter((one) => !('reached' in one.dataset)).map((one) => one.outerHTML.slice(0, 100))"
    assert wanted > 20
    assert page.evaluate(missed) == []
