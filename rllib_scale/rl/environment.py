"""The environments that RLlib trains on, and their seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from ray.tune.registry import register_env

from rllib_scale import plugins
from rllib_scale.config import EnvConfig, ProblemsConfig, TrialConfig
from rllib_scale.config.algorithms import Rewarded
from rllib_scale.config.network import CrossAttentionConfig
from rllib_scale.envs.scheduling import SchedulingEnv
from rllib_scale.envs.spaces import NO_LIMIT, observation_space
from rllib_scale.envs.vector import SchedulingVectorEnv, StepResult
from rllib_scale.errors import UserError
from rllib_scale.observation.relative import RELATIVE
from rllib_scale.observation.replicas import REPLICAS
from rllib_scale.plugins import unpinned
from rllib_scale.rl.drawn_problems import DrawnEngines, draw_problem, largest
from rllib_scale.schedulers.asked_visits import AskedVisits
from rllib_scale.simulator.engine import Engine, make_engine
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.random_numbers import mixed_seed, words_of

TRAINING_ENV = "rllib_scale/Training"

_TRAINING_STREAM = 1
"""Spawn key that keeps these seeds apart from any other use of the same numbers."""


@dataclass(frozen=True)
class TrainingStep:
    """What B environments did in one step: what a user-defined reward receives, all of them at once.

    Attributes:
        observation: (B, W) float32 that the decision was made on, of the problem's feature set.
        action: (B,) the server that was named.
        outcome: (B,) what came of it, index into `rllib_scale.observation.answers.OUTCOMES`.
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
    """A pinned, user-defined function from what was done to rewards (B,).

    Raises:
        UserError: there is none, or, from what is returned, it gave something else.
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
    # The mask stands behind the observation in one row: RLlib then needs no dictionary, which it would copy.
    low, high = np.append(space.low, np.zeros(rows)), np.append(space.high, np.ones(rows))
    return gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


class TrainingEnv(SchedulingEnv):
    """A single environment with the rows of `training_space`."""

    def _spaces(self) -> tuple[gymnasium.Space[Any], gymnasium.spaces.Discrete]:
        return training_space(self.config), super()._spaces()[1]

    def _shown(self) -> np.ndarray:
        return training_rows(self._engine)


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
        self._width = observation_space(self.config).shape[0]  # of what is shown without the mask
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


class CopiesVectorEnv(VectorEnv[Any, Any, Any]):
    """G copies of one episode side by side, in rounds in the order of `adaptive-price`; see `AskedVisits`.

    Each copy's action is the server for the task that it visits; the observation is that task's row of the feature set
    `relative`. Rounds take turns: nobody's clock runs on before every round is over. The next group begins by `begin`.

    Args:
        num_envs: G.
        config: the problem.
        trial_seed: with RLlib's seed it decides the episodes.
        problems: of which each group draws one; None: `config` is played.
        network: as for `AskedVisits`.

    Attributes:
        engine: plays the group.
        visits: its rounds.
        earned: (G,) reward of each copy since its last decision.
        aged: (G,) integral of the ages of open calls since then, on replicas [s^2].
        passed: (G,) time since then [s].
        explores: whether decisions are drawn, and learned from; else they are the best ones.
    """

    explores = True
    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int,
        config: EnvConfig,
        trial_seed: int,
        problems: ProblemsConfig | None,
        network: CrossAttentionConfig | None = None,
    ) -> None:
        self.num_envs, self.config, self.problems, self.trial_seed = num_envs, config, problems, trial_seed
        self.network = network
        rows = (config if problems is None else largest(problems, config)).cluster.num_rows
        shape = (self._width(rows),)
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

    @staticmethod
    def _width(rows: int) -> int:
        """Of an observation of so many rows."""
        return RELATIVE.width(rows)

    def begin(self, workload: Workload | None = None) -> None:
        """Begin the next group, of a given workload where there is one."""
        # One seed and one episode for all copies: returns differ by the decisions alone, and their mean is a baseline.
        env, seeds = self.config, [self._seed] * self.num_envs
        if self.problems is not None:
            env = draw_problem(self.problems, env, self._seed, self._group)
        self.engine: Any = make_engine(env, self.num_envs)
        self.engine.reset(seeds, [self._group] * self.num_envs, workload=workload)
        self.earned, self.aged, self.passed = np.zeros((3, self.num_envs))
        self._group += 1
        self._begun()

    def _begun(self) -> None:
        """Go on to the first decisions of a group."""
        assert self.network is not None
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
        # Reward and time since a copy's last decision belong to that one: the sums begin anew.
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
        # Answers that wait (-2 - server) are the round's own: tasks that do not start go on waiting in the engine.
        going, before = ~engine.done, engine.clock.copy()
        engine.dispatch(answers[answers[:, 3] >= 0])
        # An ended copy keeps the last reward in its array; it is counted once.
        self.earned[going] += engine.reward[going]
        self.passed += engine.clock - before

    def get_state(self) -> dict[str, int]:
        """Which group comes next."""
        return {"seed": self._seed, "group": self._group}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Go on behind the group that was played when `get_state` was called."""
        self._seed, self._group = state["seed"], state["group"]


