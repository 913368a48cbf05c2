"""A headless Chromium, and a page of it that nothing may leave: see the fixture `page`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from browser_page import guarded_page


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """Ends with the module: while it runs, an event loop is running in the main thread, for every later test."""
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """The system's Chromium; `CHROMIUM` names another one."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.fail(
            "no Chromium: `make chromium` installs Debian's, CHROMIUM=/path names another, "
            "and -m 'not browser' leaves these tests out"
        )
    expect.set_options(timeout=60_000)  # beside other processes a page takes its time
    running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
    yield running
    running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """See `guarded_page`: a test with it fails on a console error, an exception or a request beyond loopback."""
    with guarded_page(browser) as opened:
        yield opened
