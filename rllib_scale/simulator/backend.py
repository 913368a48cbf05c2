"""The simulator as a backend."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import OUTCOMES
from rllib_scale.observation.backend import Answer
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload

NOTHING = np.zeros((0, 4), dtype=np.int64)


class SimulatedBackend:
    """One episode of the simulator, played as any `Backend` is.

    Args:
        config: the problem. Its mask plays no part.
        seed: with the episode what decides workload, estimates and changes.
        episode: number of it.
        workload: played in place of a drawn one.
    """

    def __init__(self, config: EnvConfig, seed: int = 0, episode: int = 0, workload: Workload | None = None) -> None:
        self.engine = Engine(config)
        self.engine.reset([seed], [episode], workload=workload)
        self._has_begun = False

    def wait(self) -> Snapshot | None:
        """See `Backend.wait`."""
        if self._has_begun:
            self.engine.dispatch(NOTHING)
        self._has_begun = True
        return None if self.engine.done[0] else self.engine.snapshot()

    def snapshot(self) -> Snapshot:
        """See `Backend.snapshot`."""
        return self.engine.snapshot()

    def apply(self, answer: Answer) -> str:
        """See `Backend.apply`."""
        return OUTCOMES[self.engine.answer(0, *answer)]
