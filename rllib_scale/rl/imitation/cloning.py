"""Behaviour cloning as an RLlib algorithm: an epoch trains once on each of `steps_per_epoch` decisions of an expert.

RLlib's BC reads recorded episodes by Ray Data. Its reading tasks need CPUs outside the training's placement group, and
a sweep that fills the cluster leaves none; and its checkpoints do not hold the position in the data, so that an
interrupted training would not resume with the next row. Here the expert plays (seed, episode) pairs, which are played
again when a training resumes, and seed and epoch decide the order of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import LEARNER_RESULTS
from torch import Tensor

from rllib_scale.config import TrialConfig
from rllib_scale.networks.srr import srr
from rllib_scale.rl.imitation.demonstrations import Demonstrations, collect
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner, feature_values

SHUFFLE_STREAM = 4
"""Spawn key that keeps the order of the demonstrations apart from other uses of the trial's seed."""
NOT_BY_IMITATION = dict.fromkeys(vars(PPOConfig()).keys() - vars(AlgorithmConfig()).keys(), "") | {
    "_learner_connector": "",
    "gamma": "",
    "num_epochs": "algorithm.epochs of the trial",
    "num_gpus_per_learner": "",
    "num_learners": "",
    "shuffle_batch_per_epoch": "",
}
"""PPO's additions to the settings of an algorithm, and some of the latter; see `refuse_unfollowed`."""
ALIKE = "alike"
"""Column of the rows of the action space that are as good an answer as the expert's."""
AT_ONCE = 4096
"""Rows of a pass without gradients."""


def cross_entropy(logits: Tensor, alike: Tensor) -> Tensor:
    """Mean over rows of -ln P(the expert's choice, or one as good).

    Args:
        logits: (B, N).
        alike: (B, N) bool, at least one a row; see `Demonstrations`.
    """
    # -ln sum of P over equally good servers: how the network shares probability among them costs nothing.
    return (logits.logsumexp(-1) - logits.masked_fill(~alike, -torch.inf).logsumexp(-1)).mean()


class DemonstrationTensors:
    """Demonstrations of one trial as tensors; what each epoch learns from.

    Args:
        trial: whose expert made them.
        demonstrations: at least one.
        size: rows of an epoch.
    """

    def __init__(self, trial: TrialConfig, demonstrations: Demonstrations, size: int) -> None:
        self.rows = torch.from_numpy(demonstrations.rows)
        self.alike = torch.from_numpy(demonstrations.alike)
        self.choosable = torch.from_numpy(demonstrations.choosable)
        self._seed, self._size = trial.seed, size

    def __len__(self) -> int:
        return len(self.rows)

    def of_epoch(self, epoch: int) -> Tensor:
        """(size,) row numbers of an epoch, 0 being the first: pass after pass, each in a new order."""
        first, last = epoch * self._size, (epoch + 1) * self._size
        # Epochs cut an endless sequence of passes: an epoch may begin in the middle of a pass.
        passes = range(first // len(self), -(-last // len(self)))
        order = np.concatenate([self._order(number) for number in passes])
        start = first - passes.start * len(self)
        return torch.from_numpy(order[start : start + self._size])

    def _order(self, number: int) -> np.ndarray:
        """(T,) rows in the order of a pass."""
        seed = np.random.SeedSequence([self._seed, number], spawn_key=(SHUFFLE_STREAM,))
        return np.random.default_rng(seed).permutation(len(self))


class CloningLearner(SchedulingLearner):
    """Cross-entropy in place of PPO's terms, with the regulariser, the cosine and the counter of epochs that PPO has.

    Logged once an epoch: the terms and the gradient norm as means over its minibatches; agreement with the expert and
    the statistics of the feature of the updated network on what was held out. The critic is not trained.

    Raises:
        UserError: by `build`, for a setting that it does not follow.
    """

    TERMS = ("imitation_loss", "entropy", "srr_decorrelation", "srr_kl")
    NOT_FOLLOWED = NOT_BY_IMITATION

    def clone(self, lessons: DemonstrationTensors, held_out: DemonstrationTensors) -> Any:
        """Learn from the rows of one epoch."""
        self.before_gradient_based_update(timesteps={})
        self._weights_seq_no += 1
        self._held_out = held_out
        for chosen in lessons.of_epoch(self.epoch).split(self.config.minibatch_size):
            self._update({DEFAULT_MODULE_ID: {Columns.OBS: lessons.rows[chosen], ALIKE: lessons.alike[chosen]}})
        self.after_gradient_based_update(timesteps={})
        return self.metrics.reduce()

    def compute_loss_for_module(self, *, batch: dict[str, Any], fwd_out: dict[str, Any], **kwargs: Any) -> Tensor:
        """Loss of a minibatch."""
        logits, weights = fwd_out[Columns.ACTION_DIST_INPUTS], self._weights
        loss = imitation = cross_entropy(logits, batch[ALIKE])
        decorrelation, kl = srr(fwd_out[Columns.EMBEDDINGS], reduction=weights.reduction)
        if weights.regularise:
            loss = loss + weights.lambda_decorrelation * decorrelation + weights.lambda_kl * kl
        self._terms.append(torch.stack([imitation, entropy(logits), decorrelation, kl]).detach())
        return loss

    @torch.no_grad()
    def _diagnose(self) -> dict[str, float]:
        """The updated network on what was held out."""
        held_out, features, agreed = self._held_out, [], 0
        for part in torch.arange(len(held_out)).split(AT_ONCE):
            f, logits = self._own_module.outputs(held_out.rows[part])
            best = logits.masked_fill(~held_out.choosable[part], -torch.inf).argmax(-1)
            agreed += int(held_out.alike[part].gather(1, best[:, None]).sum())
            features.append(f)
        return feature_values(torch.cat(features)) | {"agreement": agreed / len(held_out)}


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the policies of logits (B, N) [nat]."""
    log_probabilities = torch.log_softmax(logits, -1)
    return -(log_probabilities.exp() * log_probabilities).sum(-1).mean()


class SchedulingBC(PPO):
    """An algorithm without samples. `env_config["trial"]` is the TrialConfig as plain data."""

    runner_restarts = 0

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        self.trial = TrialConfig.model_validate(config.env_config["trial"])
        self._lessons: tuple[DemonstrationTensors, DemonstrationTensors] | None = None
        super().setup(config)

    def training_step(self) -> None:
        """One epoch; before the first one the expert plays."""
        if self._lessons is None:
            learned, held_out = collect(self.trial)
            size = self.config.train_batch_size_per_learner
            self._lessons = (
                DemonstrationTensors(self.trial, learned, size),
                DemonstrationTensors(self.trial, held_out, size),
            )
        results = self.learner_group.foreach_learner(lambda learner: learner.clone(*self._lessons))
        self.metrics.aggregate([result.get() for result in results], key=LEARNER_RESULTS)
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)
