"""RLlib's PPO on copies of episodes: their environment runner, module and learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from torch import Tensor

from rllib_scale.config import TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.rl.copies_env import CopiesVectorEnv
from rllib_scale.rl.env_runner import GROUP_ADVANTAGE, ArrayEnvRunner, _Ongoing, normalised
from rllib_scale.rl.ppo.group import group_advantages
from rllib_scale.rl.ppo.loss import Weights
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner
from rllib_scale.rl.ppo.ppo_module import SchedulingModule
from rllib_scale.rl.settings import ppo_of


class CopiesRunner(ArrayEnvRunner):
    """Each call plays one group to its end, and returns some of its decisions, drawn at random, as episodes.

    Decisions of one episode are nearly redundant, and playing costs as much as learning: a few decisions of each of
    many problems are worth more than all decisions of a few. Time and reward between two kept decisions count for the
    first.

    Raises:
        UserError: a setting of RLlib asks for its own environment runner, which plays no copies.
    """

    SAMPLES = CopiesVectorEnv

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self._ppo = ppo_of(TrialConfig.model_validate(config.env_config["trial"]))
        if (obstacle := self._obstacle()) and self.env is not None:
            raise UserError(f"algorithm.copies {self._ppo.copies}: not with {obstacle}; valid: RLlib's default")

    def _sample(self, *, explore: bool, random_actions: bool = False, **kwargs: Any) -> list[SingleAgentEpisode]:
        copies: CopiesVectorEnv = self._vector_env
        columns: list[dict[str, np.ndarray]] = []
        while not columns:  # without arrivals there is nothing to decide
            copies.reset(seed=self._seed if self._needs_initial_reset else None)
            self._needs_initial_reset = False
            columns = self._played(copies, explore, random_actions)
        if self._ppo.advantage == "group":
            # The baseline of a decision is the mean return of the other copies from that time on; see group.py.
            rewards, elapsed = ([each[name] for each in columns] for name in ("reward", "elapsed"))
            # Divided by the mean return per decision: the gradient is that of the mean over problems of the log of the
            # mean response time.
            unit = abs(sum(float(each.sum()) for each in rewards)) / sum(map(len, rewards))
            found = group_advantages(rewards, elapsed, self._ppo.horizon_s)
            for each, advantages in zip(columns, found, strict=True):
                each[GROUP_ADVANTAGE] = (advantages / max(1e-9, unit)).astype(np.float32)
        self._ongoing = [_Ongoing() for _ in columns]
        ended = [
            self._episode(of_one, b, 0, len(of_one["reward"]), copies.engine.metrics(b))
            for b, of_one in enumerate(self._kept(columns))
            if len(of_one["reward"])
        ]
        total = sum(map(len, ended))
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=total)
        self._increase_sampled_metrics(total, len(ended))
        return ended

    def _played(self, copies: CopiesVectorEnv, explore: bool, random_actions: bool) -> list[dict[str, np.ndarray]]:
        """Play the episodes to their end; the steps of each as columns of `ArrayEnvRunner._episode`."""
        forward, sharpness = self._compiled_forward(), np.float32(self.module.sharpness)
        servers, steps = np.zeros(self.num_envs, dtype=np.int64), []
        while len(asked := copies.deciding):
            rows = copies.rows[asked]
            # Logits over the temperature, which is 1 / sharpness.
            logits, logp = normalised(forward(rows) * sharpness)
            actions = self._choose(logp, explore, random_actions, 0)
            since = copies.earned[asked], copies.passed[asked]  # the decision before
            steps.append((asked, rows, actions, logits, logp[np.arange(len(asked)), actions], *since))
            servers[asked] = actions
            copies.step(servers)
        if not steps:
            return []
        who, *fields = (np.concatenate(parts) for parts in zip(*steps, strict=True))
        # Sort by copy: a stable sort keeps the steps of each in the order of time.
        ends = np.cumsum(np.bincount(who, minlength=self.num_envs))[:-1]
        by_copy = zip(*(np.split(field[np.argsort(who, kind="stable")], ends) for field in fields), strict=True)
        return [self._columns(copies, b, *own) for b, own in enumerate(by_copy)]

    def _kept(self, columns: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """Columns of a random subset of the decisions of a group, on which the learner trains."""
        ends = np.cumsum([len(each["reward"]) for each in columns])
        most = self._ppo.steps_per_epoch // self._ppo.groups
        # Uniform without replacement over the decisions of the whole group, then in their original order.
        at = np.sort(self._generator.permutation(ends[-1])[:most])
        kept: list[dict[str, np.ndarray]] = []
        for each, rows in zip(columns, np.split(at, np.searchsorted(at, ends[:-1])), strict=True):
            rows = rows - (ends[len(kept)] - len(each["reward"]))
            kept.append({name: column[rows] for name, column in each.items()})
            kept[-1]["observations"] = each["observations"][np.append(rows, -1)]
            # Sums from each kept decision to the next one: rewards between them stay in the return.
            kept[-1]["reward"] = np.add.reduceat(each["reward"], rows) if len(rows) else each["reward"][:0]
            for name in ("terminated", "truncated"):
                kept[-1][name][-1:] = each[name][-1]
        return kept

    @staticmethod
    def _columns(
        copies: CopiesVectorEnv, b: int, rows: Any, actions: Any, logits: Any, logp: Any, earned: Any, passed: Any
    ) -> Any:
        # The reward since a decision is known at the next one: shift by one; the end gives the last.
        last, cut = np.arange(len(rows)) == len(rows) - 1, bool(copies.engine.truncated[b])
        return {
            "observations": np.concatenate([rows, rows[-1:]]),
            "actions": actions,
            "logits": logits,
            "logp": logp,
            "reward": np.append(earned[1:], copies.earned[b]).astype(np.float32),
            "elapsed": np.append(passed[1:], copies.passed[b]).astype(np.float32),
            "terminated": last & (not cut),
            "truncated": last & cut,
        }


class CopiesModule(SchedulingModule):
    """Module of a training with copies: its logits are those of the network times `sharpness`, which rises."""

    def setup(self) -> None:
        """Build network and critic."""
        super().setup()
        self.masked = False  # servers that a task does not fit are empty rows
        self.register_buffer("sharpness", torch.ones(()))

    sharpness: Tensor

    def outputs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """See `SchedulingModule.outputs`."""
        features, logits = super().outputs(rows)
        return features, logits * self.sharpness


class CopiesLearner(SchedulingLearner):
    """PPO without a critic where advantages are relative to other copies; it sets the sharpness of each epoch."""

    def loss_weights(self) -> Weights:
        """See `SchedulingLearner.loss_weights`."""
        weights = super().loss_weights()
        return weights if self.ppo.advantage == "critic" else weights._replace(value=0.0)

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """See `SchedulingLearner`; runners get the sharpness of the next epoch with its weights."""
        super().after_gradient_based_update(timesteps=timesteps)
        # Geometric from 1 to the final sharpness: the same factor in every epoch.
        share = min(1.0, self.epoch / self.ppo.epochs)
        self._own_module.sharpness.fill_(self.ppo.final_sharpness**share)
