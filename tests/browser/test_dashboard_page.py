"""The dashboard as a person meets it: its numbers, its filters, an episode, a folder that changes, torn files."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pandas as pd
import psutil
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect
from rllib_scale_analysis.load import PAPER_SETTING, load, select
from rllib_scale_analysis.tables.comparisons import paired_table
from rllib_scale_analysis.tables.methods import table4
from rllib_scale_analysis.tables.render import cell_lines, format_value, to_csv

from artificial_results import artificial_episodes, artificial_training, write_folder
from browser_page import faults
from networks.observations import random_network
from rllib_scale.config.plan import SweepConfig, evaluation_units, expand
from rllib_scale.envs.gantt import FRAMES
from rllib_scale.evaluation.inspection import STARTED, inspect_episode
from rllib_scale.evaluation.replay import Replay
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.policies.policy import policy_files, save_policy
from rllib_scale.results import tables as results

pytestmark = pytest.mark.browser

START_S = 120.0
VIEWS = ("Results", "Training", "Compare", "Episode", "Runs")
Theme = Literal["light", "dark"]
Shoot = Callable[..., Path]


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
    sweep = SweepConfig.model_validate(
        {"name": "tiny", "methods": ["scale", "ppo", "crossattn"], "evaluation": evaluation}
    )
    results.open_folder(folder, "tiny", sweep.model_dump(mode="json"), "0")
    scale, ppo, failed = cells = expand(sweep, "tiny")
    policies = {}
    for cell in (scale, ppo):
        target = folder / "policies" / cell.trial.name
        save_policy(target, random_network(method=cell.trial.method), cell.trial, epochs=1)
        policies[cell.trial.name] = policy_files(target)
    for unit in evaluation_units(sweep, cells):
        if unit.learned and unit.scheduler not in policies:
            continue
        rows = evaluate_unit(unit, policies.get(unit.scheduler)).episodes
        frame = pd.DataFrame([unit.columns | row for row in rows])
        results.write_table(folder / "evaluations" / f"{unit.key}.parquet", frame)
    trial = folder / "trials" / "run-001" / failed.trial.name
    trial.mkdir(parents=True)
    (trial / "error.txt").write_text(
        "".join(f"Failure # {n + 1} (occurred)\nValueError: it *broke*\n" for n in range(4))
    )
    with dashboard(folder) as (url, _):
        yield folder, url


def open_view(page: Page, url: str, view: str = "Results") -> None:
    page.goto(url)
    tab = page.get_by_role("tab", name=view, exact=True)
    tab.click(timeout=60_000)
    expect(tab).to_have_attribute("aria-selected", "true")
    settle(page)


def settle(page: Page) -> None:
    """Wait until the script has run and nothing on the page is out of date."""
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning", timeout=60_000)
    expect(page.locator("[data-stale=true]")).to_have_count(0, timeout=30_000)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=30_000)
    expect(page.get_by_test_id("stException")).to_have_count(0)


def rows_of(page: Page, table: str) -> list[list[str]]:
    """The cells of a table, a line break in one as a space."""
    texts = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.split(/\\s+/).join(' ')))"
    return page.locator(f"#{table} tbody tr").evaluate_all(texts)


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


def keep(page: Page, shoot: Shoot, name: str) -> None:
    """A screenshot of the whole view: Streamlit scrolls inside its page."""
    height = page.get_by_test_id("stMain").evaluate("main => main.scrollHeight")
    page.set_viewport_size({"width": 1280, "height": height})
    settle(page)
    shoot(page, name)


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


SHOWN = ("completed", "response_mean_s", "response_censored_s", "above_bound_percent", "unfinished")
COLUMNS = ("test_servers", "variant", "information", "seeds", *SHOWN, "episodes")


def test_table_holds_the_numbers_of_the_frame(artificial: tuple[Path, str, int], page: Page, shoot: Shoot) -> None:
    folder, url, _ = artificial
    open_view(page, url)
    expected = table4(select(load(folder).episodes, *PAPER_SETTING))
    best = expected.sort_values(["test_servers", "completed"], ascending=[True, False], kind="stable")
    expect_rows(page, "results-table", printed(best, COLUMNS))
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    keep(page, shoot, "results")
    choose(page, "order", "response (s)")
    ranked = expected.sort_values(["test_servers", "response_mean_s"])
    expect_rows(page, "results-table", printed(ranked, COLUMNS))
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    assert download.value.path().read_text() == to_csv(ranked[list(pd.read_csv(download.value.path()).columns)])
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as PNG").first.click()
    assert download.value.suggested_filename == "against-N.png"
    with Image.open(download.value.path()) as image:
        assert (image.format, image.width > 1000) == ("PNG", True)


def test_a_link_shows_what_was_chosen(artificial: tuple[Path, str, int], page: Page) -> None:
    _, url, _ = artificial
    open_view(page, url, "Compare")
    choose(page, "second", "fastest-idle")
    choose(page, "Servers-N", "32")
    rows = rows_of(page, "paired-table")
    link = page.url
    assert "view=Compare" in link
    assert "second=fastest-idle" in link
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#paired-table tbody tr")).to_have_count(1, timeout=60_000)
    settle(page)
    expect_rows(page, "paired-table", rows)
    expect(page.locator(".st-key-second input")).to_have_value("fastest-idle")


def test_filters_change_table_and_figures(artificial: tuple[Path, str, int], page: Page) -> None:
    folder, url, _ = artificial
    open_view(page, url)
    choose(page, "Methods", "scale", "fastest-idle")
    choose(page, "Servers-N", "32")
    choose(page, "Training-seeds", "42", "45")
    episodes = select(load(folder).episodes, *PAPER_SETTING)
    seeds = episodes["train_seed"].isna() | episodes["train_seed"].isin([42, 45])
    chosen = episodes["method"].isin(["scale", "fastest-idle"]) & (episodes["test_servers"] == 32) & seeds
    ranked = table4(episodes[chosen]).sort_values("completed", ascending=False, kind="stable")
    expected = printed(ranked, COLUMNS)
    assert len(expected) == 2
    expect_rows(page, "results-table", expected)
    legend = page.locator(".st-key-against-N .legendtext")
    expect(legend).to_have_text(["scale", "fastest-idle"])
    choose(page, "Lambdas", "λ₁ = 0, λ₂ = 0")
    expect_rows(page, "results-table", [row for row in expected if row[1] == "fastest-idle"])


def test_training_curves_of_what_was_chosen(artificial: tuple[Path, str, int], page: Page, shoot: Shoot) -> None:
    _, url, _ = artificial
    open_view(page, url, "Training")
    legend = page.locator(".st-key-training-curves .legendtext")
    expect(legend).to_have_text(["scale", "crossattn", "ppo"])
    expect(page.locator(".st-key-training-curves .scatterlayer")).to_have_count(4)
    keep(page, shoot, "training")
    choose(page, "Methods", "ppo")
    expect(legend).to_have_text(["ppo"])


def test_comparison_is_the_paired_table(artificial: tuple[Path, str, int], page: Page, shoot: Shoot) -> None:
    folder, url, _ = artificial
    open_view(page, url, "Compare")
    choose(page, "second", "fastest-idle")
    episodes = select(load(folder).episodes, *PAPER_SETTING)
    paired = paired_table(episodes, [("scale", "fastest-idle")])
    columns = ("test_servers", "seeds", "completed", "unfinished", "response_mean_s", "response_censored_s", "episodes")
    expect_rows(page, "paired-table", printed(paired, columns))
    points = page.locator(".st-key-episode-pairs .scatterlayer .point")
    expect(points).to_have_count(4 * 6)
    keep(page, shoot, "compare")


def test_an_episode_has_a_bar_for_each_task_and_a_click_chooses_its_decision(
    played: tuple[Path, str], page: Page, shoot: Shoot
) -> None:
    folder, url = played
    open_view(page, url, "Episode")
    frames = [pd.read_parquet(path) for path in (folder / "evaluations").iterdir()]
    rows = [row for frame in frames for row in frame.to_dict("records") if row["method"] == "scale"]
    row = next(row for row in rows if row["episode"] == 1)
    choose(page, "episode-number", "1")
    inspected = inspect_episode(Replay(folder), row)
    schedule, decisions = inspected.episode.schedule, inspected.decisions
    expect(bars(page)).to_have_count(len(schedule))
    first = decisions[0]
    said = page.get_by_text(re.compile(r"^Decision 1 at"))
    text = f"Decision 1 at {first['clock_s']:.2f} s: task {first['task']} of workflow {first['workflow']}"
    expect(said).to_contain_text(text)
    expect(page.locator(".st-key-attention .heatmaplayer image")).to_have_count(1)
    expect(page.locator(".st-key-probabilities .barlayer .point path")).to_have_count(16)
    tasks = int(
        inspected.workload.task_offsets[first["workflow"] + 1] - inspected.workload.task_offsets[first["workflow"]]
    )
    expect(page.locator(".st-key-dag .scatterlayer .point")).to_have_count(tasks)
    keep(page, shoot, "episode")
    last = len(schedule) - 1
    place = bars(page).nth(last).bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    started = [k for k, outcome in enumerate(decisions["outcome"]) if outcome == STARTED]
    clicked = f"Decision {started[last] + 1} at {decisions['clock_s'][started[last]]:.2f} s"
    expect(page.get_by_text(clicked)).to_be_visible(timeout=30_000)
    settle(page)
    expect(bars(page)).to_have_count(len(schedule))


def test_an_episode_plays_from_the_decision_chosen_and_is_saved_as_a_film(
    played: tuple[Path, str], page: Page, tmp_path: Path
) -> None:
    _, url = played
    open_view(page, url, "Episode")
    expect(page.get_by_text("Decision 1 at")).to_be_visible()
    toggle = page.locator(".st-key-play label").first
    toggle.click()
    later = re.compile(r"^Decision (?![12] at)\d+ at")  # a slow browser may leave one out
    expect(page.get_by_text(later)).to_be_visible(timeout=120_000)
    toggle.click()
    page.wait_for_timeout(2000)  # the page is drawn anew a moment after the click: with another button to save
    settle(page)
    with page.expect_download(timeout=120_000) as download:
        page.get_by_role("button", name="Save as GIF").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    with Image.open(path) as film:
        assert (film.format, film.n_frames) == ("GIF", FRAMES)


def test_a_view_keeps_its_choices_while_another_is_open(played: tuple[Path, str], page: Page) -> None:
    _, url = played
    open_view(page, url, "Episode")
    choose(page, "episode-method", "heft")
    expect(page.get_by_text("A dispatcher looks at all")).to_be_visible()
    for view in ("Results", "Episode"):
        page.get_by_role("tab", name=view, exact=True).click()
        settle(page)
    expect(page.locator(".st-key-episode-method input")).to_have_value("heft")
    expect(page.get_by_text("A dispatcher looks at all")).to_be_visible()


@pytest.mark.parametrize(("method", "says"), [("fastest-idle", "a rule has no"), ("heft", "A dispatcher looks at all")])
def test_an_episode_of_a_heuristic_has_no_probabilities(
    played: tuple[Path, str], page: Page, method: str, says: str
) -> None:
    _, url = played
    open_view(page, url, "Episode")
    choose(page, "episode-method", method)
    expect(page.get_by_text(says)).to_be_visible()
    assert bars(page).count() > 5
    expect(page.locator(".st-key-attention")).to_have_count(0)


def test_runs_show_their_state_and_error(played: tuple[Path, str], page: Page, shoot: Shoot) -> None:
    _, url = played
    open_view(page, url, "Runs")
    expect(page.get_by_text("trainings: 2 finished, 1 failed · rules: 2")).to_be_visible()
    expect(page.get_by_test_id("stAlertContainer")).to_contain_text("ValueError: it *broke*")
    keep(page, shoot, "runs")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    table = pd.read_csv(download.value.path()).set_index("run")
    assert table.loc["heft", ["method", "state", "rows"]].to_list() == ["heft", "rule: nothing to train", 2]
    assert table["state"].value_counts().to_dict() == {"finished": 2, "rule: nothing to train": 2, "failed": 1}


def test_only_policies_that_are_here_are_offered_to_be_played(artificial: tuple[Path, str, int], page: Page) -> None:
    _, url, _ = artificial
    open_view(page, url, "Episode")
    expect(page.get_by_text("Episodes of 15 trained policies cannot be played again")).to_be_visible()
    box = page.locator(".st-key-episode-method input")
    expect(box).to_have_value("fastest-idle")


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (1440, "light"),
        (720, "dark"),
        pytest.param(1440, "dark", marks=pytest.mark.slow),
        pytest.param(720, "light", marks=pytest.mark.slow),
    ],
)
def test_no_grave_fault_of_accessibility(played: tuple[Path, str], page: Page, theme: Theme, width: int) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    for view in VIEWS:
        open_view(page, played[1], view)
        assert (view, faults(page)) == (view, [])


def test_the_keyboard_alone_changes_view_and_filter(artificial: tuple[Path, str, int], page: Page) -> None:
    _, url, _ = artificial
    open_view(page, url)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText"))
    controls = {"Save as CSV", "Save as PNG", "results table", "Results"}
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


def test_curves_of_a_running_training_grow(tmp_path: Path, page: Page) -> None:
    results.open_folder(tmp_path, "live", {"name": "live"}, "0")
    trial = tmp_path / "trials" / "run-001" / "scale-s42-0123"
    trial.mkdir(parents=True)
    points = page.locator(".st-key-training-curves .scatterlayer .point")
    with dashboard(tmp_path) as (url, _):
        page.goto(f"{url}/?view=Training")
        expect(page.get_by_text("No training epochs yet.")).to_be_visible(timeout=60_000)
        for epochs in (2, 4):
            rows = [json.dumps({"epoch": k, "episode_return": float(k)}) for k in range(1, epochs + 1)]
            (trial / "result.json").write_text("\n".join(rows) + "\n")
            expect(points).to_have_count(epochs, timeout=60_000)
        page.goto("about:blank")  # a page whose server has gone says so on its console


def test_episodes_without_their_policy_are_a_note(artificial: tuple[Path, str, int], page: Page) -> None:
    _, url, _ = artificial
    open_view(page, url, "Episode")
    expect(page.get_by_test_id("stAlertContainer")).to_contain_text("manifest.json: ")


def test_rows_appear_as_they_are_written_and_torn_files_are_notes(tmp_path: Path, page: Page, shoot: Shoot) -> None:
    with dashboard(tmp_path) as (url, _):
        page.goto(url)
        note = page.get_by_test_id("stAlertContainer")
        expect(note.filter(has_text="no manifest.json yet")).to_be_visible(timeout=60_000)
        expect(note.filter(has_text="No evaluation rows yet")).to_be_visible()
        results.open_folder(tmp_path, "live", {"name": "live"}, "0")
        first = pd.DataFrame(artificial_episodes((42,), (16,), ("scale",)))
        results.write_table(tmp_path / "evaluations" / "first.parquet", first)
        row = page.locator("#results-table tbody tr")
        expect(row).to_have_count(1, timeout=60_000)
        expect(note).to_have_count(0)
        second = pd.DataFrame(artificial_episodes((42,), (32,), ("scale",)))
        results.write_table(tmp_path / "evaluations" / "second.parquet", second)
        (tmp_path / "evaluations" / "third.parquet").write_bytes(b"PAR1 and not much more")
        expect(row).to_have_count(2, timeout=60_000)
        expect(note).to_have_count(1, timeout=60_000)
        expect(note).to_contain_text("third.parquet: not a readable results table")
        settle(page)
        assert [cells[4].split(" ")[0] for cells in rows_of(page, "results-table")] == [
            format_value(float(frame["completed"].mean())) for frame in (first, second)
        ]
        keep(page, shoot, "note")
        page.goto("about:blank")  # a page whose server has gone says so on its console


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_in_the_dark_theme(played: tuple[Path, str], page: Page, shoot: Shoot, view: str) -> None:
    page.emulate_media(color_scheme="dark")
    open_view(page, played[1], view)
    keep(page, shoot, f"dark-{view.lower()}")


def test_server_listens_on_loopback_alone(artificial: tuple[Path, str, int]) -> None:
    process = psutil.Process(artificial[2])
    sockets = [c for p in (process, *process.children(recursive=True)) for c in p.net_connections(kind="inet")]
    listening = {connection.laddr.ip for connection in sockets if connection.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    assert {connection.raddr.ip for connection in sockets if connection.raddr} <= {"127.0.0.1"}
