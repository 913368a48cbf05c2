"""The replay buffer of DQN and SAC: transitions in arrays, drawn uniformly by a seeded generator.

RLlib's EpisodeReplayBuffer keeps episode objects and cuts a new one out for every row it draws, and its generator
takes no seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode


class ReplayBuffer:
    """The newest rows of a ring of `capacity` rows.

    An observation is stored once: the row after a transition holds what came next. Every piece of an episode
    therefore takes one row more than it has steps, and that row is never drawn.

    Args:
        capacity: rows.
        width: of an observation.
        generator: of the draws.
    """

    def __init__(self, capacity: int, width: int, generator: np.random.Generator) -> None:
        self.capacity = capacity
        self._generator = generator
        self._written = 0  # rows ever
        self._rows: dict[str, np.ndarray] = {
            "observation": np.zeros((capacity, width), dtype=np.float32),
            "action": np.zeros(capacity, dtype=np.int64),
            "reward": np.zeros(capacity, dtype=np.float32),
            "terminated": np.zeros(capacity, dtype=bool),
            "is_step": np.zeros(capacity, dtype=bool),
        }
        self._steps = np.zeros(0, dtype=np.int64)  # rows that can be drawn

    def __len__(self) -> int:
        """Transitions that can be drawn."""
        return len(self._steps)

    def add(self, episodes: Iterable[SingleAgentEpisode]) -> None:
        """Append episodes, or pieces of them, over the oldest rows where the ring is full."""
        rows = self._rows
        for episode in episodes:
            length = len(episode)
            # Steps, and one row for the last observation, which is the next one of the last step.
            at = (self._written + np.arange(length + 1)) % self.capacity
            rows["observation"][at] = episode.get_observations()
            rows["action"][at[:-1]] = episode.get_actions()
            rows["reward"][at[:-1]] = episode.get_rewards()
            rows["terminated"][at] = False
            # Only the last step can be terminal; of one that was cut, the value of what follows is bootstrapped.
            rows["terminated"][at[-2]] = episode.is_terminated
            rows["is_step"][at] = np.arange(length + 1) < length
            self._written += length + 1
        # A transition whose next row was overwritten lost its own row before: rows are overwritten oldest first.
        self._steps = np.flatnonzero(rows["is_step"])

    def sample(self, count: int) -> dict[str, np.ndarray]:
        """Draw `count` transitions with replacement, with the columns of RLlib's losses."""
        drawn = self._steps[self._generator.integers(len(self._steps), size=count)]
        rows = self._rows
        return {
            Columns.OBS: rows["observation"][drawn],
            Columns.NEXT_OBS: rows["observation"][(drawn + 1) % self.capacity],
            Columns.ACTIONS: rows["action"][drawn],
            Columns.REWARDS: rows["reward"][drawn],
            Columns.TERMINATEDS: rows["terminated"][drawn],
            "weights": np.ones(count, dtype=np.float32),  # all as important
            "n_step": np.ones(count, dtype=np.float32),
        }

    def get_state(self) -> dict[str, Any]:
        """State for `set_state`, without unused rows."""
        # Until the ring is full its end is untouched, and need not be saved.
        size = min(self._written, self.capacity)
        return {
            "rows": {name: array[:size].copy() for name, array in self._rows.items()},
            "written": self._written,
            "generator": self._generator.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Resume where `get_state` was called, on a buffer of the same capacity and width."""
        for name, array in state["rows"].items():
            self._rows[name][:] = False
            self._rows[name][: len(array)] = array
        self._written = state["written"]
        self._generator.bit_generator.state = state["generator"]
        self._steps = np.flatnonzero(self._rows["is_step"])
