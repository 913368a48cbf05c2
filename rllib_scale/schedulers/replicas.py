"""Rules for replicas of a language model, as they are used in the field; compiled code of the simulator has them.

Among the replicas that the gate leaves open, the rule chooses; where there is none, the call is held.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from rllib_scale.config.replica_rules import FLEET_RULES, check_router_knows
from rllib_scale.schedulers.base import BasePolicy
from rllib_scale.simulator.replicas.rules import KINDS, VALUES


def _values(name: str, parameters: Iterable[tuple[str, float | None]]) -> np.ndarray:
    values = np.zeros(1 + len(VALUES))
    values[0] = KINDS[name]
    for key, value in parameters:
        values[1 + VALUES.index(key)] = 0.0 if value is None else value
    return values


class FleetRule(BasePolicy):
    """A rule that decides in compiled code, from one call to the next."""

    sees: Literal["tasks", "workflows"] = "tasks"

    @property
    def values(self) -> np.ndarray:
        """Its kind, and VALUES; 0 for those that its kind does not read."""
        return _values(type(self).name, self.parameters)

    def advance(self, batch: Any) -> None:
        """Decide in every fleet until its episode ends."""
        if batch.config.observation.caches == "own":
            check_router_knows(type(self).name, "observation.caches own: ")
        batch.play(self.values)


# Sources: two-choices: Mitzenmacher 2001; lmetric: arXiv 2603.15202; weighted-scores: llm-d-router, scheduling/scorer,
# with the weights of llm-d's guides; prefix-cache-affinity: llm-d-router, filter/prefixcacheaffinity, scorer/tokenload;
# cache-aware, bounded-consistent-hashing and round-robin-replica: sgl-project/sglang, sgl-model-gateway/src/policies,
# the first also vllm-project/router; dynamo-kv: ai-dynamo/dynamo, lib/kv-router/src/scheduling/selector.rs;
# thunder-agent: ThunderAgent-org/ThunderAgent, ThunderAgent/scheduler/router.py, mode tr.
_DESCRIPTIONS = {
    "random-replica": "any replica",
    "least-outstanding": "the replica with the fewest calls",
    "two-choices": "of two at random the one with fewer calls",
    "session-affinity": "where the session was, else the replica with the fewest calls",
    "bounded-affinity": "where the session was unless that has bound times the mean load, else the fewest calls",
    "lmetric": "least new prefill tokens times batch (LMetric)",
    "weighted-scores": "greatest weighted sum of cache hit, waiting calls and free memory (llm-d)",
    "prefix-cache-affinity": "fewest tokens in flight, where the prefix is unless others answer much sooner (llm-d)",
    "round-robin-replica": "one replica after the other",
    "cache-aware": "the best match in the caches while loads are balanced, else the fewest calls (SGLang, vLLM)",
    "bounded-consistent-hashing": "the session's place on a ring, or the next one below a bound of load (SGLang)",
    "dynamo-kv": "least weighted sum of blocks to prefill and blocks of calls in flight (Dynamo)",
    "thunder-agent": "agents pause between calls and resume into free memory, the smallest first (ThunderAgent)",
    "marginal-price": "least seconds that the call costs all calls: prefill, longer steps, contexts that are lost",
}
REPLICA_RULES: dict[str, type[BasePolicy]] = {
    name: type("FleetRule", (FleetRule,), {"name": name, "description": _DESCRIPTIONS[name]}) for name in FLEET_RULES
}
