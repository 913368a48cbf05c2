"""The dashboard as a person meets it: its numbers, its filters, an episode, a folder that changes, files that are torn."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from playwright.sync_api import Locator, Page, expect

from analysis.comparisons import paired_table
from analysis.load import PAPER_SETTING, load, select
from analysis.render import cell_lines, format_value
from analysis.tables import table4
from artificial_results import artificial_episodes, artificial_training, write_folder
from models.observations import random_network
from rllib_scale.experiments import results
from rllib_scale.experiments.plan import SweepConfig, evaluation_units, expand
from rllib_scale.experiments.replay import Replay
from rllib_scale.experiments.sweep import evaluate_unit
from rllib_scale.inspect_policy import STARTED, inspect_episode
from rllib_scale.policy import policy_files, save_policy

pytestmark = pytest.mark.browser

START_S = 120.0
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
    folder = write_folder(tmp_path_factory.mktemp("artificial"), artificial_episodes(), artificial_training())
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
    expect(page.get_by_test_id("stException")).to_have_count(0)


def cells(page: Page, key: str) -> list[list[str]]:
    """The rows of a table as they are shown, those that are scrolled to."""
    grid = page.locator(f".st-key-{key} [data-testid=stDataFrame] table")
    grid.wait_for(state="attached", timeout=30_000)
    return grid.evaluate(
        "t => [...t.querySelectorAll('tbody tr')].map(r => [...r.querySelectorAll('td')].map(c => c.innerText))"
    )


def choose(page: Page, label: str, value: str) -> None:
    page.get_by_role("combobox", name=label).click()
    page.get_by_role("option", name=value, exact=True).click()
    page.keyboard.press("Escape")
    settle(page)


def bars(page: Page) -> Locator:
    return page.locator(".st-key-gantt .barlayer .trace.bars .point path")


def test_table_holds_the_numbers_of_the_frame(artificial: tuple[Path, str, int], page: Page, shoot: Shoot) -> None:
    folder, url, _ = artificial
    open_view(page, url)
    shown = cells(page, "results-table")
    print(shown)
