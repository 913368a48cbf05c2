"""Interface of a workload format, and the progress of an import."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
MAX_UNREAD = 200
"""Names of keys that are not read and counted one by one; a damaged file may have any number."""


class Seen:
    """Records read so far, by their id in the source; repetitions are counted and left out."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._known: set[int] = set()  # 64 bits of each: a whole text of each of millions would not fit

    def is_repeated(self, what: str, *names: object) -> bool:
        """Whether one with these names was read before; without any of them it cannot be told, and is not."""
        return None not in names and self.is_equal(f"{what} that were read before", *names)

    def is_equal(self, counted: str, *values: object) -> bool:
        """Whether these values were given before, which is counted."""
        size = len(self._known)
        self._known.add(hash((counted, values)))
        if len(self._known) > size:
            return False
        self._counts[counted] += 1
        return True


@dataclass
class Progress:
    """Messages and counts of an import, and whether it skips bad records.

    Attributes:
        say: prints a line.
        skip_bad: report a bad record and skip it, instead of ending with its error.
        counts: what was read, by name in the summary ("sessions", "calls", ...).
        skipped: bad records so far.
        seen: records that were read.
        unread: how often records had keys that the format does not read, by their path.
        first_arrival_s: when the first workflow arrived by the source's clock [s]; arrivals count from it.
    """

    say: Callable[[str], None] = lambda line: None
    skip_bad: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    seen: Seen = field(init=False)
    unread: Counter[str] = field(default_factory=Counter)
    first_arrival_s: float = 0.0
    _said_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.seen = Seen(self.counts)

    def bad(self, error: UserError, parts: str = "") -> None:
        """Report a bad record, and the parts of it that are skipped with it.

        Raises:
            UserError: the one given, unless bad records are skipped.
        """
        if not self.skip_bad:
            raise error
        self.skipped += 1
        self.say(f"skipped: {error}{parts and f' (with all of it: {parts})'}")

    def count_unread(self, names: Iterable[str]) -> None:
        """Count keys that are not read, by their path."""
        for name in names:
            known = name in self.unread or len(self.unread) < MAX_UNREAD
            self.unread[name if known else "other keys"] += 1

    def advance(self, where: str) -> None:
        """Say what was read so far, at most every few seconds."""
        now = time.monotonic()
        if now - self._said_at >= EVERY_S:
            self._said_at = now
            found = ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count)
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
