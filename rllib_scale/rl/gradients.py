"""Clipping, and gradients that are not finite: a few are left out, a training of nothing else fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.utils.torch_utils import clip_gradients
from torch import Tensor, nn


def clip(learner: TorchLearner, module_id: str) -> Tensor:
    """Clip the gradients of each optimizer of a module in place, as `grad_clip` and `grad_clip_by` say.

    Returns:
        Their global norm before that.
    """
    config: Any = learner.config.get_config_for_module(module_id)
    norms = []
    for name, optimizer in learner.get_optimizers_for_module(module_id):
        parameters = learner._optimizer_parameters[optimizer]  # RLlib's reference to a parameter is the parameter
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
