"""Vector environment of copies of one episode, so that returns differ by the decisions alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig, ProblemsConfig
from rllib_scale.config.network import CrossAttentionConfig
from rllib_scale.envs.spaces import NO_LIMIT
from rllib_scale.envs.vector import StepResult
from rllib_scale.observation.relative import RELATIVE
from rllib_scale.rl.drawn_problems import draw_problem, largest
from rllib_scale.rl.vector_env import rllib_seed, workload_seed
from rllib_scale.schedulers.asked_visits import AskedVisits
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload


class CopiesVectorEnv(VectorEnv[Any, Any, Any]):
    """G copies of one episode, in rounds in the order of `adaptive-price`; see `AskedVisits`.

    Each copy's action is the server for the task that it visits; the observation is that task's row of the feature set
    `relative`. No clock advances before the rounds of all copies are over. `begin` starts the next group.

    Args:
        num_envs: G.
        config: the problem.
        trial_seed: with RLlib's seed it decides the episodes.
        problems: each group draws one of them; None: `config` is played.
        network: as for `AskedVisits`.

    Attributes:
        engine: plays the group.
        visits: its rounds.
        earned: (G,) reward of each copy since its last decision.
        passed: (G,) time since then [s].
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int,
        config: EnvConfig,
        trial_seed: int,
        problems: ProblemsConfig | None,
        network: CrossAttentionConfig,
    ) -> None:
        self.num_envs, self.config, self.problems, self.trial_seed = num_envs, config, problems, trial_seed
        self.network = network
        rows = (config if problems is None else largest(problems, config)).cluster.num_rows
        shape = (RELATIVE.width(rows),)
        self.single_observation_space = gymnasium.spaces.Box(-NO_LIMIT, NO_LIMIT, shape, dtype=np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(rows)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seed, self._group = 0, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a group: the first one of a seed, RLlib's and the worker's index, or the next one."""
        if isinstance(seed, int):
            self._seed, self._group = workload_seed(self.trial_seed, (seed - rllib_seed(self.trial_seed)) % 2**32, 0), 0
        self.begin()
        return self.rows.copy(), {}

    def begin(self, workload: Workload | None = None) -> None:
        """Begin the next group, with the given workload if any."""
        # One seed and one episode for all copies: the mean of their returns is a baseline.
        env, seeds = self.config, [self._seed] * self.num_envs
        if self.problems is not None:
            env = draw_problem(self.problems, env, self._seed, self._group)
        self.engine = Engine(env, self.num_envs)
        self.engine.reset(seeds, [self._group] * self.num_envs, workload=workload)
        self.earned, self.passed = np.zeros((2, self.num_envs))
        self._group += 1
        transfers = self.engine.config.communication.mode == "transfer"
        self.visits = AskedVisits(self.num_envs, transfers, self.network)
        self._run()

    @property
    def rows(self) -> NDArray[Any]:
        """(G, width) float32 of the decisions."""
        return self.visits.rows

    @property
    def deciding(self) -> NDArray[np.int64]:
        """Numbers (A,) of the copies that decide now; none: all have ended."""
        return np.flatnonzero(self.visits.current >= 0)

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        """Give server (G,) of each copy that decides to the task that it visits; those of the others are ignored."""
        # Reward and time until now belong to the decision before: reset the sums.
        asked = self.deciding
        self.earned[asked] = self.passed[asked] = 0.0
        self.visits.choose(actions)
        if not len(self.deciding):
            self._carry_out()
            self._run()
        done, cut = self.engine.done, self.engine.truncated
        return self.rows, self.earned, done & ~cut, done & cut, {}

    def _run(self) -> None:
        """Let time pass until a copy decides or all have ended."""
        while not self.engine.done.all():
            self.visits.begin(self.engine.view())
            if len(self.deciding):
                return
            self._carry_out()

    def _carry_out(self) -> None:
        engine, answers = self.engine, self.visits.answers()
        # Answers that wait (-2 - server) are internal to the round: in the engine their tasks just keep waiting.
        going, before = ~engine.done, engine.clock.copy()
        engine.dispatch(answers[answers[:, 3] >= 0])
        # An ended copy keeps the last reward in its array; it is counted once.
        self.earned[going] += engine.reward[going]
        self.passed += engine.clock - before

    def get_state(self) -> dict[str, int]:
        """Seed and number of the next group."""
        return {"seed": self._seed, "group": self._group}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Continue after the group that was played when `get_state` was called."""
        self._seed, self._group = state["seed"], state["group"]
