"""Report and dashboard in a browser. By default one visit to each; every theme, width, view and control is slow."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pandas as pd
import psutil
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect
from rllib_scale_analysis.load import load
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.rows import PAPER_SETTING, select
from rllib_scale_analysis.tables.methods import table4
from rllib_scale_analysis.tables.render import cell_lines, format_value, to_csv

from artificial_results import (
    artificial_episodes,
    artificial_features,
    artificial_training,
    changed,
    tables_of,
    write_folder,
)
from browser_page import faults, guarded_page
from played_results import play_folder
from rllib_scale.config.plan import SweepConfig
from rllib_scale.envs.gantt import FRAMES
from rllib_scale.evaluation.explained import COLUMNS as EXPLAINED
from rllib_scale.evaluation.explained import explain_played
from rllib_scale.evaluation.inspection import STARTED, inspect_episode
from rllib_scale.evaluation.replay import Replay
from rllib_scale.results import tables as results
from rllib_scale.results.dataset import append, read, records
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.planning import make_plan

pytestmark = pytest.mark.browser

Theme = Literal["light", "dark"]
THEMES_AND_WIDTHS = [("light", 1440), ("dark", 1440), ("light", 720), ("dark", 720), ("light", 400)]
OPEN = "document.querySelectorAll('details').forEach((one) => (one.open = true))"
TABLE3 = "#table3-paper-none-argmax-n16"
FOLDED = "#table3-steady-0\\.7-feasible-argmax-n16"

START_S = 120.0
VIEWS = ("Results", "Training", "Compare", "Episode", "Runs")
SHOWN = ("response_censored_s", "jct_mean_s", "completed", "response_mean_s", "above_bound_percent", "unfinished")
COLUMNS = ("test_servers", "variant", "observability", "seeds", *SHOWN, "episodes")
PAIRED = ("test_servers", "seeds", "completed", "unfinished", "response_mean_s", "response_censored_s", "episodes")


# ---------------------------------------------------------------------- the report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of several settings with everything that a report can hold but schedules."""
    rows = artificial_episodes(scales=(16, 48), methods=("scale", "crossattn", "ppo", "fastest-idle"), episodes=3)
    grid = [changed(r, {"srr.lambda_kl": 0.1}) for r in rows if r["method"] == "scale"]
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
    assert len(images) > 8
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
@pytest.mark.parametrize(("theme", "width"), THEMES_AND_WIDTHS)
def test_every_theme_and_width_without_a_grave_fault_of_accessibility(
    page: Page, report: Path, theme: Theme, width: int
) -> None:
    check_layout(page, report, theme, width)
    assert faults(page) == []


# ---------------------------------------------------------------------- the dashboard


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, int]]:
    """The server of a folder's page, as the command starts it: its URL and process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "rllib_scale", "dashboard", str(folder), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        end = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, server.stdout and server.stdout.read()
                assert time.monotonic() < end
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", server.pid
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def artificial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, int]]:
    """Three learned methods with 5 seeds and six heuristics; nothing that could be played again."""
    rows = [row | {"bound_capacity_s": 3.0 + 0.1 * row["episode"]} for row in artificial_episodes()]
    folder = write_folder(tmp_path_factory.mktemp("artificial"), rows, artificial_training())
    with dashboard(folder) as (url, process):
        yield folder, url, process


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Random policies and two heuristics, evaluated for real, and a training that failed."""
    folder = tmp_path_factory.mktemp("played")
    evaluation = {"scales": [16], "episodes": 2, "heuristics": ["fastest-idle", "heft"], "features": False}
    rows = play_folder(folder, "tiny", methods=["scale", "ppo", "crossattn"], evaluation=evaluation)
    (failed,) = (folder / "policies").glob("crossattn-*")
    shutil.rmtree(failed)
    shutil.rmtree(folder / "episodes")
    append(folder, episodes=rows[rows["method"] != "crossattn"])
    trial = folder / "trials" / "run-001" / failed.name
    trial.mkdir(parents=True)
    failures = (f"Failure # {number} (occurred)\nValueError: it *broke*\n" for number in range(1, 5))
    (trial / "error.txt").write_text("".join(failures))
    with dashboard(folder) as (url, _):
        yield folder, url


def open_view(page: Page, url: str, view: str = "Results") -> None:
    page.goto(url)
    tab = page.get_by_role("tab", name=view, exact=True)
    tab.click()
    expect(tab).to_have_attribute("aria-selected", "true")
    settle(page)


