"""Starts the dashboard: Streamlit on loopback, without usage statistics, without opening a browser."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from rllib_scale.errors import UserError, extra, require_free_port
from rllib_scale.results.storage import Location

from ..load import reader_of

ADDRESS = "127.0.0.1"
OPTIONS = {
    "server.address": ADDRESS,
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "browser.serverAddress": ADDRESS,
    "global.disableWidgetStateDuplicationWarning": "true",  # a kept choice goes before the default, as it should
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "type",
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#56B4E9",
}


def serve(homes: Sequence[Location], port: int | None, hub: str | None = None) -> NoReturn:
    """Serve the page of results until Ctrl-C.

    Args:
        homes: results folders; they may be without results yet.
        port: None: 8501, or the next free one.
        hub: URL under which a hub or a reverse proxy shows the page; None: no such.

    Raises:
        UserError: Streamlit is not installed, the folder is missing, or the port is in use.
    """
    for home in homes:
        if home.local is not None and not home.local.is_dir():
            raise UserError(f"{home}: no such results folder")
    if any(importlib.util.find_spec(name) is None for name in ("streamlit", "plotly")):
        raise UserError(f"the dashboard needs Streamlit and plotly; {extra('dashboard')}")
    options = dict(OPTIONS)
    if port is not None:
        require_free_port(ADDRESS, port)
        options["server.port"] = str(port)
    if hub is not None:
        options |= behind(hub)
    script = Path(__file__).with_name("app.py")
    from streamlit.web import cli

    # Imports and the first read take seconds: they begin before the first visit.
    from . import charts, episodes  # noqa: F401

    threading.Thread(target=reader_of(*homes).read, daemon=True).start()
    arguments = ["run", str(script), *(f"--{name}={value}" for name, value in options.items()), "--", *map(str, homes)]
    sys.exit(cli.main(arguments, prog_name="streamlit"))


def behind(hub: str) -> dict[str, str]:
    """Options for a page that a hub or a reverse proxy shows: the path, and the host from which browsers may connect.

    >>> behind("https://hub.example.org/user/me/proxy/absolute/8501/")
    {'server.baseUrlPath': 'user/me/proxy/absolute/8501', 'browser.serverAddress': 'hub.example.org'}

    Raises:
        UserError: it is no URL.
    """
    parts = urlsplit(hub)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"--hub {hub}: must be a URL as https://HOST/PATH")
    return {"server.baseUrlPath": parts.path.strip("/"), "browser.serverAddress": parts.hostname}
