"""An RLlib EnvRunner that samples at the speed of the simulator.

RLlib's own runner passes every step of every environment through Python objects and connector pipelines, and every
step's forward through torch's dispatcher. Here a step is one call of the compiled simulator and one compiled forward;
episodes are cut from whole arrays at the end. What the Learner receives is the same.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from rllib_scale.networks.compiled.inference import Forward, compile_network
from rllib_scale.networks.inputs import MASKED
from rllib_scale.rl.settings import (
    NOT_ON_THE_NEW_API_STACK,
    listens,
    obstacle_to_array_sampling,
    overridden,
    refuse_unfollowed,
)
from rllib_scale.rl.vector_env import TrainingVectorEnv

logger = logging.getLogger(__name__)

FORWARDS = ("forward_exploration", "forward_inference", "_forward", "_forward_exploration", "_forward_inference")
"""Methods of a module that the compiled forward replaces."""
COMPONENT_SAMPLER = "sampler"


@dataclass
class _Ongoing:
    """The episode that an environment is in the middle of."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    steps: int = 0
    total_reward: float = 0.0
    chunks: list[SingleAgentEpisode] = field(default_factory=list)
    """Its pieces so far, where a callback of the user may want them; those before a restore are lost."""


class _Chunk:
    """Records of B environments over S consecutive steps, as rows (B, ...) by step."""

    def __init__(self, observation: np.ndarray, awaits_reset: np.ndarray) -> None:
        self.observation = observation
        self.awaits_reset = awaits_reset
        self.num_valid = 0
        self.metrics: dict[tuple[int, int], dict[str, Any]] = {}  # (step, environment) -> metrics of the episode
        self._steps: dict[str, list[np.ndarray]] = defaultdict(list)
        self._steps["observations"].append(observation)

    def append(self, infos: dict[str, Any], **rows: np.ndarray) -> None:
        """Add one step of every environment."""
        # After an episode's end the environment ignores the action and begins the next one: no step to learn from.
        valid = ~self.awaits_reset
        for name, row in (rows | {"valid": valid}).items():
            self._steps[name].append(row)
        self.observation = rows["observations"]
        self.num_valid += int(valid.sum())
        self.awaits_reset = rows["terminated"] | rows["truncated"]
        for b in np.flatnonzero(self.awaits_reset).tolist():
            metrics = {name: values[b] for name, values in infos["metrics"].items() if name[0] != "_"}
            self.metrics[len(self._steps["valid"]) - 1, b] = metrics

    def arrays(self) -> dict[str, np.ndarray]:
        """(S, B, ...) by name; S + 1 observations."""
        return {name: np.stack(rows) for name, rows in self._steps.items()}


GROUP_ADVANTAGE = "group_advantage"
"""Extra output of each step of a copy: its advantage over the other copies of its episode."""


