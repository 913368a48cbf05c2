"""The learner of every PPO method: the paper's update, the regulariser, and what both log."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import Any

import numpy as np
import torch
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

from rllib_scale.config import TrainingConfig, TrialConfig
from rllib_scale.networks.build import Network
from rllib_scale.networks.srr import feature_statistics, ramp
from rllib_scale.policies.policy import initial_network
from rllib_scale.rl.gradients import mean_norm
from rllib_scale.rl.ppo.exact_batch import REFERENCE_LOGITS, ExactBatch
from rllib_scale.rl.ppo.lean_update import Batch, LeanPass, minibatches, train_batch
from rllib_scale.rl.ppo.loss import Outputs, Rows, Terms, Weights, kl_divergence, ppo_loss

logger = logging.getLogger(__name__)


def cosine(epoch: int, training: TrainingConfig) -> float:
    """Learning rate of an epoch, 0 being the first: from `learning_rate` to `final_learning_rate` after `epochs`."""
    first, last = training.learning_rate, training.final_learning_rate
    return last + (first - last) * (1 + math.cos(math.pi * min(epoch / training.epochs, 1.0))) / 2


class SchedulingLearner(PPOTorchLearner):
    """PPO with SRR. The trial stands in `learner_config_dict["trial"]` as plain data.

    One counter of finished epochs drives the cosine learning rate and the ramp of the regulariser; it is saved and
    restored with the weights. Logged once an epoch, named as in `rllib_scale.results.tables.TRAINING_COLUMNS`:
    the loss terms and the gradient norm as means over the minibatches; KL, explained variance and the statistics of
    the feature of the updated network on all rows of the epoch.
    """

    epoch: int
    """Epochs finished."""

    def build(self) -> None:
        """Build as RLlib does, then append the selection of rows to its pipeline."""
        self.trial = TrialConfig.model_validate(self.config.learner_config_dict["trial"])
        self.epoch = 0
        self._terms: list[Tensor] = []
        self._gradient_norms: list[Tensor] = []
        self._fell_back = False
        super().build()
        module = self.module[DEFAULT_MODULE_ID].unwrapped()
        reference = initial_network(self.trial)
        if reference is not None:
            module.network.load_state_dict(reference.state_dict())
        self._lean = None
        if self.trial.resources.learner == "lean":
            self._lean = LeanPass(module, self.trial.resources.compile)
        training = self.trial.training
        held_to = None
        if reference is not None and training.reference_kl_coefficient > 0:
            held_to = partial(reference_logits, reference.eval(), self.trial.env.masked)
        self._exact_batch = ExactBatch(training.steps_per_epoch, training.standardise_advantages == "epoch", held_to)
        self._learner_connector.append(self._exact_batch)

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam. RLlib is given no learning rate: it would set it anew after every update."""
        parameters = self.get_parameters(self.module[module_id])
        training = self.trial.training
        optimizer = torch.optim.Adam(parameters, lr=training.learning_rate, eps=training.adam_epsilon, fused=True)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    def loss_weights(self) -> Weights:
        """Weights of the loss terms in the current epoch."""
        training, regulariser = self.trial.training, self.trial.srr
        share = self.srr_ramp()
        return Weights(
            clip=training.clip,
            value=training.value_coefficient,
            entropy=training.entropy_coefficient,
            decorrelation=share * regulariser.lambda_decorrelation,
            kl=share * regulariser.lambda_kl,
            reduction=regulariser.reduction,
            standardise=training.standardise_advantages == "minibatch",
            regularise=regulariser.lambda_decorrelation > 0 or regulariser.lambda_kl > 0,
            reference=training.reference_kl_coefficient,
        )

    def srr_ramp(self) -> float:
        """Share of the regularisation in force in the current epoch."""
        return ramp(self.epoch, self.trial.srr.ramp_start_epoch, self.trial.srr.ramp_epochs)

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Set the learning rate of the epoch."""
        super().before_gradient_based_update(timesteps=timesteps)
        for optimizer in self._named_optimizers.values():
            self._set_optimizer_lr(optimizer, cosine(self.epoch, self.trial.training))

    def update(
        self,
        *,
        training_data: TrainingData | None = None,
        timesteps: dict[str, Any] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        _no_metrics_reduce: bool = False,
        **kwargs: Any,
    ) -> Any:
        """One epoch: `Learner.update`, by the lean path where the trial asks for it and it applies."""
        obstacle = self._obstacle_to_lean_update(training_data)
        if training_data is None or self._lean is None or obstacle:
            if obstacle and self.trial.resources.learner == "lean" and not self._fell_back:
                logger.warning("learner: lean does not apply (%s); RLlib's update loop does the work", obstacle)
                self._fell_back = True
            return super().update(
                training_data=training_data,
                timesteps=timesteps,
                num_epochs=num_epochs,
                minibatch_size=minibatch_size,
                _no_metrics_reduce=_no_metrics_reduce,
                **kwargs,
            )
        self.before_gradient_based_update(timesteps=timesteps or {})
        self._weights_seq_no += 1
        self._lean_update(self._lean, training_data.episodes, num_epochs, minibatch_size)
        self.after_gradient_based_update(timesteps=timesteps or {})
        return None if _no_metrics_reduce else self.metrics.reduce()

    def _obstacle_to_lean_update(self, training_data: TrainingData | None) -> str | None:
        """Why RLlib's path has to do this update; None where the lean one can."""
        if self.trial.resources.learner != "lean":
            return "the trial asks for RLlib's"
        if training_data is None:
            return "the input is not episodes"
        training_data.solve_refs()
        episodes = training_data.episodes
        if not episodes or not all(isinstance(episode, SingleAgentEpisode) for episode in episodes):
            return "the input is not single-agent episodes"
        if sum(map(len, episodes)) < self._exact_batch.rows:
            return f"fewer than {self._exact_batch.rows} steps were sampled"
        return None

    def _lean_update(
        self, lean: LeanPass, episodes: list[SingleAgentEpisode], passes: int, minibatch_size: int | None
    ) -> None:
        ((_, optimizer),) = self.get_optimizers_for_module(DEFAULT_MODULE_ID)
        parameters = list(self.module[DEFAULT_MODULE_ID].parameters())
        training, weights = self.trial.training, self.loss_weights()
        batch = train_batch(
            episodes,
            lean.values,
            training.gamma,
            training.gae_lambda,
            training.time_unit_s,
            lambda_by_time=training.lambda_by == "time",
        )
        kept = self._exact_batch.select(batch, torch.arange(len(batch[Columns.OBS])))
        self._exact_batch.kept = {DEFAULT_MODULE_ID: kept}
        rows = len(kept[Columns.OBS])
        for minibatch in minibatches(kept, minibatch_size or rows, passes):
            for parameter in parameters:
                parameter.grad = None
            loss, terms = lean.loss(minibatch[Columns.OBS], _rows(minibatch), weights)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(parameters, training.gradient_clip)
            self._terms.append(terms)
            self._gradient_norms.append(norm)
            if not math.isfinite(norm):
                logger.warning("a gradient is not finite: it counts as 0")
                optimizer.zero_grad(set_to_none=False)
            optimizer.step()
        self._log_trained(passes * rows, minibatch_size or rows, loss.detach())

    def _log_trained(self, steps: int, minibatch_size: int, loss: Tensor) -> None:
        """What RLlib counts, by the keys and reductions that it uses."""
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
        """Loss of a minibatch over its unmasked rows."""
        values = self.module[module_id].unwrapped().compute_values(batch, fwd_out[Columns.EMBEDDINGS])
        rows, outputs = _rows(batch), Outputs(fwd_out[Columns.EMBEDDINGS], fwd_out[Columns.ACTION_DIST_INPUTS], values)
        if Columns.LOSS_MASK in batch:
            mask = batch[Columns.LOSS_MASK]
            rows = Rows(*(t if t is None else t[mask] for t in rows))  # type: ignore[arg-type]
            outputs = Outputs(*(t[mask] for t in outputs))
        loss, terms = ppo_loss(rows, outputs, self.loss_weights())
        self._terms.append(torch.stack(terms).detach())
        return loss

    def postprocess_gradients_for_module(
        self, *, module_id: str, config: Any = None, module_gradients_dict: dict[Any, Tensor]
    ) -> dict[Any, Tensor]:
        """Clip by the global norm, in place."""
        parameters = list(module_gradients_dict)  # RLlib's reference to a parameter is the parameter
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.trial.training.gradient_clip)
        self._gradient_norms.append(norm)
        return module_gradients_dict

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Log the epoch and count it."""
        super().after_gradient_based_update(timesteps=timesteps)
        weights = self.loss_weights()
        means = torch.stack(self._terms).mean(0).tolist()
        for module_id, batch in self._exact_batch.kept.items():
            values = dict(zip(Terms._fields, means, strict=True)) | self._diagnose(module_id, batch)
            values |= {"gradient_norm": mean_norm(self._gradient_norms)} | self.schedule_values(weights)
            self.metrics.log_dict(values, key=module_id, window=1)
        self._terms.clear()
        self._gradient_norms.clear()
        self.epoch += 1

    def schedule_values(self, weights: Weights) -> dict[str, Any]:
        """What was in force in the epoch."""
        return {
            "learning_rate": cosine(self.epoch, self.trial.training),
            "srr_ramp": self.srr_ramp(),
            "srr_lambda_decorrelation": weights.decorrelation,
            "srr_lambda_kl": weights.kl,
        }

    @torch.no_grad()
    def _diagnose(self, module_id: str, batch: Batch) -> dict[str, float]:
        """The updated network on the rows of the epoch."""
        module = self.module[module_id].unwrapped()
        features, logits = (self._lean or module).outputs(batch[Columns.OBS])
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
        if self._check_component("generators", components, not_components):
            # RLlib shuffles by numpy's global generator.
            numpy_state = np.random.get_state()  # noqa: NPY002
            state["generators"] = {"torch": torch.get_rng_state().numpy(), "numpy": numpy_state}
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where `get_state` was called."""
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


def _rows(batch: Batch) -> Rows:
    return Rows(
        batch[Columns.ACTIONS],
        batch[Columns.ACTION_LOGP],
        batch[Postprocessing.ADVANTAGES],
        batch[Postprocessing.VALUE_TARGETS],
        batch.get(REFERENCE_LOGITS),
    )
