"""Gradients that are not finite: a few are left out, a training of nothing else fails."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


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
