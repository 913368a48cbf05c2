"""The learners of DQN and SAC: RLlib's losses and target networks, their logs and their state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_PREDS
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.sac.sac_learner import ACTION_LOG_PROBS, ACTION_PROBS, QF_TWIN_LOSS_KEY
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import POLICY_LOSS_KEY
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor, nn

from rllib_scale.config import SAC, TrialConfig
from rllib_scale.networks.inputs import MASKED
from rllib_scale.rl.distributed import average_gradient
from rllib_scale.rl.gradients import LeanLearner
from rllib_scale.rl.settings import fixed_rate, off_policy_of

TOTALS = "totals"
"""Key of the sums over the updates of an epoch; `updates` among them is their number."""


class DQNLearner(LeanLearner, DQNTorchLearner):
    """RLlib's DQN. `learner_config_dict["trial"]` is the trial as plain data.

    The lean step is worth 1.28 in CPU time of an epoch of DQN, 1.40 of SAC (N = 16, 10 epochs each, interleaved).
    Logged under `TOTALS`: the sums of what `rllib_scale.results.columns.TRAINING_COLUMNS` holds the means of.
    """

    def build(self) -> None:
        """Build as RLlib does."""
        self.trial = TrialConfig.model_validate(self.config.learner_config_dict["trial"])
        self.settings = off_policy_of(self.trial)
        self._totals: dict[str, list[Tensor]] = {}
        self._rates: list[tuple[torch.optim.Optimizer, float]] = []
        super().build()

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam for everything."""
        self._register("q", self.get_parameters(self.module[module_id]), "lr")

    def _register(self, name: str, parameters: list[Tensor], rate: str) -> None:
        lr, eps = fixed_rate(self.config, rate), self.settings.adam_epsilon
        optimizer = torch.optim.Adam(parameters, lr=lr, eps=eps, fused=True)
        self._rates.append((optimizer, lr))
        self.register_optimizer(
            module_id=DEFAULT_MODULE_ID, optimizer_name=name, optimizer=optimizer, params=parameters
        )

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Tensor]
    ) -> Tensor:
        """RLlib's loss, and note its terms."""
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        # Q of the actions that were taken, whose growth without bound shows a diverging training.
        taken = fwd_out[QF_PREDS].detach().gather(1, batch[Columns.ACTIONS].long()[:, None])
        for name, term in (self._terms(loss, fwd_out) | {"q_mean": taken.mean()}).items():
            self._totals.setdefault(name, []).append(term.detach())
        return loss

    def _terms(self, loss: Tensor, fwd_out: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"value_loss": loss}

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Move the target networks as RLlib does, and log."""
        super().after_gradient_based_update(timesteps=timesteps)
        # Sums and their count, not means: an epoch is several updates, and means of means would weigh them wrongly.
        updates, terms = len(self._gradient_norms), self._totals | {"gradient_norm": self._gradient_norms}
        totals = {name: torch.stack(each).sum().item() for name, each in terms.items()}
        totals |= {name: updates * value for name, value in self._schedules(timesteps).items()}
        for name, total in (totals | {"updates": updates}).items():
            self.metrics.log_value((DEFAULT_MODULE_ID, TOTALS, name), total, reduce="sum")
        self._totals.clear()
        self._gradient_norms.clear()

    def _schedules(self, timesteps: dict[str, Any]) -> dict[str, float]:
        epsilon = self._own_module.epsilon(timesteps[NUM_ENV_STEPS_SAMPLED_LIFETIME])
        return {"learning_rate": self.config.lr, "epsilon": epsilon}

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, and when the target networks were last updated."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        state["targets_updated"] = dict(self.last_update_ts_by_mid)
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume where `get_state` was called."""
        super().set_state(state)
        for optimizer, rate in self._rates:  # a copy made by PBT has another rate than its checkpoint
            for group in optimizer.param_groups:
                group["lr"] = rate
        self.last_update_ts_by_mid.update(state.get("targets_updated", {}))


class SACLearner(DQNLearner, SACTorchLearner):
    """RLlib's SAC, with target networks that move at every gradient step however many an update makes."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """One Adam each for policy, either Q-network and temperature, as in RLlib."""
        module = self.module[module_id]
        self._register("qf", list(module.qf_encoder.parameters()), "critic_lr")
        self._register("qf_twin", list(module.qf_twin_encoder.parameters()), "critic_lr")
        self._register("policy", list(module.pi_encoder.parameters()), "actor_lr")
        self._register("alpha", [self.curr_log_alpha[module_id]], "alpha_lr")

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Tensor]
    ) -> Tensor:
        """RLlib's loss with the entropy target of this batch.

        A share of the logarithm of the number of servers that may be chosen, mean over the rows: with a mask, a
        share of ln N may be out of reach, and the temperature would grow without end.
        """
        # The number of servers that the mask leaves: its ln is the largest possible entropy.
        choices = (fwd_out[ACTION_LOG_PROBS] > MASKED / 2).sum(-1)
        assert isinstance(self.settings, SAC)
        self.target_entropy[module_id] = self.settings.target_entropy_share * choices.log().mean()
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)

    def _terms(self, loss: Tensor, fwd_out: dict[str, Tensor]) -> dict[str, Tensor]:
        # One loss is the sum of four terms: their own values are where RLlib keeps them until the step.
        policy, one, twin = (
            self._temp_losses[DEFAULT_MODULE_ID, name] for name in (POLICY_LOSS_KEY, QF_LOSS_KEY, QF_TWIN_LOSS_KEY)
        )
        return {
            "policy_loss": policy,
            "value_loss": (one + twin) / 2,
            "entropy": -(fwd_out[ACTION_PROBS] * fwd_out[ACTION_LOG_PROBS]).sum(-1).mean(),
            "temperature": self.curr_log_alpha[DEFAULT_MODULE_ID].exp()[0],
        }

    def _schedules(self, timesteps: dict[str, Any]) -> dict[str, float]:
        return {"learning_rate": self.config.actor_lr}

    def postprocess_gradients_for_module(self, *, module_id: str, **kwargs: Any) -> dict[Any, Tensor]:
        """Like `DQNLearner`, with one temperature for several learners: it is no parameter of the module."""
        average_gradient(self.curr_log_alpha[module_id])
        return super().postprocess_gradients_for_module(module_id=module_id, **kwargs)

    def _update(self, batch: dict[str, Any], **kwargs: Any) -> tuple[Any, Any, Any]:
        """One gradient step, and the target networks after it."""
        result = super()._update(batch, **kwargs)
        self._temp_losses.clear()
        pairs = self._own_module.get_target_network_pairs()
        with torch.no_grad():
            # target += tau (network - target), all tensors in one call.
            torch._foreach_lerp_(
                _parameters(target for _, target in pairs),
                _parameters(network for network, _ in pairs),
                self.config.tau,
            )
        return result

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, and the temperature."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        state["log_temperature"] = self.curr_log_alpha[DEFAULT_MODULE_ID].item()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume where `get_state` was called."""
        super().set_state(state)
        if "log_temperature" in state:
            self.curr_log_alpha[DEFAULT_MODULE_ID].data.fill_(state["log_temperature"])


def _parameters(networks: Iterable[nn.Module]) -> list[Tensor]:
    return [parameter for network in networks for parameter in network.parameters()]
