"""The report in a browser: it loads alone and without an error, and shows what the results hold."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect
from rllib_scale_analysis import load
from rllib_scale_analysis.report.replays import chosen_episodes
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.tables.methods import table3

from artificial_results import artificial_episodes, artificial_features, artificial_training, write_folder
from browser_page import faults
from played_results import play_folder
from rllib_scale.evaluation.replay import Replay

pytestmark = pytest.mark.browser

Theme = Literal["light", "dark"]
USED = "a, summary, th, .table"
OPEN = "document.querySelectorAll('details').forEach((one) => (one.open = true))"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of episodes that were really played."""
    folder = tmp_path_factory.mktemp("played") / "r"
    evaluation = {"scales": [16, 32], "episodes": 3, "masks": ["feasible"], "heuristics": ["fastest-idle"]}
    play_folder(folder, methods=["scale", "crossattn"], seeds=[1], evaluation=evaluation)
    return write_report(folder, gantt=Replay(folder)).with_suffix(".html")


@pytest.fixture(scope="module")
def artificial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of several settings with everything that a report can hold but schedules."""
    rows = artificial_episodes(scales=(16, 48), methods=("scale", "crossattn", "ppo", "fastest-idle"), episodes=3)
    grid = [r | {"lambda_kl": 0.1, "cell": r["cell"] + "-grid"} for r in rows if r["method"] == "scale"]
    steady = [r | {"scenario": "steady-0.7", "mask": "feasible"} for r in rows]
    folder = tmp_path_factory.mktemp("artificial") / "r"
    write_folder(folder, [*rows, *grid, *steady], artificial_training(), artificial_features(scales=(16, 48)))
    return write_report(folder).with_suffix(".html")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 720, 1440])
def test_it_loads_alone_in_every_theme_and_width(
    page: Page, shoot: Callable[..., Path], artificial: Path, theme: str, width: int
) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(artificial.as_uri())
    assert page.title() == "Report: artificial"
    first = page.locator("#summary figure").first.bounding_box()
    assert first is not None
    assert first["y"] < 900, "a picture is in the first view"
    assert page.locator("details.setting").count() == 1
    assert not page.locator("#table3-steady-0\\.7-feasible-argmax-n16").is_visible(), "other settings are folded"
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing is wider than the page"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 384) == (theme == "dark")
    text = page.evaluate("getComputedStyle(document.querySelector('figure:not(.fixed) svg text')).fill")
    assert text != paper
    assert shoot(page, f"report-{theme}-{width}").stat().st_size > 10_000


def test_its_tables_hold_the_numbers_of_the_frame(page: Page, played: Path) -> None:
    page.goto(played.as_uri())
    rows = page.locator("#table3-paper-feasible-argmax-n16 + .table tbody tr")
    expected = table3(load(played.parents[1]).episodes)
    assert rows.count() == len(expected) == 3
    for shown, (_, row) in zip(rows.all(), expected.iterrows(), strict=True):
        cells = shown.locator("td").all_inner_texts()
        assert cells[0] == row["variant"]
        assert cells[3].startswith(f"{row['completed']:.2f} ± {row['completed_sd']:.2f}")
        assert cells[5].startswith(f"{row['response_mean_s']:.2f} ± {row['response_mean_s_sd']:.2f}")


def test_a_gantt_has_as_many_bars_as_its_schedules_have_tasks(
    page: Page, shoot: Callable[..., Path], played: Path
) -> None:
    folder = played.parents[1]
    page.goto(played.as_uri())
    replay = Replay(folder)
    choices = chosen_episodes(load(folder).episodes.query("test_servers == 16"), 16)
    assert choices
    for choice in choices:
        figure = page.locator(f"#gantt-{choice.name}-paper-feasible-argmax-n16")
        bars = figure.locator(".task path")
        assert bars.count() == sum(len(replay.episode(row).schedule) for row in choice.rows) > 10
        assert all(bar.bounding_box() for bar in bars.all())
    shoot(page, "report-played")


def test_a_click_on_a_heading_sorts_its_table(page: Page, artificial: Path) -> None:
    page.goto(artificial.as_uri())
    table = page.locator("#table3-paper-none-argmax-n16 + .table")
    with (artificial.parent / "tables" / "table3-paper-none-argmax-n16.csv").open() as file:
        completed = {row["variant"]: float(row["completed"]) for row in csv.DictReader(file)}
    heading = table.locator("th", has_text="completed tasks").first
    for descending in (True, False):
        heading.click()
        names = table.locator("tbody td:first-child").all_inner_texts()
        assert names == sorted(completed, key=lambda name: completed[name], reverse=descending)
    heading.focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"


def test_without_javascript_words_and_tables_are_there(browser: Browser, artificial: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(artificial.as_uri())
    assert page.locator("#summary li").first.is_visible()
    assert "Does learning beat the rule? Of " in page.locator("#summary").inner_text()
    assert page.locator("table tbody td").first.is_visible()
    assert page.locator("figure svg").first.is_visible()
    context.close()


@pytest.mark.parametrize("width", [720, 1440])
def test_no_text_of_a_figure_is_cut_off(page: Page, artificial: Path, width: int) -> None:
    # A text's box is that of its line, some pixels larger than what is drawn.
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(artificial.as_uri())
    page.evaluate(OPEN)
    cut = page.evaluate(
        """() => [...document.querySelectorAll("figure")].flatMap((figure) => {
          const frame = figure.querySelector("svg").getBoundingClientRect();
          return [...figure.querySelectorAll("svg text")].filter((text) => {
            const box = text.getBoundingClientRect();
            return box.width && (box.left < frame.left - 8 || box.right > frame.right + 8 ||
              box.top < frame.top - 8 || box.bottom > frame.bottom + 8);
          }).map((text) => figure.id + ": " + text.textContent);
        })"""
    )
    assert cut == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [720, 1440])
def test_no_grave_fault_of_accessibility(page: Page, artificial: Path, theme: Theme, width: int) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(artificial.as_uri())
    page.evaluate(OPEN)
    assert faults(page) == []


def test_the_keyboard_reaches_all_that_can_be_used(page: Page, artificial: Path) -> None:
    page.goto(artificial.as_uri())
    seen = f"[...document.querySelectorAll('{USED}')].filter((one) => one.checkVisibility())"
    wanted = page.evaluate(f"{seen}.length")
    page.evaluate("addEventListener('focusin', (event) => (event.target.dataset.reached = ''))")
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
    missed = f"{seen}.filter((one) => !('reached' in one.dataset)).map((one) => one.outerHTML.slice(0, 100))"
    assert wanted > 20
    assert page.evaluate(missed) == []


def test_a_link_opens_what_is_folded_around_its_target(page: Page, artificial: Path) -> None:
    page.goto(artificial.as_uri())
    target = page.locator("#table3-steady-0\\.7-feasible-argmax-n16")
    assert not target.is_visible()
    link = page.locator("nav a", has_text="steady-0.7")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("details.setting").first).to_have_attribute("open", "")
    page.goto(f"{artificial.as_uri()}#table3-steady-0.7-feasible-argmax-n16")
    page.reload()
    target.wait_for(state="visible")


def test_no_table_hides_rows_in_a_box_that_scrolls(page: Page, artificial: Path) -> None:
    page.goto(artificial.as_uri())
    page.evaluate(OPEN)
    hidden = "[...document.querySelectorAll('.table')].filter((box) => box.scrollHeight > box.clientHeight + 2).length"
    assert page.evaluate(hidden) == 0