def settle(page: Page) -> None:
    """Wait until the script has run and nothing on the page is out of date."""
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning", timeout=300_000)
    expect(page.locator("[data-stale=true]")).to_have_count(0)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    expect(page.get_by_test_id("stException")).to_have_count(0)


def rows_of(page: Page, table: str) -> list[list[str]]:
    """The cells of a table once it is there, a line break in one as a space."""
    texts = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.split(/\\s+/).join(' ')))"
    rows = page.locator(f"#{table} tbody tr")
    rows.first.wait_for(state="attached")  # the page is settled, too, before its script has begun
    return rows.evaluate_all(texts)


def choose(page: Page, key: str, *values: str) -> None:
    """Choose values in a selector, named by its key. An open list hides the rest of the page from roles."""
    box = page.locator(f".st-key-{key} input")
    for value in values:
        option = page.locator("[role=option]").filter(has_text=re.compile(f"^{re.escape(value)}$"))
        for _ in range(5):  # a click while another list closes does nothing
            if option.count() == 0:
                box.click()
                page.wait_for_timeout(500)
        option.click()
        settle(page)
    if box.get_attribute("aria-expanded") == "true":
        page.keyboard.press("Escape")
    expect(page.locator("[role=option]")).to_have_count(0)


def expect_rows(page: Page, table: str, expected: list[list[str]]) -> None:
    """The table shows these cells, at once or when the script has run."""
    end = time.monotonic() + 120
    while rows_of(page, table) != expected and time.monotonic() < end:
        page.wait_for_timeout(200)
    assert rows_of(page, table) == expected


def printed(table: pd.DataFrame, columns: tuple[str, ...]) -> list[list[str]]:
    return [[" ".join(cell_lines(row, column)) for column in columns] for _, row in table.iterrows()]


def bars(page: Page) -> Locator:
    return page.locator(".st-key-gantt .barlayer .point path")


def check_episode(page: Page, folder: Path) -> None:
    """The first episode's Gantt chart has a bar for each task, and a click on the last chooses its decision."""
    row = next(row for row in records(read(Location(str(folder)), "episodes")) if row["method"] == "scale")
    inspected = inspect_episode(Replay(folder), row)
    schedule, decisions = inspected.episode.schedule, inspected.decisions
    expect(bars(page)).to_have_count(len(schedule))
    first = decisions[0]
    text = f"Decision 1 at {first['clock_s']:.2f} s: task {first['task']} of workflow {first['workflow']}"
    expect(page.get_by_text(re.compile(r"^Decision 1 at"))).to_contain_text(text)
    expect(page.locator(".st-key-attention .heatmaplayer image")).to_have_count(1)
    expect(page.locator(".st-key-probabilities .scatterlayer .point")).to_have_count(17)
    offsets = inspected.workload.task_offsets
    tasks = int(offsets[first["workflow"] + 1] - offsets[first["workflow"]])
    expect(page.get_by_test_id("stGraphVizChart").locator("g.node")).to_have_count(tasks)
    last = len(schedule) - 1
    place = bars(page).nth(last).bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    started = [k for k, outcome in enumerate(decisions["outcome"]) if outcome == STARTED]
    clicked = f"Decision {started[last] + 1} at {decisions['clock_s'][started[last]]:.2f} s"
    expect(page.get_by_text(clicked)).to_be_visible(timeout=30_000)
    settle(page)


def test_the_dashboard_of_a_running_sweep_in_each_view(played: tuple[Path, str], page: Page) -> None:
    folder, url = played
    rows = read(Location(str(folder)), "episodes")
    open_view(page, url)
    picture, table = (page.locator(place).first.bounding_box() for place in (".js-plotly-plot", "#results-table"))
    assert picture is not None and table is not None  # noqa: PT018
    assert picture["y"] < min(table["y"], 500), "a picture comes before the table"
    verdict = page.get_by_text(
        re.compile(r"^On 16 servers .* completes the most tasks, .*; its mean JCT is")
    ).bounding_box()
    assert verdict is not None
    assert verdict["y"] < picture["y"], "the verdict comes first"
    shown = rows_of(page, "results-table")
    assert {cells[1] for cells in shown} == {"scale", "ppo", "fastest-idle", "heft"}
    for name, (_, of_name) in zip(sorted({cells[1] for cells in shown}), rows.groupby("method"), strict=True):
        (cells,) = (cells for cells in shown if cells[1] == name)
        assert cells[6].startswith(f"{of_name['completed'].mean():.2f} ")
    expect(page.locator(".js-plotly-plot")).to_have_count(1)
    choose(page, "Methods", "scale")
    expect(page.locator("#results-table tbody tr")).to_have_count(1)
    assert [cells[1] for cells in rows_of(page, "results-table")] == ["scale"]
    page.goto("about:blank")
    open_view(page, url, "Compare")
    assert len(rows_of(page, "paired-table")) == 1
    open_view(page, url, "Episode")
    check_episode(page, folder)
    open_view(page, url, "Runs")
    expect(page.get_by_text("trainings: 2 finished, 1 failed · rules: 2")).to_be_visible()
    expect(page.get_by_test_id("stAlertContainer")).to_contain_text("ValueError: it *broke*")