def normalised(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits (B, N) with a largest of 0 in each row, so that nothing overflows, and their log-probabilities."""
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


class ArrayEnvRunner(SingleAgentEnvRunner):
    """Samples the batched environment with preallocated arrays and one compiled forward a step.

    It keeps the contract of SingleAgentEnvRunner except for the infos of steps: the last one of an episode holds its
    metrics, the others are empty. SingleAgentEnvRunner does the work where a setting needs work at each step
    (connectors, callbacks, a GPU), and for environments and modules of other packages. Exploration draws from the
    policy with one generator, seeded by (seed, worker index). `get_state` holds environments and generator too, so that
    a restored runner continues with the same step.
    """

    SAMPLES: type[VectorEnv[Any, Any, Any]] = TrainingVectorEnv
    """The environments that it knows."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        # Apart from torch's and numpy's global generators: what else draws changes no action.
        self._generator = np.random.default_rng([config.seed or 0, self.worker_index or 0])
        self._forward: Forward | None = None
        self._version: tuple[int, ...] = ()
        self._observation = np.zeros((0, 0), dtype=np.float32)
        self._awaits_reset = np.zeros(0, dtype=bool)
        self._ongoing: list[_Ongoing] = []
        self._needs_initial_reset: bool = True
        self._keeps_chunks = listens(self.config, self._callbacks, "on_episode_end")
        refuse_unfollowed(self.config, NOT_ON_THE_NEW_API_STACK)
        obstacle = self._obstacle()
        if obstacle and self.env is not None and self.worker_index in (0, 1):
            logger.warning("ArrayEnvRunner does not apply (%s); RLlib's environment runner does the work", obstacle)

    def _obstacle(self) -> str | None:
        """Why SingleAgentEnvRunner does the work; None: it does not."""
        if self.env is None or self.module is None:
            return "no environment or module here"
        env = self.env.env  # under RLlib's wrapper
        if not isinstance(env, self.SAMPLES):
            return f"environment {type(env).__name__}"
        if not hasattr(self.module, "network") or not hasattr(self.module, "masked"):
            return f"module {type(self.module).__name__}"
        for kind in (self.module.get_exploration_action_dist_cls(), self.module.get_inference_action_dist_cls()):
            if kind is not TorchCategorical:
                return f"distribution {kind.__name__}"
        return overridden(type(self.module), FORWARDS) or obstacle_to_array_sampling(self.config, self._callbacks)

    @property
    def _vector_env(self) -> Any:
        env = self.env.unwrapped
        assert isinstance(env, self.SAMPLES)
        return env

    def _compiled_forward(self) -> Forward:
        """The compiled network, remade after the weights have changed."""
        # Torch counts a tensor's changes in place: weights that RLlib loads are noticed without a comparison.
        version = tuple(parameter._version for parameter in self.module.parameters())
        if self._forward is None or self._version != version:
            self._forward, self._version = compile_network(self.module.network), version
        return self._forward

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[SingleAgentEpisode]:
        # Asked at each call: callbacks and settings may change between two.
        if self._obstacle():
            how = {"explore": explore, "random_actions": random_actions, "force_reset": force_reset}
            return list(super()._sample(num_timesteps=num_timesteps, num_episodes=num_episodes, **how))
        env, size = self._vector_env, self.num_envs
        if force_reset or num_episodes is not None or self._needs_initial_reset:
            seed = self._seed if self._needs_initial_reset else None
            self._observation, _ = env.reset(seed=seed)
            self._awaits_reset = np.zeros(size, dtype=bool)
            self._ongoing = [_Ongoing() for _ in range(size)]
            self._needs_initial_reset = num_episodes is not None
        forward, split_mask = self._compiled_forward(), self.module.network.inputs.spec.split_mask
        # Whole steps of all environments: up to B - 1 more than were asked for, as RLlib's runner does.
        target = num_timesteps if num_timesteps is not None else 0
        chunk = _Chunk(self._observation, self._awaits_reset)
        while chunk.num_valid < target or (num_episodes is not None and len(chunk.metrics) < num_episodes):
            logits, logp = normalised(forward(*split_mask(chunk.observation, self.module.masked)))
            actions = self._choose(logp, explore, random_actions, chunk.num_valid)
            observations, reward, terminated, truncated, infos = env.step(actions)
            chunk.append(
                infos,
                observations=observations,
                actions=actions,
                logits=logits,
                logp=logp[np.arange(size), actions],
                reward=reward.astype(np.float32),
                terminated=terminated,
                truncated=truncated,
            )
        self._observation, self._awaits_reset = chunk.observation, chunk.awaits_reset

        episodes = self._cut(chunk, num_episodes)
        num_complete = sum(episode.is_done for episode in episodes)
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=chunk.num_valid)
        self._increase_sampled_metrics(chunk.num_valid, num_complete)
        return episodes

    def _choose(self, logp: np.ndarray, explore: bool, random_actions: bool, steps: int) -> np.ndarray:
        """Actions (B,) by the log-probabilities, or normalised Q-values, (B, N), `steps` env steps into the call."""
        if random_actions:
            return self._generator.integers(logp.shape[1], size=len(logp))
        if explore and hasattr(self.module, "epsilon"):  # its network scores servers by Q-values
            t = self.num_env_steps_sampled_lifetime + steps * max(1, self.config.num_env_runners)
            # Epsilon-greedy: with probability epsilon any server that is open, else the one of the largest value.
            at_random = self._generator.random(len(logp)) < self.module.epsilon(t)
            # Even chances among the servers that the network's mask leaves open.
            score = np.where(logp > MASKED / 2, self._generator.random(logp.shape), -1.0)
            return np.argmax(np.where(at_random[:, None], score, logp), axis=1)
        if explore:
            # The Gumbel trick: argmax of log-probability + Gumbel noise is a draw from the policy.
            logp = logp + self._generator.gumbel(size=logp.shape)
        return np.argmax(logp, axis=1)

    def _cut(self, chunk: _Chunk, num_episodes: int | None) -> list[SingleAgentEpisode]:
        """The chunk's arrays as episodes, or pieces of them: a piece ends where its episode does, or with the chunk.

        Args:
            chunk: what was sampled.
            num_episodes: return only this number of whole episodes, the first to end; None: return everything.
        """
        # Like RLlib's runner: the first episodes to end; those of one step in the order of environments.
        wanted = list(chunk.metrics)[:num_episodes]  # (step, environment) of each end, in the order of time
        complete: dict[tuple[int, int], SingleAgentEpisode] = {}
        pieces = []
        arrays = chunk.arrays()
        for b in range(self.num_envs):
            columns = {name: array[:, b] for name, array in arrays.items()}
            # Ends of this environment's episodes within the chunk; the chunk's own end is one, too.
            stops = {step + 1 for step, of_environment in chunk.metrics if of_environment == b}
            start = 0
            for stop in sorted(stops | {len(columns["valid"])}):
                if not columns["valid"][start]:  # the step in which the environment began its next episode
                    self._ongoing[b] = _Ongoing()
                    start += 1
                metrics = chunk.metrics.get((stop - 1, b))
                if metrics is None and num_episodes is None and start < stop:
                    pieces.append(self._episode(columns, b, start, stop))
                elif (stop - 1, b) in wanted:
                    complete[stop - 1, b] = self._episode(columns, b, start, stop, metrics)
                start = stop
        return [complete[end] for end in (complete if num_episodes is None else wanted)] + pieces

    def _episode(
        self, columns: dict[str, np.ndarray], b: int, start: int, stop: int, metrics: dict[str, Any] | None = None
    ) -> SingleAgentEpisode:
        """Steps of environment b as an episode, or a piece; `metrics` of an episode that ended."""
        ongoing, env = self._ongoing[b], self._vector_env
        # One observation more than steps: the value of what comes next is bootstrapped from it.
        observations = columns["observations"][start : stop + 1]
        piece = {name: column[start:stop] for name, column in columns.items()}
        outputs = {
            Columns.ACTION_DIST_INPUTS: piece["logits"],
            Columns.ACTION_LOGP: piece["logp"],
            WEIGHTS_SEQ_NO: np.full(stop - start, self._weights_seq_no),
        }
        if GROUP_ADVANTAGE in piece:
            outputs[GROUP_ADVANTAGE] = piece[GROUP_ADVANTAGE]
        episode = SingleAgentEpisode(
            id_=ongoing.id,
            observations=InfiniteLookbackBuffer(observations, 0, env.single_observation_space),
            observation_space=env.single_observation_space,
            actions=InfiniteLookbackBuffer(piece["actions"], 0, env.single_action_space),
            action_space=env.single_action_space,
            rewards=InfiniteLookbackBuffer(piece["reward"]),
            infos=InfiniteLookbackBuffer([{}] * (stop - start) + [{"metrics": metrics} if metrics else {}]),
            extra_model_outputs={name: InfiniteLookbackBuffer(values) for name, values in outputs.items()},
            terminated=bool(piece["terminated"][-1]),
            truncated=bool(piece["truncated"][-1]),
            t_started=ongoing.steps,
            len_lookback_buffer=0,
        )
        ongoing.steps += stop - start
        ongoing.total_reward += float(piece["reward"].sum())
        if episode.is_done:
            self._log_episode_metrics(ongoing.steps, ongoing.total_reward, 0.0)
            make_callback(
                "on_episode_end",
                callbacks_objects=self._callbacks,
                callbacks_functions=self.config.callbacks_on_episode_end,
                kwargs={
                    "episode": episode,
                    "prev_episode_chunks": ongoing.chunks,
                    "env_runner": self,
                    "metrics_logger": self.metrics,
                    "env": env,
                    "rl_module": self.module,
                    "env_index": b,
                },
            )
        elif self._keeps_chunks:
            ongoing.chunks.append(episode)
        return episode

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """State of SingleAgentEnvRunner, and the `sampler`: environments, generator and current episodes."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        if self._obstacle() is None and (components is None or COMPONENT_SAMPLER in components):
            state[COMPONENT_SAMPLER] = {
                "environments": self._vector_env.get_state(),
                "generator": self._generator.bit_generator.state,
                "observation": self._observation.copy(),
                "awaits_reset": self._awaits_reset.copy(),
                "ongoing": [(episode.id, episode.steps, episode.total_reward) for episode in self._ongoing],
                "needs_initial_reset": self._needs_initial_reset,
                "worker_index": self.worker_index,
            }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume where `get_state` was called."""
        sampler = state.get(COMPONENT_SAMPLER)
        # RLlib also hands one runner's state to others: their environments stay their own.
        if self._obstacle() is None and sampler is not None and sampler["worker_index"] == self.worker_index:
            self._vector_env.set_state(sampler["environments"])
            self._generator.bit_generator.state = sampler["generator"]
            self._observation = sampler["observation"].copy()
            self._awaits_reset = sampler["awaits_reset"].copy()
            self._ongoing = [_Ongoing(*episode) for episode in sampler["ongoing"]]
            self._needs_initial_reset = sampler["needs_initial_reset"]
            self._weights_seq_no = 0  # the weights of the same time follow, which RLlib takes for outdated ones
        super().set_state(state)
