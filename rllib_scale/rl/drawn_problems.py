"""Training on a range of problems: the number of servers and the load are drawn for each episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig, ProblemsConfig
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.family import draw_played
from rllib_scale.workloads.random_numbers import words_of

_PROBLEM_STREAM = 2
"""Spawn key that separates these draws from those of workloads, which have the same seeds."""


def padded(env: EnvConfig, rows: int) -> EnvConfig:
    """The problem with empty rows after its servers, `rows` in all."""
    cluster = env.cluster.model_copy(update={"empty_slots": rows - env.cluster.num_servers})
    return env.model_copy(update={"cluster": cluster})


def largest(problems: ProblemsConfig, env: EnvConfig) -> EnvConfig:
    """The problem with the most rows: its spaces hold all the others."""
    if problems.family is not None:
        return env.model_copy(update={"cluster": problems.family.largest})
    return max(problems.all(env), key=lambda each: each.cluster.num_rows)


def draw_problem(problems: ProblemsConfig, env: EnvConfig, seed: int, episode: int) -> EnvConfig:
    """The problem of an episode, decided by (seed, episode); padded to the rows of the largest."""
    rows = largest(problems, env).cluster.num_rows
    if problems.family is not None:
        return padded(draw_played(problems, env, seed, episode), rows)
    sequence = np.random.SeedSequence(words_of(seed, episode), spawn_key=(_PROBLEM_STREAM,))
    u, v = np.random.default_rng(sequence).random(2)
    return padded(problems.draw(env, u, v), rows)


def _concatenated(name: str) -> Any:
    """An attribute of `Engine` for all environments of `DrawnEngines`."""
    return property(lambda self: np.concatenate([getattr(engine, name) for engine in self._engines]))


class DrawnEngines:
    """B environments with one engine each, as each plays another problem; a vector environment sees one engine.

    Args:
        config: the problem that `problems` varies.
        problems: the distribution of problems.
        num_envs: B.
    """

    def __init__(self, config: EnvConfig, problems: ProblemsConfig, num_envs: int) -> None:
        self.config = largest(problems, config)
        self.num_rows = self.config.cluster.num_rows
        self.num_envs = num_envs
        self._drawn_of = config
        self._problems = problems
        self._engines = [Engine(self.config) for _ in range(num_envs)]
        self._playing = [(0, 0)] * num_envs

    @property
    def num_servers(self) -> NDArray[np.int64]:
        """(B,) of the problem that each plays."""
        return np.array([engine.config.cluster.num_servers for engine in self._engines])

    def reset(
        self,
        seeds: Sequence[int] | NDArray[np.int64],
        episodes: Sequence[int] | NDArray[np.int64],
        workload: None = None,
    ) -> None:
        """Begin the episodes (seed, episode), (B,) each."""
        if workload is not None:
            raise ValueError("workload: not with drawn problems, whose workloads are drawn")
        for b in range(self.num_envs):
            self._begin(b, int(seeds[b]), int(episodes[b]))

    def step(
        self, actions: NDArray[np.int64], begin: tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]
    ) -> None:
        """See `Engine.step`."""
        which, seeds, episodes = begin
        for b, engine in enumerate(self._engines):
            if which[b]:
                self._begin(b, int(seeds[b]), int(episodes[b]))
            else:
                engine.step(actions[b : b + 1])

    def _begin(self, b: int, seed: int, episode: int) -> None:
        self._playing[b] = (seed, episode)
        # Another problem has another cluster: the arrays of the former engine do not fit it.
        self._engines[b] = Engine(draw_problem(self._problems, self._drawn_of, seed, episode))
        self._engines[b].reset([seed], [episode])

    observation, mask = _concatenated("observation"), _concatenated("mask")
    reward, outcome, elapsed, clock = (
        _concatenated("reward"),
        _concatenated("outcome"),
        _concatenated("elapsed"),
        _concatenated("clock"),
    )
    done, truncated = _concatenated("done"), _concatenated("truncated")

    def waits(self, b: int) -> bool:
        """See `Engine`; b is the environment."""
        return self._engines[b].waits()

    def metrics(self, b: int) -> dict[str, float | int]:
        """See `Engine`; b is the environment."""
        return self._engines[b].metrics()

    def get_state(self) -> dict[str, Any]:
        """State for `set_state`."""
        return {"playing": list(self._playing), "engines": [engine.get_state() for engine in self._engines]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Resume where `get_state` was called."""
        self._playing = list(state["playing"])
        for b, (seed, episode) in enumerate(self._playing):
            self._engines[b] = Engine(draw_problem(self._problems, self._drawn_of, seed, episode))
            self._engines[b].set_state(state["engines"][b])
