"""Where the command line prints."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

JSON = "rllib_scale.json"


def _make_writable() -> None:
    """Output that was closed goes nowhere; a character that it cannot hold becomes a question mark."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


_make_writable()
# No emoji: `agent.py:loop:` is a place, not a picture.
console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`: the command's table as JSON, alone on stdout; lines of progress go to stderr."""

    def asked(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[JSON] = value

    option = click.option(
        "--json", is_flag=True, expose_value=False, callback=asked, help="Print JSON in place of the table."
    )
    return option(command)


def show(table: Table, content: Any) -> None:
    """Print a table, or with `--json` what it shows: plain data; what is not finite is null."""
    if wants_json():
        print(json.dumps(_plain(content), indent=2, allow_nan=False))
    else:
        console.print(table)


def wants_json() -> bool:
    """Whether the command that runs was asked for JSON."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(JSON))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(line: str) -> None:
    """Print a line of progress at once."""
    if wants_json():
        errors.print(line, markup=False)
        return
    console.print(line, markup=False, soft_wrap=True)
    sys.stdout.flush()
