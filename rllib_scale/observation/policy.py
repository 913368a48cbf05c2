"""The Policy protocol: a rule, a planner, a user-defined scheduler or an exported policy."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.observation.view import View


class Answering(Protocol):
    """A rule that answers for one task after another, in one call for a whole round; see `schedulers.choosing`."""

    def __call__(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
        """(B,) server for the first candidate of each environment."""

    def answer_round(self, asks: int, shape: tuple[int, int], outcomes: np.ndarray, table: np.ndarray) -> None:
        """Answer for up to `asks` tasks of the one environment of an event engine."""


class Batch(Protocol):
    """Simulated environments that run to their next decision; see `simulator.engine.Engine`. Shapes: B of them."""

    @property
    def done(self) -> np.ndarray:
        """(B,) bool."""

    @property
    def observation(self) -> np.ndarray:
        """(B, W) float32 of the task on offer."""

    @property
    def fit(self) -> np.ndarray:
        """(B, K, N) how each row is for each candidate."""

    def view(self) -> View:
        """All environments in flat arrays."""

    def snapshot(self, b: int = 0) -> Snapshot:
        """One environment, with its workflows."""

    def step(self, actions: np.ndarray) -> None:
        """Answer for the task on offer in each environment."""

    def decide(self, rule: Answering) -> None:
        """Have a rule answer for the task on offer in each environment or, of a cluster in real time, in all rounds."""

    def dispatch(self, starts: np.ndarray) -> None:
        """Answer for any tasks that wait, and end the round."""


class Policy(Protocol):
    """Decides which task starts on which server.

    Attributes:
        name: as results and messages show it.
        description: one line.
        sees: whether it reads waiting tasks alone, or whole workflows.
        plans: whether it decides ahead, so that it cannot be asked about one state.
        per_task: whether it decides for the task on offer; otherwise it answers for any task that waits.
        can_be_asked: whether it can be asked for the server of one task, as imitation does.
        trial: what trained it; None: nothing did.
    """

    name: str
    description: str
    sees: Literal["tasks", "workflows"]
    plans: bool
    per_task: bool
    can_be_asked: bool
    trial: TrialConfig | None

    def problem(self, env: EnvConfig) -> EnvConfig:
        """The problem as this policy plays it: with its own feature set and decision rounds, where it has them.

        Raises:
            UserError: it cannot play the problem.
        """

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """Begin one episode in each environment. `seeds`: (seed, episode) of each, which decide every draw in it."""

    def advance(self, batch: Batch) -> None:
        """Decide in every environment that has not ended, and let it run to its next decision."""
