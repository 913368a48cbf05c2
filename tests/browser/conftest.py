"""A headless Chromium, and a page of it that nothing may leave: see the fixture `page`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

LOOPBACK = ("127.0.0.1", "localhost", "::1")
INLINE = ("file", "data", "blob", "about")


def is_local(url: str) -> bool:
    """Whether a request stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme in INLINE or parts.hostname in LOOPBACK


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """The system's Chromium; `CHROMIUM` names another one."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.fail(
            "no Chromium: `make chromium` installs Debian's, CHROMIUM=/path names another, "
            "and -m 'not browser' leaves these tests out"
        )
    running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
    yield running
    running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page. A test with it fails at its end on a console error, an exception or a request beyond loopback.

    Such a request is stopped, not only noticed.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    context.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: errors.append(str(error.error)))
    context.on("page", lambda opened: opened.on("websocket", lambda socket: requests.append(socket.url)))
    context.route(lambda url: not is_local(url), lambda route: route.abort())
    yield context.new_page()
    context.close()
    assert [url for url in requests if not is_local(url)] == []
    assert errors == []


@pytest.fixture
def shoot(tmp_path: Path) -> Callable[..., Path]:
    """`shoot(page, name)` keeps a screenshot, an artefact of the test run: under pytest's --basetemp."""

    def take(page: Page, name: str, full_page: bool = True) -> Path:
        path = tmp_path / f"{name}.png"
        page.screenshot(path=path, full_page=full_page)
        return path

    return take
