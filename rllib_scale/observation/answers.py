"""What a scheduler may answer for a task that waits, and what comes of it."""

from __future__ import annotations

OUTCOMES = ("started", "waits", "busy", "no_fit", "passed", "preempted")
"""Of an answer: the task started; it waits for a busy or reserved row; the row is busy, and nothing was done; the row
is empty, away, draining or too small; the task was passed over; a running task was stopped."""
STARTED, WAITS, BUSY, NO_FIT, PASSED, PREEMPTED = range(len(OUTCOMES))

CLOSED, TAKEN, OPEN = range(3)
"""How a row is for a task: it can never start there; it fits, but not now; it could start now."""