class FleetCopiesVectorEnv(CopiesVectorEnv):
    """G copies of one fleet of replicas: one plays the warm-up alone, then all go on from where it is.

    Copies drift apart, and soon returns differ by the states that they are in more than by a decision: episodes are
    short, and begin in a fleet that is under way. The observation is the row of `training_space` of the call that is
    offered; the action is its replica, or the row behind them, which holds it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        actions = self.single_action_space
        assert isinstance(actions, gymnasium.spaces.Discrete)
        self._behind = REPLICAS.width(int(actions.n))
        self._rows = np.zeros((self.num_envs, self._behind + int(actions.n)), dtype=np.float32)

    @staticmethod
    def _width(rows: int) -> int:
        return REPLICAS.width(rows) + rows

    def _begun(self) -> None:
        self.explores = False
        self._rows[:] = 0.0  # where a fleet is smaller than the largest one, rows are empty and closed
        self._show()

    def states(self, observations: NDArray[np.float32]) -> NDArray[np.float64]:
        """(T, S) features of the states that observations (T, width) of this group show."""
        head, count = REPLICAS.head(), self.engine.num_rows - 1
        each = observations[:, head : head + count * REPLICAS.server_dim].reshape(len(observations), count, -1)
        shown = np.concatenate([observations[:, :head], each.mean(1), each.min(1), each.max(1)], axis=1, dtype=float)
        return np.concatenate([np.ones((len(shown), 1)), shown, shown**2], axis=1)

    def _show(self) -> None:
        engine = self.engine
        self._rows[:, : engine.observation.shape[1]] = engine.observation
        self._rows[:, self._behind : self._behind + engine.num_rows] = engine.mask[:, : engine.num_rows]

    @property
    def rows(self) -> NDArray[Any]:
        """See `CopiesVectorEnv.rows`."""
        return self._rows

    @property
    def deciding(self) -> NDArray[np.int64]:
        """See `CopiesVectorEnv.deciding`; before the copies part it is the first one."""
        return np.flatnonzero(~self.engine.done) if self.explores else np.zeros(1, dtype=np.int64)

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        """See `CopiesVectorEnv.step`; the row behind the replicas holds the call."""
        asked, engine = self.deciding, self.engine
        active = np.zeros(self.num_envs, dtype=bool)
        active[asked] = True
        engine.step(np.where(active, actions, 0), active)
        self.earned[asked], self.aged[asked] = engine.reward[asked], engine.aged[asked]
        self.passed[asked] = engine.elapsed[asked]
        if not self.explores and engine.clock[0] >= engine.config.service.warm_up_s:
            engine.fan_out()
            self.explores = True
        self._show()
        done, cut = engine.done, engine.truncated
        return self.rows, self.earned, done & ~cut, done & cut, {}


def training_rows(engine: Engine | DrawnEngines) -> np.ndarray:
    """(B, width) rows of `training_space`, copied."""
    if not engine.config.masked:
        return engine.observation.copy()
    return np.concatenate([engine.observation, engine.mask[:, : engine.num_rows]], axis=1, dtype=np.float32)


def make_env(context: Mapping[str, Any]) -> gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]:
    """RLlib's creator: a vector environment where RLlib asks for one, else a single one to read spaces from.

    Args:
        context: "trial", a TrialConfig as plain data, and "num_envs" for a vector environment.
    """
    trial = TrialConfig.model_validate(context["trial"])
    settings = trial.algorithm
    problems = settings.problems
    if trial.visits:
        return CopiesVectorEnv(context.get("num_envs", 1), trial.env, trial.seed, problems, trial.visits_by)
    if trial.copies is not None:
        return FleetCopiesVectorEnv(context.get("num_envs", 1), trial.env, trial.seed, problems)
    if "num_envs" in context:
        rewards = (settings.reward_unit, settings.reward) if isinstance(settings, Rewarded) else ()
        return TrainingVectorEnv(context["num_envs"], trial.env, trial.seed, problems, *rewards)
    return TrainingEnv(trial.env if problems is None else largest(problems, trial.env))


def register_training_env() -> None:
    """Make TRAINING_ENV known to Ray: to the session under way, whose end forgets it, or else to the next one."""
    register_env(TRAINING_ENV, make_env)
