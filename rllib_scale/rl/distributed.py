"""Computations over several learners. RLlib averages gradients of the module (torch's DDP)."""

from __future__ import annotations

import torch
from torch import Tensor, distributed


def num_learners() -> int:
    """Learners that update one network, 1 without torch's process group."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def gathered(rows: Tensor) -> Tensor:
    """(W B, ...) the rows (B, ...) of all W learners, by rank. B is the same everywhere.

    A learner's own rows carry W times their gradient, because RLlib averages gradients over learners. That is right for
    a mean over rows, but gives 1/W of a term that every learner computes from all rows, such as the covariance of SRR.
    """
    if (learners := num_learners()) == 1:
        return rows
    parts = [torch.empty_like(rows) for _ in range(learners)]
    distributed.all_gather(parts, rows.detach().contiguous())
    # The value of the rows, and W times their gradient.
    parts[distributed.get_rank()] = rows.detach() + learners * (rows - rows.detach())
    return torch.cat(parts)


def own(rows: Tensor) -> Tensor:
    """(B, ...) the rows of this learner in the result of `gathered`."""
    return rows if (learners := num_learners()) == 1 else rows.chunk(learners)[distributed.get_rank()]


def average_gradient(parameter: Tensor) -> None:
    """Average in place the gradient of a parameter outside the module, which DDP does not handle."""
    if (learners := num_learners()) > 1 and parameter.grad is not None:
        distributed.all_reduce(parameter.grad)
        parameter.grad /= learners
