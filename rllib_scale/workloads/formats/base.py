"""What a format of workloads is, and the progress of an import."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from rllib_scale.config.base import Model, NonNegative
from rllib_scale.errors import UserError

if TYPE_CHECKING:
    from rllib_scale.workloads.formats.sessions import Sessions
    from rllib_scale.workloads.model import Workload

EVERY_S = 5.0
"""Seconds between two lines of progress."""


@dataclass
class Progress:
    """Messages and counts of an import, and whether it skips bad records.

    Attributes:
        say: prints a line.
        skip_bad: report a bad record and skip it, instead of ending with its error.
        counts: what was read, by name in the summary ("sessions", "calls", ...).
        skipped: bad records so far.
        unread: how often records had keys that the format does not read, by their path.
        first_arrival_s: when the first workflow arrived by the source's clock [s]; arrivals count from it.
    """

    say: Callable[[str], None] = lambda line: None
    skip_bad: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    first_arrival_s: float = 0.0
    _said_at: float = field(default_factory=time.monotonic)

    def bad(self, error: UserError) -> None:
        """Report a bad record.

        Raises:
            UserError: the one given, unless bad records are skipped.
        """
        if not self.skip_bad:
            raise error
        self.skipped += 1
        self.say(f"skipped: {error}")

    def advance(self, where: str) -> None:
        """Say what was read so far, at most every few seconds."""
        now = time.monotonic()
        if now - self._said_at >= EVERY_S:
            self._said_at = now
            found = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
            self.say(f"{where}: {found or 'no record yet'}")


class Undated(Model):
    """Settings of a format whose recordings have no common clock."""

    arrival_gap_s: NonNegative = Field(
        default=0.0, description="time from the arrival of a workflow to that of the next, in the order read [assumed]"
    )


@dataclass(frozen=True)
class Format:
    """A format that workloads are imported from.

    Attributes:
        name: on the command line.
        description: one line for a list of formats.
        mapping: the settings that turn its numbers into compute demands, memory, outputs and delays; each field's
            description says what it is and where its default comes from.
        read: makes a workload of files or folders, the mapping and the progress. Raises `UserError`, one line with the
            file, its line or record, and the key, for whatever is wrong.
        collect: adds the sessions of files or folders to `Sessions`, if the format has any; errors as in `read`.
    """

    name: str
    description: str
    mapping: type[Model]
    read: Callable[[Sequence[Path], Any, Progress], Workload]
    collect: Callable[[Sequence[Path], Sessions], None] | None = None
