"""DQN and SAC by RLlib's modules, losses and learners, fed from `ReplayBuffer` in steps of several updates.

RLlib's training step adds one fragment to its buffer, draws one batch and updates once, with all the machinery of an
iteration around it. Here an iteration is an epoch of `steps_per_epoch` env steps; a round of it samples
`steps_per_round` env steps with the weights as they are, then makes all updates that are due at once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.algorithms.sac import SAC
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME, TD_ERROR_KEY

from rllib_scale.config import TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.rl.algorithm import ExactSampling
from rllib_scale.rl.off_policy.replay_buffer import ReplayBuffer
from rllib_scale.rl.settings import NOT_OFF_POLICY, off_policy_of, refuse_unfollowed
from rllib_scale.rl.vector_env import training_space

COMPONENT_REPLAY = "replay"
NEVER = 2**62
"""In env steps."""
REPLAY_STREAM = 2
"""Spawn key that keeps the draws of the replay buffer apart from other uses of the trial's seed."""


class OffPolicy(ExactSampling, DQN):
    """The training step that DQN and SAC share. Its counters and the replay buffer are part of its state.

    `env_config["trial"]` is the TrialConfig as plain data.
    """

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        self.trial = TrialConfig.model_validate(config.env_config["trial"])
        self.settings = off_policy_of(self.trial)
        refuse_unfollowed(config, NOT_OFF_POLICY)
        self.env_steps = 0
        self.updates = 0
        super().setup(config)
        seed = np.random.SeedSequence(self.trial.seed, spawn_key=(REPLAY_STREAM,))
        (width,) = training_space(self.trial.env).shape
        self.local_replay_buffer = ReplayBuffer(self.settings.buffer_size, width, np.random.default_rng(seed))

    def training_step(self) -> None:
        """Train one epoch."""
        steps_per_epoch = self.settings.steps_per_epoch
        # The goal is a multiple, not relative to the steps so far: surplus steps count for the next epoch.
        goal = (self.env_steps // steps_per_epoch + 1) * steps_per_epoch
        while self.env_steps < goal:
            self._sample(min(self.settings.steps_per_round, goal - self.env_steps))
            self._update()

    def _sample(self, num_steps: int) -> None:
        """Let the environment runners add `num_steps` env steps, or a few more, to the buffer."""
        # Each of the runners samples an equal share, rounded up.
        share, env_steps = -(-num_steps // max(1, self.env_runner_group.num_remote_workers())), self.env_steps

        def sample(runner: EnvRunner) -> list[SingleAgentEpisode]:
            runner.num_env_steps_sampled_lifetime = env_steps  # what exploration is scheduled by
            return runner.sample(num_timesteps=share)

        episodes, metrics = self.sample_round(sample)
        self.metrics.aggregate(metrics, key=ENV_RUNNER_RESULTS)
        self.local_replay_buffer.add(episodes)
        self.env_steps += sum(map(len, episodes))

    def _update(self) -> None:
        """Make the updates that are due."""
        settings = self.settings
        # By totals, not by rounds: the size of rounds does not move any update.
        due = max(0, self.env_steps - settings.warmup_steps) // settings.steps_per_update - self.updates
        if due <= 0:
            return
        size = self.config.train_batch_size_per_learner
        # One draw for all updates that are due; `minibatch_size` cuts it into one for each.
        rows = SampleBatch(self.local_replay_buffer.sample(due * size * max(1, self.config.num_learners)))
        results = self.learner_group.update(
            batch=MultiAgentBatch({DEFAULT_MODULE_ID: rows}, env_steps=len(rows)),
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: self.env_steps},
            num_epochs=1,
            minibatch_size=size,
        )
        for modules in results:
            for logged in modules.values():
                logged.pop(TD_ERROR_KEY, None)  # one number a row, for prioritised replay
        self.updates += due
        self.metrics.aggregate(results, key=LEARNER_RESULTS)
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """RLlib's state, the counters and the replay buffer."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        if components is None:
            state[COMPONENT_REPLAY] = {
                "env_steps": self.env_steps,
                "updates": self.updates,
                "buffer": self.local_replay_buffer.get_state(),
            }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume where `get_state` was called."""
        super().set_state(state)
        if COMPONENT_REPLAY in state:
            replay = state[COMPONENT_REPLAY]
            self.env_steps, self.updates = replay["env_steps"], replay["updates"]
            self.local_replay_buffer.set_state(replay["buffer"])


class SchedulingDQN(OffPolicy):
    """RLlib's DQN in epochs."""

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        super().setup(config)
        module = self.get_module()
        for name, built in (("double_q", module.uses_double_q), ("dueling", module.uses_dueling)):
            if getattr(config, name) != built:
                raise UserError(f"{name} {getattr(config, name)}: the network is the trial's; valid: {built}")


class SchedulingSAC(OffPolicy, SAC):
    """RLlib's SAC in epochs."""

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        if config.target_network_update_freq != NEVER:
            raise UserError(
                f"target_network_update_freq {config.target_network_update_freq}: target networks move at every "
                f"gradient step, by tau; valid: {NEVER}"
            )
        super().setup(config)
