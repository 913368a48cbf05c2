"""`rllib-scale dashboard` refuses what it cannot serve in one line; its server is tried in tests/browser."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rllib_scale_analysis.dashboard import serve

from rllib_scale.cli import main


def refuse(*arguments: object) -> str:
    """The one line on stderr of a command that refuses its input."""
    result = CliRunner().invoke(main, ["dashboard", *map(str, arguments)])
    assert result.exit_code == 2, (result.exit_code, result.exception)
    (line,) = result.stderr.splitlines()
    return line


def test_a_missing_package_a_missing_folder_and_a_port_in_use_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refuse(tmp_path / "none") == f"Error: {tmp_path / 'none'}: no such results folder"
    assert "65535" in refuse(tmp_path, "--port", 65536)
    with socket.socket() as other:
        other.bind((serve.ADDRESS, 0))
        other.listen()
        port = other.getsockname()[1]
        assert refuse(tmp_path, "--port", port).startswith(f"Error: --port {port}: cannot be used")
    for url in ("hub.example.org/me", "ftp://hub/me", "https:///me"):
        assert refuse(tmp_path, "--hub", url) == f"Error: --hub {url}: must be a URL as https://HOST/PATH"
    for package in ("streamlit", "plotly"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            assert "pip install --constraint constraints.txt --editable '.[dashboard]'" in refuse(tmp_path)
