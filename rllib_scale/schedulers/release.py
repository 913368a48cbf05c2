"""A rule for replicas whose held calls are released by an index, behind a gate that follows the state."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config.schedulers import RuleSpec, parse_scheduler
from rllib_scale.schedulers.base import BasePolicy
from rllib_scale.schedulers.replicas import REPLICA_RULES, FleetRule
from rllib_scale.simulator.replicas.gate import GATE_TERMS, PLACE_TERMS
from rllib_scale.simulator.replicas.state import CALL_TERMS, FLEET_TERMS

ALWAYS = 5.0
"""Minutes of the order of the line; with it a call that fits goes, but for one far behind."""


class ReleaseIndex(BasePolicy):
    """Releases the held call of the largest index; see `simulator.replicas.release` and `simulator.replicas.gate`.

    Args:
        weights: (W,) of GATE_TERMS, PLACE_TERMS, CALL_TERMS and FLEET_TERMS; or (B, W), one for each fleet. With 0, as
            with `initial`, the first call in line that fits goes. Of size 0: the rule itself decides.
        rule: places calls, has the gate and the order of the line.
    """

    name = "release-index"
    description = "a rule for LLM replicas whose held calls are released by an index of the call and the fleet"
    sees: Literal["tasks", "workflows"] = "tasks"

    def __init__(self, weights: NDArray[np.float64], rule: str) -> None:
        super().__init__()
        spec = parse_scheduler(rule)
        scheduler = REPLICA_RULES[spec.name](spec.parameters) if isinstance(spec, RuleSpec) else None
        assert isinstance(scheduler, FleetRule), f"{rule}: not a rule for replicas"
        self.rule, self.weights = scheduler, np.asarray(weights, dtype=np.float64)
        if self.weights.shape[-1] not in (0, self.size()):
            raise ValueError(f"weights {self.weights.shape}: the last must be {self.size()}, or 0")

    @staticmethod
    def size() -> int:
        """W."""
        return len(GATE_TERMS) + len(PLACE_TERMS) + len(CALL_TERMS) + len(FLEET_TERMS)

    @classmethod
    def initial(cls) -> NDArray[np.float64]:
        """(W,) weights with which the order of the line decides by degrees: what is near in it is near in the index."""
        weights = np.zeros(cls.size())
        terms = dict(zip((*CALL_TERMS, *FLEET_TERMS), range(-len(CALL_TERMS) - len(FLEET_TERMS), 0), strict=True))
        weights[terms["ahead"]], weights[terms["one"]] = 1.0, ALWAYS
        return weights

    @property
    def values(self) -> NDArray[np.float64]:
        """Values for `ReplicaEngine.play`."""
        rule = self.rule.values
        return np.concatenate([np.broadcast_to(rule, (*self.weights.shape[:-1], len(rule))), self.weights], axis=-1)

    def advance(self, batch: Any) -> None:
        """Decide in every fleet until its episode ends."""
        batch.play(self.values)
