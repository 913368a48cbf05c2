"""Answers of a scheduler for a waiting task, and their outcomes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rllib_scale.config import EnvConfig

OUTCOMES = ("started", "waits", "busy", "no_fit", "passed")
"""Outcomes: the task started; it waits for a busy or reserved server; the server is busy, and nothing was done; the
server is empty, away, draining or too small; the task was passed over."""
STARTED, WAITS, BUSY, NO_FIT, PASSED = range(len(OUTCOMES))

PASS = -1
"""In place of a server: the task is passed over."""


class Answer(NamedTuple):
    """A scheduler's answer for one waiting task."""

    workflow: int
    task: int  # index in the workflow
    server: int  # on which it starts, or which it waits for; or PASS


CLOSED, TAKEN, OPEN = range(3)
"""State of a server for a task: it can never start there; it fits, but not now; it could start now."""


def action_mask(config: EnvConfig, fit: np.ndarray) -> np.ndarray:
    """(B, K N + 1): the answers that do something.

    Servers that are OPEN for a candidate; with `on_busy: reserve` and no mask, also those to wait for. Where there
    is none for any candidate, as only without a mask, all but the empty rows, for the first one: time passes
    whichever is named. A pass always.
    """
    waits = config.decision.on_busy == "reserve" and config.episode.mask == "none"
    named = (fit >= (TAKEN if waits else OPEN)).reshape(len(fit), -1)
    there = np.arange(named.shape[1]) < config.cluster.num_servers  # of the first candidate
    named = np.where(named.any(axis=1, keepdims=True), named, there)
    return np.concatenate([named, np.ones((len(fit), 1), dtype=bool)], axis=1)
