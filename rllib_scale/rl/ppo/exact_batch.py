"""The rows of a sample on which an epoch trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from torch import Tensor

from rllib_scale.rl.distributed import gathered, num_learners, own
from rllib_scale.rl.env_runner import GROUP_ADVANTAGE
from rllib_scale.rl.ppo.lean_update import Batch
from rllib_scale.rl.ppo.loss import standardised

REFERENCE_LOGITS = "reference_logits"
"""Column of a training that is held to a reference policy: its logits (B, N)."""


class ExactBatch(ConnectorV2):
    """Last learner connector: exactly the collected rows, shuffled, with all their columns.

    RLlib's batch has one masked bootstrap row more for every piece of an episode, and up to `num_envs` - 1 rows too
    many, so that 1024 rows would not make 4 minibatches. It also shuffles only from the second pass on, and the
    covariance of consecutive steps of one environment differs from that of the batch.

    Args:
        rows: number of rows to keep.
        standardise: the advantages, over the rows that are kept, those of all learners.
        reference: maps observations to logits of a reference policy, which are added to the rows.
    """

    def __init__(
        self, rows: int, standardise: bool = False, reference: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.rows = rows
        self.standardise = standardise
        self.reference = reference
        self.kept: dict[str, Batch] = {}
        """The last batch of each module, for diagnostics after the update."""

    def __call__(self, *, rl_module: Any, batch: dict[str, Batch], **kwargs: Any) -> dict[str, Batch]:
        """Select and shuffle the rows of each module's batch."""
        # Undo it: the raw advantage is the target less the value.
        if num_learners() > 1:  # RLlib has standardised advantages, each learner over its own rows
            for module_id, columns in batch.items():
                with torch.no_grad():
                    values = rl_module[module_id].unwrapped().compute_values(columns)
                columns[Postprocessing.ADVANTAGES] = columns[Postprocessing.VALUE_TARGETS] - values
        for columns in batch.values():  # the baseline over copies takes the place of the critic's
            if GROUP_ADVANTAGE in columns:
                columns[Postprocessing.ADVANTAGES] = columns[GROUP_ADVANTAGE]
        self.kept = {
            module_id: self.select(module_batch, _unmasked(module_batch)) for module_id, module_batch in batch.items()
        }
        return {module_id: dict(module_batch) for module_id, module_batch in self.kept.items()}

    def select(self, batch: Batch, valid: Tensor) -> Batch:
        """Rows in random order, out of those whose numbers are `valid`."""
        # Shuffled before the cut: otherwise the rows left out would all be the last environment's.
        chosen = valid[torch.randperm(len(valid))[: self.rows]]
        kept = {
            column: values[chosen]
            for column, values in batch.items()
            if isinstance(values, Tensor) and column != Columns.LOSS_MASK
        }
        if self.standardise:
            # Over the kept rows of all learners: mean 0 and deviation 1 over the rows on which the epoch trains.
            kept[Postprocessing.ADVANTAGES] = own(standardised(gathered(kept[Postprocessing.ADVANTAGES])))
        if self.reference is not None:
            kept[REFERENCE_LOGITS] = self.reference(kept[Columns.OBS])
        return kept


def _unmasked(batch: Batch) -> Tensor:
    """Numbers of the rows to learn from; all where a pipeline of the user masks none."""
    mask = batch.get(Columns.LOSS_MASK)
    return torch.arange(len(batch[Columns.OBS])) if mask is None else mask.nonzero()[:, 0]
