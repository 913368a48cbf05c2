"""One gradient step without RLlib's containers, clipping, and gradients that are not finite."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.utils.torch_utils import clip_gradients
from torch import Tensor, nn

from rllib_scale.rl.settings import obstacle_to_lean_learner, overridden

logger = logging.getLogger(__name__)

LEAN_REPLACES = (
    "compute_losses",
    "compute_gradients",
    "postprocess_gradients",
    "postprocess_gradients_for_module",
    "apply_gradients",
    "_update",
)
"""Methods of a learner that a lean step replaces or leaves out."""


class LeanLearner(TorchLearner):
    """A learner of one module whose losses do not meet in a parameter.

    Where the settings of RLlib allow it, a gradient step leaves out what RLlib does around it for several modules,
    several optimizers over one graph, and mixed precision; the arithmetic is the same. Otherwise RLlib's own update
    does the work, and one line of the log names the setting.
    """

    def build(self) -> None:
        """Build as RLlib does."""
        self._gradient_norms: list[Tensor] = []  # of the steps so far, before clipping
        super().build()
        self._obstacle = obstacle_to_lean_learner(self.config) or overridden(type(self), LEAN_REPLACES)
        self._fell_back = False
        if self._obstacle:
            self._say_once(self._obstacle)

    @property
    def _own_module(self) -> Any:
        return self.module[DEFAULT_MODULE_ID].unwrapped()

    def _say_once(self, obstacle: str) -> None:
        if not self._fell_back:
            logger.warning("the lean update does not apply (%s); RLlib's own does the work", obstacle)
            self._fell_back = True

    def _update(self, batch: dict[str, Any], **kwargs: Any) -> tuple[Any, Any, Any]:
        """One gradient step."""
        if self._obstacle:
            return super()._update(batch, **kwargs)
        rows = batch[DEFAULT_MODULE_ID]
        # One module, losses that share no parameter: one backward, then every optimizer steps.
        module = self._own_module
        if not module.training:
            module.train()  # RLlib's forward_train does so, through every submodule, at each step
        fwd_out = module._forward_train(rows)
        loss = self.compute_loss_for_module(
            module_id=DEFAULT_MODULE_ID, config=self.config, batch=rows, fwd_out=fwd_out
        )
        optimizers = [optimizer for _, optimizer in self.get_optimizers_for_module(DEFAULT_MODULE_ID)]
        for parameter in (p for optimizer in optimizers for p in _parameters(optimizer)):
            parameter.grad = None
        loss.backward()
        norm = self._clip(DEFAULT_MODULE_ID)
        is_finite = math.isfinite(norm)
        if not is_finite:
            logger.warning("a gradient is not finite: it counts as 0")
        for optimizer in optimizers:
            if not is_finite:
                # Adam still steps, along its moments, as under RLlib's own update: both count the same number of steps.
                optimizer.zero_grad(set_to_none=False)
            optimizer.step()
        return fwd_out, {DEFAULT_MODULE_ID: loss.detach()}, {}

    def postprocess_gradients_for_module(
        self, *, module_id: str, config: Any = None, module_gradients_dict: dict[Any, Tensor]
    ) -> dict[Any, Tensor]:
        """Clip in place, and note the norm before that."""
        self._clip(module_id)
        return module_gradients_dict

    def _clip(self, module_id: str) -> Tensor:
        """Clip the gradients of each optimizer of a module in place, as `grad_clip` and `grad_clip_by` say.

        Returns:
            Their global norm before that.
        """
        config: Any = self.config.get_config_for_module(module_id)
        norms = []
        for name, optimizer in self.get_optimizers_for_module(module_id):
            parameters = _parameters(optimizer)
            # clip_grad_norm_ returns the norm before it clips; the other ways need it computed.
            if config.grad_clip and config.grad_clip_by == "global_norm":
                norm = nn.utils.clip_grad_norm_(parameters, config.grad_clip)
            else:
                norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            if config.grad_clip and config.grad_clip_by == "value":
                nn.utils.clip_grad_value_(parameters, config.grad_clip)
            elif config.grad_clip and config.grad_clip_by != "global_norm":
                clip_gradients(
                    {p: p.grad for p in parameters}, grad_clip=config.grad_clip, grad_clip_by=config.grad_clip_by
                )
            if config.log_gradients:
                self.metrics.log_value((module_id, f"gradients_{name}_global_norm"), norm, window=1)
            norms.append(norm)
        # Global norm over all optimizers: the root of the sum of squares of theirs.
        self._gradient_norms.append(norms[0] if len(norms) == 1 else torch.stack(norms).norm())
        return self._gradient_norms[-1]


def _parameters(optimizer: Any) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def mean_norm(norms: Sequence[Tensor]) -> float:
    """Mean of the finite ones of an epoch's gradient norms.

    Raises:
        FloatingPointError: none is; nothing was learned.
    """
    stacked = torch.stack(list(norms))
    finite = stacked[torch.isfinite(stacked)]
    if not len(finite):
        raise FloatingPointError(
            f"no gradient of the epoch's {len(stacked)} updates is finite: nothing is learned; a learning rate, a "
            "coefficient of the loss or a reward is too large"
        )
    return finite.mean().item()
