"""The other interface of what decides: at each event it sees the whole system and starts any of the ready tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rllib_scale.config import DecisionMode, EnvConfig, MaskMode, ObservationConfig
from rllib_scale.config.schedulers import HEURISTICS, NoParameters
from rllib_scale.observation.policy import Batch
from rllib_scale.observation.snapshot import Snapshot


class Dispatcher(ABC):
    """Decides which ready tasks start now, and where; the others wait for a later event and block nobody.

    A `Scheduler` is asked for a server for one task, which the paper's level-1 rule has chosen. A dispatcher visits the
    ready tasks in an order of its own, and may hold a server back for a task that it wants there. It is asked whenever
    something happened (a task completed, a workflow arrived) and a task is ready. It makes no invalid decision, so the
    action mask is nothing to it.

    Subclasses implement `dispatch`, or `__call__` where all environments are to be decided on in one go (one forward
    pass of a network, say). State and generators are kept per environment, by `Snapshot.index`; `reset` begins anew.
    """

    name = ""
    description = ""
    takes: type[NoParameters] = NoParameters
    """As for `Scheduler`, with what follows; a rule that reads no `Snapshot.workflows` may set `sees = "tasks"`."""
    sees: Literal["tasks", "workflows"] = "workflows"
    plans, per_task, can_be_asked = False, False, False

    def __init__(self, parameters: NoParameters | None = None) -> None:
        """`parameters`: of its model in `rllib_scale.config.schedulers`, or of `takes`; None: the defaults."""
        known = HEURISTICS.get(self.name)
        self.parameters: Any = parameters or (known.parameters if known is not None else self.takes)()

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """Begin one episode per environment. `seeds`: (seed, episode) of each, which decide every draw in it."""
        self.generators = [np.random.default_rng(np.random.SeedSequence(seed)) for seed in seeds]

    @classmethod
    def make(
        cls, parameters: NoParameters, observation: ObservationConfig, mask: MaskMode, decision: DecisionMode
    ) -> Dispatcher:
        """One with these parameters, of the model in `takes`; observation, mask and decision concern rules alone."""
        return cls(parameters)

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`."""
        return env

    def advance(self, batch: Batch) -> None:
        """See `Policy.advance`."""
        batch.dispatch(self([batch.snapshot(b) for b in np.flatnonzero(~batch.done).tolist()]))

    @abstractmethod
    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """Tasks to start now in one environment: (K, 3) integers, workflow, task, server; K may be 0.

        Each a row of `Snapshot.ready`, each on another idle server with enough memory. They start in this order.
        """

    def __call__(self, snapshots: Sequence[Snapshot]) -> np.ndarray:
        """Tasks to start in several environments of a batch: (K, 4) integers, as `Engine.dispatch` takes them."""
        starts = [np.zeros((0, 4), dtype=np.int64)]
        for snapshot in snapshots:
            chosen = self.dispatch(snapshot)
            starts.append(np.column_stack([np.full(len(chosen), snapshot.index), chosen]))
        return np.concatenate(starts)
