"""A page of a browser that nothing may leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

LOOPBACK = ("127.0.0.1", "localhost", "::1")
INLINE = ("file", "data", "blob", "about")


def is_local(url: str) -> bool:
    """Whether a request stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme in INLINE or parts.hostname in LOOPBACK


def faults(page: Page) -> list[str]:
    """What axe-core calls serious or critical on a page as it stands: the rule, and the elements that break it."""
    found = Axe().run(page).response["violations"]
    grave = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    return [f"{fault['id']}: {node['html'][:200]}" for fault in grave for node in fault["nodes"]]


RECONNECTS = "Cannot send rerun backMessage when disconnected from server."
"""Streamlit's, on a machine that is too busy for its heartbeat: it connects again, and runs the page again."""


@contextmanager
def guarded_page(browser: Browser) -> Iterator[Page]:
    """An empty page; at its end a console error, an exception or a request beyond loopback is an AssertionError.

    Such a request is stopped, not only noticed.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    errors: list[str] = []
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    context.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: errors.append(str(error.error)))
    context.on("page", lambda opened: opened.on("websocket", lambda socket: requests.append(socket.url)))
    context.route(lambda url: not is_local(url), lambda route: route.abort())
    try:
        yield context.new_page()
    finally:
        context.close()
    foreign = [url for url in requests if not is_local(url)]
    errors = [error for error in errors if error != RECONNECTS]
    if foreign or errors:
        raise AssertionError(f"requests beyond loopback: {foreign}; errors: {errors}")
