"""How long the dashboard takes over a large results folder: from its files to the first figure, and for a filter.

    python -m benchmarks.dashboard DIR [ROWS]

makes DIR, a results folder with ROWS (1 000 000) random evaluation rows, if it is not there, and prints the timings as
a person sees them in headless Chromium.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd

from rllib_scale.config import METHODS, digest
from rllib_scale.results import tables as results
from rllib_scale.schedulers.rules import SCHEDULERS

SCALES = (16, 32, 48, 128, 512)
SCENARIOS = ("paper", "steady-0.5", "steady-0.7", "steady-0.9", "overload-1.1", "deep")
SEEDS = tuple(range(42, 50))
EPOCHS = 1000
ROUNDS = 5
START_S = 60.0
"""Within which the server must answer."""


def write_folder(folder: Path, rows: int) -> None:
    """A results folder of every method, 8 seeds, 5 scales, 6 scenarios, and as many episodes as give `rows` rows."""
    cells = [(name, seed) for name in METHODS for seed in SEEDS] + [(name, None) for name in SCHEDULERS]
    episodes = -(-rows // (len(cells) * len(SCALES) * len(SCENARIOS)))
    rng = np.random.default_rng(0)
    results.open_folder(folder, "large", {"name": "large"}, "0" * 12)
    axes = (np.arange(len(cells)), np.arange(len(SCENARIOS)), np.arange(len(SCALES)), np.arange(episodes))
    cell, scene, scale, episode = (part.ravel()[:rows] for part in np.meshgrid(*axes, indexing="ij"))
    n = len(cell)
    servers = np.array(SCALES)[scale]
    arrived = rng.poisson(4 * servers)
    completed = rng.binomial(arrived, 0.15)
    response = 4 + rng.gamma(4, 0.3, n)
    censored = response + rng.gamma(2, 0.4, n)
    identity = _identities(cells)
    columns = {name: values[cell] for name, values in identity.items()}
    columns |= {"scenario": np.array(SCENARIOS, dtype=object)[scene], "test_servers": servers, "mask": "none"}
    columns |= {"decision": "argmax", "eval_seed": 1000, "episode": episode, "arrived": arrived}
    columns |= {"completed": completed, "unfinished": arrived - completed, "response_mean_s": response}
    columns |= {"response_censored_s": censored, "bound_capacity_s": censored / rng.uniform(1, 2, n)}
    columns |= {"episode_return": 0.1 * completed, "decisions": 3 * completed, "utilisation": rng.random(n)}
    columns |= {name: rng.poisson(5, n) for name in ("invalid_no_fit", "invalid_busy_avoidable")}
    columns |= {"invalid_busy_unavoidable": np.zeros(n, dtype=int), "energy_j": rng.gamma(2, 1e4, n)}
    frame = results.typed(pd.DataFrame(columns), results.EPISODE_COLUMNS)
    results.write_table(folder / "training.parquet", _training(identity, len(METHODS) * len(SEEDS)))
    results.write_table(folder / "episodes.parquet", frame)


def _identities(cells: list[tuple[str, int | None]]) -> dict[str, np.ndarray]:
    rows = []
    for name, seed in cells:
        learned = seed is not None
        lambdas = (0.01, 0.001) if learned and METHODS[name].srr else (0.0, 0.0) if learned else (np.nan, np.nan)
        rows.append(
            {
                "sweep": "large",
                "cell": digest([name, seed]) if learned else name,
                "method": name,
                "kind": "learned" if learned else "heuristic",
                "train_seed": seed,
                "lambda_decorrelation": lambdas[0],
                "lambda_kl": lambdas[1],
                "overrides": "",
                "train_servers": 16 if learned else None,
                "epochs": EPOCHS if learned else None,
                "env_steps": 1024 * EPOCHS if learned else None,
            }
        )
    return {name: np.array([row[name] for row in rows], dtype=object) for name in rows[0]}


def _training(identity: dict[str, np.ndarray], cells: int) -> pd.DataFrame:
    cell, epoch = (part.ravel() for part in np.meshgrid(np.arange(cells), np.arange(1, EPOCHS + 1), indexing="ij"))
    columns = {name: values[cell] for name, values in identity.items() if name in results.TRAINING_COLUMNS}
    noise = np.random.default_rng(1).normal(size=len(cell))
    progress = 1 - np.exp(-epoch / 200)
    columns |= {"epoch": epoch, "env_steps": 1024 * epoch, "episode_return": progress + 0.1 * noise}
    columns |= {"completed": 4 + 6 * progress + noise, "response_mean_s": 5 - 0.5 * progress + 0.1 * noise}
    return results.typed(pd.DataFrame(columns), results.TRAINING_COLUMNS)


def time_page(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Wall seconds of a visit in headless Chromium, ROUNDS times: to the table, to the figures, and for a filter.

    Each visit is a new browser context, without a cache. Beside them the server's CPU seconds.
    """
    import psutil
    from playwright.sync_api import sync_playwright

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "rllib_scale", "dashboard", str(folder), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    taken: dict[str, list[tuple[float, float]]] = {}
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health")
        process = psutil.Process(server.pid)

        def note(name: str, start: tuple[float, float]) -> None:
            taken.setdefault(name, []).append((time.perf_counter() - start[0], sum(process.cpu_times()[:2]) - start[1]))

        def now() -> tuple[float, float]:
            return time.perf_counter(), sum(process.cpu_times()[:2])

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for visit in range(ROUNDS):
                page = browser.new_context(viewport={"width": 1400, "height": 950}).new_page()
                kind = "first visit" if visit == 0 else "later visit"
                start = now()
                page.goto(f"http://127.0.0.1:{port}")
                page.wait_for_selector("#results-table td", timeout=60_000)
                note(f"{kind}: table", start)
                page.wait_for_selector(".js-plotly-plot .scatterlayer .trace", timeout=60_000)
                note(f"{kind}: figures", start)
                page.wait_for_timeout(2000)
                page.locator(".st-key-Methods input").click()
                option = page.locator("[role=option]").filter(has_text="crossattn")
                option.wait_for()
                start = now()
                option.click()
                page.wait_for_function(
                    "document.querySelectorAll('#results-table tbody tr').length == 5 && "
                    "document.querySelectorAll('.st-key-against-N .legend .traces').length == 1"
                )
                note("filter: table and figures", start)
                page.context.close()
            browser.close()
    finally:
        server.terminate()
        server.wait()
    return taken


def _wait_for(url: str) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def main(folder: Path, rows: int) -> None:
    """Print the medians, and the range, of wall seconds, and the median of CPU seconds."""
    if not folder.exists():
        write_folder(folder, rows)
    taken = time_page(folder)
    print(f"{rows:,} rows, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds: median (range), CPU")
    for name, values in taken.items():
        wall, cpu = zip(*values, strict=True)
        print(
            f"{name:32}{statistics.median(wall):6.2f} ({min(wall):.2f} to {max(wall):.2f}){statistics.median(cpu):8.2f}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
