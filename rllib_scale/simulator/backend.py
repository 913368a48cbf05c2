"""The simulator for a loop of one's own: wait until a task waits, answer for some tasks, wait again."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import OUTCOMES, Answer
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload

NOTHING = np.zeros((0, 4), dtype=np.int64)


class SimulatedBackend:
    """One episode of the simulator, decided on in rounds.

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
        """End the round, if one is open, and let time pass until a task waits; None: nothing will any more."""
        if self._has_begun:
            self.engine.dispatch(NOTHING)
        self._has_begun = True
        return None if self.engine.done[0] else self.engine.snapshot()

    def snapshot(self) -> Snapshot:
        """The state now, within a round."""
        return self.engine.snapshot()

    def apply(self, answer: Answer) -> str:
        """Carry out an answer now; what comes of it is one of observation.answers.OUTCOMES.

        An answer that cannot be carried out (`busy`, `no_fit`) changes nothing.

        Raises:
            ValueError: no such task waits.
        """
        return OUTCOMES[self.engine.answer(0, *answer)]
