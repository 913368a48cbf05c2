"""What every format of workloads shares: its description, its mapping to demands, and the progress of an import."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rllib_scale.config.base import Model
from rllib_scale.errors import UserError
from rllib_scale.workloads.model import Workload

EVERY_S = 5.0
"""Seconds between two lines of progress."""


@dataclass
class Progress:
    """What an import says while it runs, what it has counted, and what becomes of a bad record.

    Attributes:
        say: gets one line at a time.
        skip_bad: go on without a bad record, having said so, rather than end with its error.
        counts: what was read, by its name in the summary ("sessions", "calls", ...).
        skipped: bad records gone without.
    """

    say: Callable[[str], None] = lambda line: None
    skip_bad: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    _said_at: float = field(default_factory=time.monotonic)

    def bad(self, error: UserError) -> None:
        """Go on without a bad record where that is wanted.

        Raises:
            UserError: the one given, where it is not.
        """
        if not self.skip_bad:
            raise error
        self.skipped += 1
        self.say(f"skipped: {error}")

    def advance(self, where: str) -> None:
        """Say how far the import is, every few seconds; call it as often as you like."""
        now = time.monotonic()
        if now - self._said_at >= EVERY_S:
            self._said_at = now
            self.say(f"{where}: " + ", ".join(f"{count:,} {name}" for name, count in self.counts.items()))


@dataclass(frozen=True)
class Format:
    """A format that workloads are imported from.

    Attributes:
        name: on the command line.
        description: one line for a list of formats.
        mapping: settings of how its numbers become compute demands, memory, outputs and delays; each field's
            description says what it is and where its default comes from, or that it is assumed.
        read: files or folders, the mapping and the progress to a workload. Raises `UserError`, one line with the file,
            its line or record, and the key, for whatever is wrong.
    """

    name: str
    description: str
    mapping: type[Model]
    read: Callable[[Sequence[Path], Any, Progress], Workload]
