"""Clipping, and gradients that are not finite: a few are left out, a training of nothing else fails."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.utils.torch_utils import clip_gradients
from torch import Tensor, nn

logger = logging.getLogger(__name__)


def descend(learner: TorchLearner, module_id: str, loss: Tensor) -> Tensor:
    """One gradient step on a loss whose terms do not meet in a parameter, by all optimizers of a module.

    Returns:
        The global norm of the gradients before they are clipped.
    """
    optimizers = [optimizer for _, optimizer in learner.get_optimizers_for_module(module_id)]
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = clip(learner, module_id)
    if not math.isfinite(norm):
        logger.warning("a gradient is not finite: it counts as 0")
    for optimizer in optimizers:
        if not math.isfinite(norm):
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()
    return norm


def clip(learner: TorchLearner, module_id: str) -> Tensor:
    """Clip the gradients of each optimizer of a module in place, as `grad_clip` and `grad_clip_by` say.

    Returns:
        Their global norm before that.
    """
    config: Any = learner.config.get_config_for_module(module_id)
    norms = []
    for name, optimizer in learner.get_optimizers_for_module(module_id):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
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
            learner.metrics.log_value((module_id, f"gradients_{name}_global_norm"), norm, window=1)
        norms.append(norm)
    return norms[0] if len(norms) == 1 else torch.stack(norms).norm()


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
