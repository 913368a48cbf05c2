"""Many clusters under one agent: a vector environment over one batched engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.envs.scheduling import SchedulingEnv
from rllib_scale.envs.spaces import (
    MAX_SEED,
    CandidatesForm,
    FlatForm,
    check_index,
    check_render_mode,
    read_options,
    resolve_config,
)
from rllib_scale.errors import UserError
from rllib_scale.simulator.engine import make_engine

Flags = NDArray[np.bool_]
StepResult = tuple[Any, NDArray[np.float64], Flags, Flags, dict[str, Any]]


class SchedulingVectorEnv(FlatForm, VectorEnv[Any, NDArray[np.int64], NDArray[Any]]):
    """B environments, each exactly a `SchedulingEnv`, stepped by one compiled call.

    Equal step by step to a `gymnasium.vector.SyncVectorEnv` of B single environments: NEXT_STEP autoreset (the step
    after an end starts the environment's next episode; its action is ignored, its reward is 0), an integer seed s
    gives environment i the seed s + i, and infos are batched with their `_` masks. All arrays that are returned are
    fresh: they may be kept.

    Args:
        num_envs: B.
        config: as for `SchedulingEnv`.
        render_mode: as for `SchedulingEnv`.
    """

    metadata: dict[str, Any] = SchedulingEnv.metadata | {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        config: str | Mapping[str, Any] | EnvConfig | None = None,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs must be at least 1 (got {num_envs})")
        check_render_mode(render_mode)
        self.config = resolve_config(config)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space, actions = self._spaces()
        self.single_action_space, self._num_actions = actions, int(actions.n)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._engine = make_engine(self.config, num_envs)
        self._seeds: NDArray[np.int64] | None = None
        self._episodes = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment.

        Args:
            seed: None goes on with the next episode of each environment's seed; s means s, s + 1, ...;
                or one seed, or None, for each environment.
            options: as for `SchedulingEnv`, the same for every environment; `episode` may be a sequence, one for each.

        Raises:
            UserError: impossible seed or option, or a workload that is invalid or does not fit the cluster.
        """
        workload, episode = read_options(options, self.config)
        seeds, episodes = self._next_episodes(seed)
        if episode is not None:
            given = episode if isinstance(episode, (Sequence, np.ndarray)) else [episode] * self.num_envs
            episodes = np.array([check_index("episode", k) for k in self._one_each("episode", given)])
        super().reset(seed=seed if isinstance(seed, int) else None)
        self._engine.reset(seeds, episodes, workload=workload)
        self._seeds, self._episodes = seeds, episodes
        self._ended = np.zeros(self.num_envs, dtype=bool)
        return self._shown(), self._infos()

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        """Choose the server of the current task in every environment.

        Returns:
            Observations (B, W), rewards, terminations and truncations (B,), infos.

        Raises:
            UserError: the actions are outside the action space.
        """
        if self._seeds is None:
            raise ResetNeeded("call reset() before step()")
        actions = np.asarray(actions)
        count = self._num_actions
        is_integer = actions.shape == (self.num_envs,) and actions.dtype.kind in "iu"
        if not is_integer or actions.min() < 0 or actions.max() >= count:
            raise UserError(f"actions must be {self.num_envs} integers from 0 to {count - 1} (got {actions})")
        engine = self._engine
        begins = self._ended
        self._episodes[begins] += 1
        engine.step(self._answers(actions), begin=(begins, self._seeds, self._episodes))
        reward, done = engine.reward.copy(), engine.done & ~begins
        truncated = done & engine.truncated
        infos = self._infos()
        for b in np.flatnonzero(done).tolist():
            infos = self._add_info(infos, {"metrics": engine.metrics(b)}, b)
        self._ended = done
        return self._shown(), reward, done & ~truncated, truncated, infos

    def _infos(self) -> dict[str, Any]:
        mask = self._engine.mask[:, : self._num_actions]
        all_there = np.ones(self.num_envs, dtype=bool)
        infos = {"action_mask": mask.astype(np.int8), "elapsed_s": self._engine.elapsed.copy()}
        return infos | {f"_{name}": all_there.copy() for name in infos}

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:  # type: ignore[override]
        """Gantt chart of each environment's episode so far, (H, W, 3) uint8; None without a render mode."""
        if self.render_mode is None:
            return None
        from rllib_scale.envs.gantt import draw_gantt, to_rgb

        clock = self._engine.clock
        charts = (draw_gantt(self.schedule(b), self.config.cluster, float(clock[b])) for b in range(self.num_envs))
        return tuple(to_rgb(chart) for chart in charts)

    def schedule(self, index: int = 0) -> np.ndarray:
        """Every task started so far in one environment; columns as `SchedulingEnv.schedule`."""
        return self._engine.schedule(index)

    def get_state(self) -> dict[str, Any]:
        """Everything that `set_state` needs to go on exactly from here."""
        return {
            "engine": self._engine.get_state(),
            "seeds": None if self._seeds is None else self._seeds.copy(),
            "episodes": self._episodes.copy(),
            "ended": self._ended.copy(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was called, on a vector environment of the same config and size."""
        self._engine.set_state(state["engine"])
        self._seeds = None if state["seeds"] is None else state["seeds"].copy()
        self._episodes, self._ended = state["episodes"].copy(), state["ended"].copy()

    def _next_episodes(self, seed: int | Sequence[int | None] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Seed and episode of each environment after a reset with `seed`."""
        if self._seeds is None:
            seeds = self.np_random.integers(MAX_SEED, size=self.num_envs)
            episodes = np.zeros(self.num_envs, dtype=np.int64)
        else:
            seeds, episodes = self._seeds.copy(), self._episodes + 1
        if seed is None:
            return seeds, episodes
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + i for i in range(self.num_envs)]
        for i, own_seed in enumerate(self._one_each("seed", seed)):
            if own_seed is not None:
                seeds[i], episodes[i] = check_index("seed", own_seed), 0
        return seeds, episodes

    def _one_each(self, name: str, values: Sequence[Any] | NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
        if len(values) != self.num_envs:
            raise UserError(f"{name}: {len(values)} values for {self.num_envs} environments; one each is needed")
        return values


class CandidatesVectorEnv(CandidatesForm, SchedulingVectorEnv):
    """B environments, each exactly a `CandidatesEnv`; see `SchedulingVectorEnv`."""
