"""Random answers of every kind that a mode allows: everything follows from one generator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reference.simulator import ReferenceSimulator
from rllib_scale.simulator.engine import Engine


def random_answer(rng: np.random.Generator, engine: Engine, b: int = 0) -> int:
    """Any answer that the engine takes; one that starts a task more often than not."""
    opened = np.flatnonzero(engine.fit[b].ravel() == 2)
    if len(opened) and rng.random() < 0.6:
        return int(rng.choice(opened))
    rows = engine.config.cluster.num_rows
    passes = engine.candidates * rows
    named = len(engine.offers(b)) * rows
    return passes if rng.random() < 0.2 or not named else int(rng.integers(named))


class RandomActions:
    """Flat answers of every kind, in shares drawn once an episode; a kind that is impossible gives way to another."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.shares = rng.dirichlet([3.0, 1.0, 0.3, 0.4])

    def kinds(self, simulator: ReferenceSimulator) -> list[np.ndarray]:
        """Flat actions that start a task, name a server that is taken, or one that is closed; pass."""
        fit = simulator.fit()[: len(simulator.offered)].ravel()
        passes = simulator.config.decision.offered * len(simulator.servers)
        return [*(np.flatnonzero(fit == value) for value in (2, 1, 0)), np.array([passes])]

    def __call__(self, simulator: ReferenceSimulator) -> int:
        kinds = self.kinds(simulator)
        kind = self.rng.choice(len(kinds), p=self.shares)
        while not len(kinds[kind]):
            kind = self.rng.integers(len(kinds))
        return int(self.rng.choice(kinds[kind]))

    def impossible(self, simulator: ReferenceSimulator) -> int | None:
        """An action that must be refused, where there is one."""
        last = simulator.config.decision.offered * len(simulator.servers) + len(simulator.places())
        possible = np.concatenate(self.kinds(simulator))
        refused = np.setdiff1d(np.arange(last + 1), possible)
        return int(self.rng.choice(refused)) if len(refused) else None


class RandomDispatch:
    """Answers of a dispatcher, each drawn when those before it have been played; `given` holds the last ones."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.eagerness = rng.uniform(0.2, 1)
        self.given: list[tuple[int, int, int]] = []

    def __call__(self, simulator: ReferenceSimulator) -> Iterator[tuple[int, int, int]]:
        self.given = []
        answered = set()
        for _ in range(int(self.rng.integers(0, 2 + 2 * len(simulator.ready)))):
            answer = self._named(simulator, answered)
            if answer is not None:
                answered.add(answer[:2])
                self.given.append(answer)
                yield answer

    def _named(self, simulator: ReferenceSimulator, answered: set[tuple[int, int]]) -> tuple[int, int, int] | None:
        """A task that has not been answered for, on an open server or one to wait for."""
        tasks = [t for t in simulator.waiting() if (t.workflow.index, t.index) not in answered]
        if not tasks or self.rng.random() > self.eagerness:
            return None
        task = tasks[self.rng.integers(len(tasks))]
        servers = simulator.feasible_servers(task)
        if simulator.config.decision.on_busy == "reserve" and (not servers or self.rng.random() < 0.3):
            servers = [server for server in simulator.servers if server.fits(task)]
        if not servers:
            return None
        return task.workflow.index, task.index, servers[self.rng.integers(len(servers))].index
