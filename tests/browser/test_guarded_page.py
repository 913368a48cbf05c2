"""The page of the browser tests notices what it is there to notice."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from browser_page import guarded_page

pytestmark = pytest.mark.browser


def visit(browser: Browser, content: str) -> None:
    with guarded_page(browser) as page:
        page.set_content(content)
        page.wait_for_timeout(200)


@pytest.mark.parametrize(
    ("content", "noticed"),
    [
        ("<img src='http://192.0.2.1/pixel.png'>", "192.0.2.1/pixel.png"),
        ("<script>fetch('https://example.invalid/').catch(() => 0)</script>", "example.invalid"),
        ("<script>new WebSocket('ws://192.0.2.1/live')</script>", "ws://192.0.2.1/live"),
        ("<script>console.error('it broke')</script>", "it broke"),
        ("<script>throw new Error('not caught')</script>", "not caught"),
    ],
)
def test_what_it_must_not_do_fails_the_test(browser: Browser, content: str, noticed: str) -> None:
    with pytest.raises(AssertionError, match=noticed):
        visit(browser, content)


def test_a_quiet_page_passes(browser: Browser) -> None:
    with guarded_page(browser) as page:
        page.set_content("<h1>Hello</h1><img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>")
        assert page.inner_text("h1") == "Hello"
