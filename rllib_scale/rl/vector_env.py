"""The vector environment that RLlib trains on: its seeds, the rows that it shows, and what it gives as a reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rllib_scale import plugins
from rllib_scale.config import EnvConfig, ProblemsConfig
from rllib_scale.envs.spaces import observation_space
from rllib_scale.envs.vector import SchedulingVectorEnv, StepResult
from rllib_scale.errors import UserError
from rllib_scale.plugins import unpinned
from rllib_scale.rl.drawn_problems import DrawnEngines, largest
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.random_numbers import mixed_seed, words_of

_TRAINING_STREAM = 1
"""Spawn key that keeps these seeds apart from any other use of the same numbers."""


@dataclass(frozen=True)
class TrainingStep:
    """One step of B environments, as a user-defined reward gets it.

    Attributes:
        observation: (B, W) float32 that the decision was made on, of the problem's feature set.
        action: (B,) the chosen server.
        outcome: (B,) its outcome, index into `rllib_scale.observation.answers.OUTCOMES`.
        elapsed_s: (B,) time from the decision to the next one, or to the end [s].
        clock_s: (B,) time of the next decision, or of the end [s].
        done: (B,) bool, whether the episode ended.
        reward: (B,) of the problem.
    """

    observation: NDArray[np.float32]
    action: NDArray[np.int64]
    outcome: NDArray[np.int64]
    elapsed_s: NDArray[np.float64]
    clock_s: NDArray[np.float64]
    done: NDArray[np.bool_]
    reward: NDArray[np.float64]


def own_reward(name: str) -> Callable[[TrainingStep], NDArray[np.float64]]:
    """A pinned, user-defined function from a step to rewards (B,).

    Raises:
        UserError: it does not exist; or, raised by the returned function, its result is no array (B,).
    """
    found = plugins.load("reward", name, [])[0]
    if not callable(found):
        raise UserError(f"reward {unpinned(name)!r}: is a {type(found).__name__}; valid: a function of a TrainingStep")

    def reward(step: TrainingStep) -> NDArray[np.float64]:
        given = np.asarray(plugins.call("reward", name, found, step))
        if given.shape != step.reward.shape or given.dtype.kind not in "biuf" or not np.isfinite(given).all():
            what = f"{given.dtype} {given.shape}" if given.shape != step.reward.shape else "no finite numbers"
            raise UserError(f"reward {unpinned(name)!r}: gave {what}; valid: finite numbers {step.reward.shape}")
        return given.astype(np.float64)

    return reward


def rllib_seed(trial_seed: int) -> int:
    """Seed of RLlib's own generators, which add a worker index and take 32 bits."""
    return int(np.random.SeedSequence(trial_seed).generate_state(1)[0]) >> 1


def workload_seed(trial_seed: int, worker: int, index: int) -> int:
    """Seed of environment `index` of environment runner `worker`: no evaluation's, and no neighbour's."""
    return mixed_seed(_TRAINING_STREAM, *words_of(trial_seed), worker, index)


def training_space(config: EnvConfig) -> gymnasium.spaces.Box:
    """Box of the rows that RLlib is given: an observation, and where the trial is masked, its mask (N,) of 0 and 1."""
    space = observation_space(config)
    if not config.masked:
        return space
    rows = config.cluster.num_rows
    # Observation and mask are one row: RLlib then needs no dictionary, which it would copy.
    low, high = np.append(space.low, np.zeros(rows)), np.append(space.high, np.ones(rows))
    return gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


def training_rows(engine: Engine | DrawnEngines) -> np.ndarray:
    """(B, width) rows of `training_space`, copied."""
    if not engine.config.masked:
        return engine.observation.copy()
    return np.concatenate([engine.observation, engine.mask[:, : engine.num_rows]], axis=1, dtype=np.float32)


class TrainingVectorEnv(SchedulingVectorEnv):
    """The vector environment of one environment runner, with the rows of `training_space`.

    RLlib seeds it once, by `rllib_seed` + worker index; that number becomes one workload seed for each environment.
    Where an episode is cut while no task waits there is no next decision to learn a value from: the last row of such an
    episode is that of its last decision.

    Args:
        num_envs: B.
        config: the problem.
        trial_seed: with RLlib's seed it decides the workload seeds.
        problems: episodes are of problems that are drawn; `config` is then the one to draw from, and the environment's
            own the largest of them.
        reward_unit: rewards are in this unit times the servers of the episode; None: as they are.
        reward: pinned name of a user-defined function, see `TrainingStep`; None: the problem's own reward.
    """

    def __init__(
        self,
        num_envs: int,
        config: EnvConfig,
        trial_seed: int,
        problems: ProblemsConfig | None = None,
        reward_unit: float | None = None,
        reward: str | None = None,
    ) -> None:
        super().__init__(num_envs, config if problems is None else largest(problems, config))
        self.trial_seed = trial_seed
        self.reward_unit = reward_unit
        self._own_reward = None if reward is None else own_reward(reward)
        self._width = observation_space(self.config).shape[0]  # width of the observation without the mask
        if problems is not None:
            self._engine: Any = DrawnEngines(config, problems, num_envs)
        self._rows = np.zeros((num_envs, *self.single_observation_space.shape), dtype=np.float32)  # type: ignore[misc]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """See `SchedulingVectorEnv.reset`."""
        if isinstance(seed, int):
            worker = (seed - rllib_seed(self.trial_seed)) % 2**32  # in a config of the user's any number
            seed = [workload_seed(self.trial_seed, worker, index) for index in range(self.num_envs)]
        return super().reset(seed=seed, options=options)

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        """See `SchedulingVectorEnv.step`."""
        # A step in which an episode begins has neither an answer nor a reward.
        begins, shown = self._ended, self._rows[:, : self._width]
        observations, reward, *rest = super().step(actions)
        if self._own_reward is not None:
            engine = self._engine
            came = {name: getattr(engine, name).copy() for name in ("outcome", "done")}
            times = {f"{name}_s": getattr(engine, name).copy() for name in ("elapsed", "clock")}
            step = TrainingStep(observation=shown, action=np.asarray(actions), reward=reward, **came, **times)
            reward = np.where(begins, 0.0, self._own_reward(step))
        # Divided by the servers, returns are of one size at any scale, which one critic can learn.
        if self.reward_unit is not None:
            # Episodes may be of clusters of different sizes side by side: each by its own number of servers.
            drawn = isinstance(self._engine, DrawnEngines)
            servers = self._engine.num_servers if drawn else self.config.cluster.num_servers
            reward = reward / (self.reward_unit * servers)
        return observations, reward, *rest

    def _spaces(self) -> tuple[gymnasium.Space[Any], gymnasium.spaces.Discrete]:
        return training_space(self.config), super()._spaces()[1]

    def _shown(self) -> np.ndarray:
        rows, engine = training_rows(self._engine), self._engine
        # A critic values what was to come from the last row, which must show a task.
        cut = engine.done & engine.truncated
        for b in np.flatnonzero(cut).tolist():
            if not engine.waits(b) and engine.metrics(b)["decisions"] > 0:
                rows[b] = self._rows[b]
        self._rows = rows
        return rows.copy()

    def _infos(self) -> dict[str, Any]:
        return {}

    def get_state(self) -> dict[str, Any]:
        """See `SchedulingVectorEnv.get_state`."""
        return super().get_state() | {"rows": self._rows.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `SchedulingVectorEnv.set_state`."""
        super().set_state(state)
        self._rows = state["rows"].copy()
