"""Where the command line prints."""

from __future__ import annotations

import sys

from rich.console import Console

# No emoji: `agent.py:loop:` is a place, not a picture.
console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say(line: str) -> None:
    """Print a line of progress at once."""
    console.print(line, markup=False, soft_wrap=True)
    sys.stdout.flush()
