"""The learner of every PPO method: the paper's update, the regulariser, and what both log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo.ppo import LEARNER_RESULTS_KL_KEY
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core import ALL_MODULES, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import (
    MODULE_TRAIN_BATCH_SIZE_MEAN,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    WEIGHTS_SEQ_NO,
)
from torch import Tensor

from rllib_scale.config import TrialConfig
from rllib_scale.config.training import NO_SRR
from rllib_scale.networks.build import Network
from rllib_scale.networks.compiled.fused import fuse
from rllib_scale.networks.srr import feature_statistics, ramp
from rllib_scale.policies.policy import initial_network
from rllib_scale.rl.distributed import gathered, own
from rllib_scale.rl.gradients import LeanLearner, mean_norm
from rllib_scale.rl.ppo.exact_batch import REFERENCE_LOGITS, ExactBatch
from rllib_scale.rl.ppo.lean_update import Batch, minibatches, train_batch
from rllib_scale.rl.ppo.loss import Outputs, Rows, Terms, Weights, kl_divergence, ppo_loss, standardised
from rllib_scale.rl.settings import (
    NOT_BY_PPO,
    fixed_rate,
    ppo_of,
    refuse_unfollowed,
)


def cosine(epoch: int, first: float, last: float, epochs: int) -> float:
    """Learning rate of an epoch, 0 being the first: from `first` to `last` after `epochs`."""
    return last + (first - last) * (1 + math.cos(math.pi * min(epoch / epochs, 1.0))) / 2


class SchedulingLearner(LeanLearner, PPOTorchLearner):
    """PPO with SRR. `learner_config_dict["trial"]` is the trial as plain data.

    Settings that RLlib has are read from the `AlgorithmConfig`, and the others from the trial: the regulariser, the
    cosine of the learning rate, epsilon of Adam, how advantages are standardised and discounted, the initial policy.
    The lean update works where its settings allow it, otherwise RLlib's own does.

    One counter of finished epochs drives the cosine learning rate and the ramp of the regulariser; it is saved and
    restored with the weights. Logged once an epoch, named as in `rllib_scale.results.columns.TRAINING_COLUMNS`:
    the loss terms and the gradient norm as means over the minibatches; KL, explained variance and the statistics of
    the feature of the updated network on all rows of the epoch.

    Raises:
        UserError: by `build`, for a setting that neither update follows.
    """

    NOT_FOLLOWED: Mapping[str, str] = NOT_BY_PPO
    epoch: int
    """Epochs finished."""

    TERMS: tuple[str, ...] = Terms._fields
    """Terms of the loss, in the order in which `compute_loss_for_module` logs them."""

    def build(self) -> None:
        """Build as RLlib does, then append the selection of rows to its pipeline."""
        refuse_unfollowed(self.config, self.NOT_FOLLOWED)
        self.trial = TrialConfig.model_validate(self.config.learner_config_dict["trial"])
        self.ppo, self.srr = ppo_of(self.trial), self.trial.srr or NO_SRR
        self.epoch = 0
        self._terms: list[Tensor] = []
        super().build()
        network, reference = self._own_module.network, initial_network(self.trial)
        if reference is not None:
            network.load_state_dict(reference.state_dict())
        # One compiled pass each way; under RLlib's own update the network keeps torch's operations.
        if self._obstacle is None:
            self._own_module.fused = fuse(network)
        # ln pi of the initial policy is computed once an epoch for all rows, not in each minibatch.
        held_to = None
        if reference is not None and self.ppo.reference_kl_coefficient > 0:
            held_to = partial(reference_logits, reference.eval().to(self.device), self.trial.env.masked)
        rows = self.config.train_batch_size_per_learner
        self._exact_batch = ExactBatch(rows, self.ppo.standardise_advantages == "epoch", held_to)
        # Last, after advantages and conversion to tensors: it keeps whole rows.
        self._learner_connector.append(self._exact_batch)

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam. RLlib gets no learning rate: it would reset it after every update."""
        parameters = self.get_parameters(self.module[module_id])
        rate, epsilon = fixed_rate(self._settings, "lr"), self.ppo.adam_epsilon
        optimizer = torch.optim.Adam(parameters, lr=rate, eps=epsilon, fused=True)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    @property
    def _settings(self) -> Any:
        """The configuration, with what it sets for our module alone."""
        return self.config.get_config_for_module(DEFAULT_MODULE_ID)

    def loss_weights(self) -> Weights:
        """Weights of the loss terms in the current epoch."""
        regulariser, settings = self.srr, self._settings
        # Both lambdas rise together, from 0 to their values, over the epochs of the ramp.
        share = self.srr_ramp()
        return Weights(
            clip=settings.clip_param,
            value=settings.vf_loss_coeff,
            entropy=float(self.entropy_coeff_schedulers_per_module[DEFAULT_MODULE_ID].get_current_value()),
            lambda_decorrelation=share * regulariser.lambda_decorrelation,
            lambda_kl=share * regulariser.lambda_kl,
            reduction=regulariser.reduction,
            standardise=self.ppo.standardise_advantages == "minibatch",
            # The final lambdas, not the ramp's share: the graph of the term is the same in every epoch.
            regularise=regulariser.lambda_decorrelation > 0 or regulariser.lambda_kl > 0,
            reference=self.ppo.reference_kl_coefficient,
            sampling_kl=float(self.curr_kl_coeffs_per_module[DEFAULT_MODULE_ID]) if settings.use_kl_loss else 0.0,
            value_clip=settings.vf_clip_param,
        )

    def learning_rate(self) -> float:
        """In force in the current epoch."""
        return cosine(self.epoch, fixed_rate(self._settings, "lr"), self.ppo.final_learning_rate, self.ppo.epochs)

    def srr_ramp(self) -> float:
        """Share of the regularisation in force in the current epoch."""
        return ramp(self.epoch, self.srr.ramp_start_epoch, self.srr.ramp_epochs)

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Set the learning rate and the weights of the loss of the epoch."""
        super().before_gradient_based_update(timesteps=timesteps)
        self._weights = self.loss_weights()
        for _, optimizer in self.get_optimizers_for_module(DEFAULT_MODULE_ID):
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate()

    def update(
        self,
        *,
        training_data: TrainingData | None = None,
        timesteps: dict[str, Any] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
        _no_metrics_reduce: bool = False,
        **kwargs: Any,
    ) -> Any:
        """One epoch: `Learner.update`, by the lean path where it applies."""
        obstacle = self._obstacle or self._obstacle_to_lean_loop(training_data, minibatch_size)
        if training_data is None or obstacle:
            if obstacle:
                self._say_once(obstacle)
            return super().update(
                training_data=training_data,
                timesteps=timesteps,
                num_epochs=num_epochs,
                minibatch_size=minibatch_size,
                shuffle_batch_per_epoch=shuffle_batch_per_epoch,
                _no_metrics_reduce=_no_metrics_reduce,
                **kwargs,
            )
        self.before_gradient_based_update(timesteps=timesteps or {})
        self._weights_seq_no += 1
        # Exactly the rows of an epoch, without surplus samples: epochs of all trials train on the same number.
        rows = self._exact_batch.rows
        batch = self._lean_batch(training_data.episodes)
        shuffle = shuffle_batch_per_epoch and num_epochs > 1
        for minibatch in minibatches(batch, minibatch_size or rows, num_epochs, shuffle):
            _, losses, _ = self._update({DEFAULT_MODULE_ID: minibatch})
        self._log_trained(num_epochs * rows, minibatch_size or rows, losses[DEFAULT_MODULE_ID])
        self.after_gradient_based_update(timesteps=timesteps or {})
        return None if _no_metrics_reduce else self.metrics.reduce()

    def _obstacle_to_lean_loop(self, training_data: TrainingData | None, minibatch_size: int | None) -> str | None:
        """Why RLlib's loop has to do this update; None where the lean one can."""
        if training_data is None:
            return "the input is not episodes"
        training_data.solve_refs()
        episodes, rows = training_data.episodes, self._exact_batch.rows
        if not episodes or not all(isinstance(episode, SingleAgentEpisode) for episode in episodes):
            return "the input is not single-agent episodes"
        if rows % (minibatch_size or rows):
            return f"minibatch_size {minibatch_size} does not divide {rows} rows"
        if sum(map(len, episodes)) < rows:
            return f"fewer than {rows} steps were sampled"
        return None

    def _lean_batch(self, episodes: list[SingleAgentEpisode]) -> Batch:
        """The rows of the epoch, in random order."""
        batch = train_batch(episodes, self._own_module.compute_values, self.config.gamma, self.config.lambda_)
        kept = self._exact_batch.select(batch, torch.arange(len(batch[Columns.OBS])))
        self._exact_batch.kept = {DEFAULT_MODULE_ID: kept}
        return kept

    def _log_trained(self, steps: int, minibatch_size: int, loss: Tensor) -> None:
        """RLlib's counters, with its keys and reductions."""
        log = self.metrics.log_value
        log((DEFAULT_MODULE_ID, WEIGHTS_SEQ_NO), self._weights_seq_no, window=1)
        log((DEFAULT_MODULE_ID, MODULE_TRAIN_BATCH_SIZE_MEAN), minibatch_size, reduce="mean")
        log((DEFAULT_MODULE_ID, self.TOTAL_LOSS_KEY), loss, window=1)
        log((DEFAULT_MODULE_ID, NUM_MODULE_STEPS_TRAINED), steps, reduce="sum")
        lifetime = {"reduce": "lifetime_sum", "with_throughput": True}
        log((DEFAULT_MODULE_ID, NUM_MODULE_STEPS_TRAINED_LIFETIME), steps, **lifetime)
        for total, total_lifetime in (
            (NUM_MODULE_STEPS_TRAINED, NUM_MODULE_STEPS_TRAINED_LIFETIME),
            (NUM_ENV_STEPS_TRAINED, NUM_ENV_STEPS_TRAINED_LIFETIME),
        ):
            log((ALL_MODULES, total), steps, reduce="sum", with_throughput=True)
            log((ALL_MODULES, total_lifetime), steps, **lifetime)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Tensor:
        """Loss of a minibatch over its unmasked rows; moments are those of the minibatches of all learners."""
        features, weights = fwd_out[Columns.EMBEDDINGS], self._weights
        values = self.module[module_id].unwrapped().compute_values(batch, features)
        rows, outputs = _rows(batch, weights), Outputs(features, fwd_out[Columns.ACTION_DIST_INPUTS], values)
        if Columns.LOSS_MASK in batch:
            # RLlib pads the rows of its own connector; padding is in no mean.
            mask = batch[Columns.LOSS_MASK]
            rows = Rows(*(t if t is None else t[mask] for t in rows))  # type: ignore[arg-type]
            outputs = Outputs(*(t[mask] for t in outputs))
        # Over the rows of all learners, so that their number changes nothing; then each continues with its own.
        if weights.standardise:
            rows = rows._replace(advantages=own(standardised(gathered(rows.advantages))))
        # A covariance needs all rows of the minibatch: of one learner's share it would be another regulariser.
        outputs = outputs._replace(features=gathered(outputs.features))
        loss, terms = ppo_loss(rows, outputs, weights._replace(standardise=False))
        self._terms.append(torch.stack(terms).detach())
        return loss

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Log the epoch and count it; move the coefficients of entropy and KL as RLlib does."""
        # One transfer for the epoch: reading each term in its minibatch would wait for the computation each time.
        means = dict(zip(self.TERMS, torch.stack(self._terms).mean(0).tolist(), strict=True))
        if means.pop(LEARNER_RESULTS_KL_KEY, None) is not None and self._settings.use_kl_loss:
            last_kl = self._terms[-1][self.TERMS.index(LEARNER_RESULTS_KL_KEY)].item()
            self.metrics.log_value((DEFAULT_MODULE_ID, LEARNER_RESULTS_KL_KEY), last_kl, window=1)
        super().after_gradient_based_update(timesteps=timesteps)
        values = (
            means
            | self._diagnose()
            | {
                "gradient_norm": mean_norm(self._gradient_norms),
                "learning_rate": self.learning_rate(),
                "srr_ramp": self.srr_ramp(),
                "srr_lambda_decorrelation": self._weights.lambda_decorrelation,
                "srr_lambda_kl": self._weights.lambda_kl,
            }
        )
        self.metrics.log_dict(values, key=DEFAULT_MODULE_ID, window=1)
        self._terms.clear()
        self._gradient_norms.clear()
        self.epoch += 1

    @torch.no_grad()
    def _diagnose(self) -> dict[str, float]:
        """The updated network on the rows of the epoch."""
        module, batch = self._own_module, self._exact_batch.kept[DEFAULT_MODULE_ID]
        features, logits = module.outputs(batch[Columns.OBS])
        # KL(old || new), and the share of the targets' variance that the critic explains.
        old = torch.log_softmax(batch[Columns.ACTION_DIST_INPUTS], -1)
        new = torch.log_softmax(logits, -1)
        targets = batch[Postprocessing.VALUE_TARGETS]
        errors = targets - module.critic(features)
        values = {
            "kl": (old.exp() * (old - new)).sum(-1).mean().item(),
            "explained_variance": (1 - errors.var() / targets.var().clamp_min(1e-12)).item(),
            **feature_values(features),
        }
        if REFERENCE_LOGITS in batch:
            values["reference_kl"] = kl_divergence(logits, batch[REFERENCE_LOGITS]).item()
        return values

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, the epoch, and the generators that shuffle."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        state["epoch"] = self.epoch
        if components is None:
            # RLlib shuffles by numpy's global generator.
            numpy_state = np.random.get_state()  # noqa: NPY002
            state["generators"] = {"torch": torch.get_rng_state().numpy(), "numpy": numpy_state}
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume where `get_state` was called."""
        super().set_state(state)
        self.epoch = state.get("epoch", self.epoch)
        if "generators" in state:
            torch.set_rng_state(torch.from_numpy(state["generators"]["torch"]))
            np.random.set_state(state["generators"]["numpy"])  # noqa: NPY002


@torch.no_grad()
def reference_logits(network: Network, masked: bool, rows: Tensor) -> Tensor:
    """Logits (B, N) of a network for rows (B, width) of the environment."""
    _, logits = network(*network.inputs.spec.split_mask(rows, masked))
    return logits


def feature_values(features: Tensor) -> dict[str, float]:
    """Statistics of the features (B, d), by their names in the training table."""
    statistics = feature_statistics(features)
    return {
        "feature_covariance": statistics.covariance.item(),
        "feature_correlation": statistics.correlation.item(),
        "feature_effective_rank": statistics.effective_rank.item(),
    }


def _rows(batch: Batch, weights: Weights) -> Rows:
    return Rows(
        batch[Columns.ACTIONS],
        batch[Columns.ACTION_LOGP],
        batch[Postprocessing.ADVANTAGES],
        batch[Postprocessing.VALUE_TARGETS],
        batch.get(REFERENCE_LOGITS),
        batch[Columns.ACTION_DIST_INPUTS] if weights.sampling_kl else None,
    )