@pytest.mark.slow
def test_table_holds_the_numbers_of_the_frame(artificial: tuple[Path, str, int], page: Page) -> None:
    folder, url, _ = artificial
    open_view(page, url)
    expected = table4(select(load(folder).episodes, *PAPER_SETTING))
    best = expected.sort_values(["test_servers", "completed"], ascending=[True, False], kind="stable")
    expect_rows(page, "results-table", printed(best, COLUMNS))
    expect(page.locator(".js-plotly-plot")).to_have_count(1)
    choose(page, "order", "response of completed tasks (s)")
    ranked = expected.sort_values(["test_servers", "response_mean_s"])
    expect_rows(page, "results-table", printed(ranked, COLUMNS))
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    assert download.value.path().read_text() == to_csv(ranked[list(pd.read_csv(download.value.path()).columns)])


@pytest.mark.slow
def test_a_link_shows_what_was_chosen(artificial: tuple[Path, str, int], page: Page) -> None:
    _, url, _ = artificial
    open_view(page, url, "Compare")
    choose(page, "second", "fastest-idle")
    choose(page, "Servers-N", "32")
    expect(page.locator("#paired-table tbody tr")).to_have_count(1)
    rows = rows_of(page, "paired-table")
    link = page.url
    assert "view=Compare" in link
    assert "second=fastest-idle" in link
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#paired-table tbody tr")).to_have_count(1)
    settle(page)
    expect_rows(page, "paired-table", rows)
    expect(page.locator(".st-key-second input")).to_have_value("fastest-idle")


def test_an_episode_of_a_price_rule_shows_why_each_task_starts_or_waits(page: Page, tmp_path: Path) -> None:
    """At the first decision, and at the one that the slider is moved to; nothing of a rule without prices."""
    evaluation = {"scales": [16], "episodes": 1, "heuristics": ["adaptive-price", "fastest-idle"]}
    rows = play_folder(tmp_path / "r", methods=[], evaluation=evaluation)
    row = next(row for row in rows.to_dict("records") if row["method"] == "adaptive-price")
    inspected = inspect_episode(Replay(tmp_path / "r"), row)
    starts = inspected.decisions["clock_s"].tolist()
    with dashboard(tmp_path / "r") as (url, _):
        open_view(page, url, "Episode")
        choose(page, "episode-method", "adaptive-price")
        for at in (0, 1):
            expect(page.get_by_text(f"Decision {at + 1} at {starts[at]:.2f} s")).to_be_visible()
            expect(page.get_by_text(f"starts or waits at {starts[at]:.2f} s")).to_be_visible()
            settle(page)
            found = explain_played(inspected.episode, starts[at])
            assert found is not None
            shown = [[format_value(each.get(key)) for key in EXPLAINED.values()] for each in found.rows]
            expect_rows(page, "prices-table", shown)
            page.get_by_role("slider").focus()
            page.keyboard.press("ArrowRight")
        expect(page.locator("#prices-table th")).to_have_text(list(EXPLAINED))
        settle(page)
        choose(page, "episode-method", "fastest-idle")
        expect(page.get_by_text("Decision 1 at")).to_be_visible()
        expect(page.locator("#prices-table")).to_have_count(0)


@pytest.mark.slow
def test_an_episode_is_saved_as_a_film(played: tuple[Path, str], page: Page, tmp_path: Path) -> None:
    _, url = played
    open_view(page, url, "Episode")
    expect(page.get_by_text("Decision 1 at")).to_be_visible()
    settle(page)
    with page.expect_download(timeout=120_000) as download:
        page.get_by_role("button", name="Save as GIF").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    with Image.open(path) as film:
        assert (film.format, film.n_frames) == ("GIF", FRAMES)


@pytest.mark.slow
@pytest.mark.parametrize(("theme", "width"), THEMES_AND_WIDTHS[:4])
def test_no_view_has_a_grave_fault_of_accessibility(
    played: tuple[Path, str], page: Page, theme: Theme, width: int
) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    for view in VIEWS:
        open_view(page, played[1], view)
        assert (view, faults(page)) == (view, [])


