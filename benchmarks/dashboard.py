"""Times of the dashboard on a large results folder: from its files to the first figure, and for a filter.

    python -m benchmarks.dashboard DIR [ROWS]

makes DIR, a results folder of `benchmarks.scale` with ROWS (1 020 000) evaluation rows, unless it exists, and prints
the times of a visit in headless Chromium.
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

from benchmarks.scale import make_rows

ROUNDS = 5
START_S = 60.0
"""Within which the server must answer."""


def time_page(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Wall seconds of a visit in headless Chromium, ROUNDS times: to the table, to the figures, and for a filter.

    Each visit is a new browser context, without a cache. Also the server's CPU seconds.
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
                    "[...document.querySelectorAll('#results-table tbody tr')].every(row => "
                    "row.textContent.includes('crossattn')) && "
                    "[...document.querySelectorAll('.st-key-against-N .legend .traces')].every(trace => "
                    "trace.textContent.includes('crossattn'))"
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
        make_rows(folder, rows)
    taken = time_page(folder)
    print(f"{rows:,} rows, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds: median (range), CPU")
    for name, values in taken.items():
        wall, cpu = zip(*values, strict=True)
        print(
            f"{name:32}{statistics.median(wall):6.2f} ({min(wall):.2f} to {max(wall):.2f}){statistics.median(cpu):8.2f}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_020_000)