@pytest.mark.slow
@pytest.mark.parametrize("view", ["Results", "Training"])
def test_the_panels_of_a_chart_keep_apart_on_a_narrow_page(
    artificial: tuple[Path, str, int], page: Page, view: str
) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{artificial[1]}/?view={view}")
    settle(page)
    titles = page.locator(".js-plotly-plot").first.locator(".infolayer .annotation")
    titles.first.wait_for(state="attached")
    boxes = [titles.nth(k).bounding_box() for k in range(titles.count())]
    assert len(boxes) > 2
    for k, one in enumerate(boxes):
        for other in boxes[:k]:
            assert one is not None
            assert other is not None
            across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
            down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
            assert across <= 0 or down <= 0, f"{one} and {other} overlap"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing is wider than the page"


@pytest.mark.slow
def test_the_keyboard_alone_changes_view_and_filter(artificial: tuple[Path, str, int], page: Page) -> None:
    _, url, _ = artificial
    open_view(page, url)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText"))
    controls = {"Save as CSV", "results table", "Results"}
    assert controls <= reached, reached
    page.get_by_role("tab", name="Results", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Training", exact=True)).to_have_attribute("aria-selected", "true")
    page.locator(".st-key-Methods input").focus()
    page.keyboard.type("ppo")
    page.keyboard.press("Enter")
    settle(page)
    expect(page.locator(".st-key-training-curves .legendtext")).to_have_text(["ppo"])


@pytest.mark.slow
def test_rows_and_curves_appear_as_they_are_written_and_torn_files_are_notes(tmp_path: Path, page: Page) -> None:
    with dashboard(tmp_path) as (url, _):
        page.goto(url)
        note = page.get_by_test_id("stAlertContainer")
        expect(note.filter(has_text="no manifest.json yet")).to_be_visible()
        expect(note.filter(has_text="No evaluation rows yet")).to_be_visible()
        sweep = SweepConfig.model_validate({"name": "live", "methods": ["scale"], "seeds": [42]})
        plan = make_plan(sweep, "live")
        results.open_folder(tmp_path, "live", sweep.model_dump(mode="json"), "0", plan.to_json())
        row = page.locator("#results-table tbody tr")
        for count, servers in enumerate((16, 32), start=1):
            append(tmp_path, **tables_of(artificial_episodes((42,), (servers,), ("scale",))))
            expect(row).to_have_count(count)
        expect(note).to_have_count(0)
        (tmp_path / "episodes" / "part-000009.parquet").write_bytes(b"PAR1 and not much more")
        expect(note).to_contain_text("part-000009.parquet: not a readable results table")
        trial = tmp_path / "trials" / "run-001" / plan.trials[0].config.name
        trial.mkdir(parents=True)
        page.goto(f"{url}/?view=Training")
        expect(page.get_by_text("No training epochs yet.")).to_be_visible()
        for epochs in (2, 4):
            epoch_rows = [json.dumps({"epoch": k, "episode_return": float(k)}) for k in range(1, epochs + 1)]
            (trial / "result.json").write_text("\n".join(epoch_rows) + "\n")
            points = page.locator(".st-key-training-curves .scatterlayer .point")
            expect(points).to_have_count(epochs)
        page.goto("about:blank")  # a page whose server has gone says so on its console


@pytest.mark.slow
def test_server_listens_on_loopback_alone(artificial: tuple[Path, str, int]) -> None:
    process = psutil.Process(artificial[2])
    sockets = [c for p in (process, *process.children(recursive=True)) for c in p.net_connections(kind="inet")]
    listening = {connection.laddr.ip for connection in sockets if connection.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    assert {connection.raddr.ip for connection in sockets if connection.raddr} <= {"127.0.0.1"}


# ---------------------------------------------------------------------- what notices a fault


@pytest.mark.slow
def test_a_request_beyond_loopback_and_an_error_on_the_console_fail_a_test(browser: Browser) -> None:
    content = "<img src='http://192.0.2.1/pixel.png'><script>new WebSocket('ws://192.0.2.1/live')</script>"
    noticed = "(?s)(?=.*192.0.2.1/pixel.png)(?=.*ws://192.0.2.1/live).*it broke"  # in either order
    with pytest.raises(AssertionError, match=noticed), guarded_page(browser) as page:  # noqa: PT012
        page.set_content(f"{content}<script>throw new Error('it broke')</script>")
        page.wait_for_timeout(200)
