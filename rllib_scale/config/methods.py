"""Learned methods: which network, trained by which algorithm, with or without the regulariser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

AlgorithmName = Literal["ppo", "dqn", "sac", "cma", "reinforce"]
NetworkName = Literal["cross-attention", "deep-sets", "set-transformer", "attention-model", "mlp", "decima", "deeprm"]


@dataclass(frozen=True)
class MethodSpec:
    """A method: its algorithm, its network and its observability."""

    algorithm: AlgorithmName
    network: NetworkName | None  # None: a price rule
    srr: bool
    description: str
    visits: bool = False  # decides in rounds in the order of `adaptive-price`, on the features `relative`
    replicas: bool = False  # places and holds calls of LLM replicas, and plays nothing else
    sees: Literal["tasks", "workflows"] = "tasks"
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """Section -> settings in place of the defaults of its algorithm or network."""

    @property
    def any_scale(self) -> bool:
        """Whether a trained policy runs at any number of servers."""
        return self.network not in ("mlp", "deeprm")

    @property
    def takes_encoder(self) -> bool:
        """Whether a user-defined encoder may replace the encoder of its network."""
        return self.any_scale and not self.dispatches

    @property
    def plays_copies(self) -> bool:
        """Whether it learns from copies of each episode."""
        return "copies" in self.defaults.get("ppo", {})

    @property
    def dispatches(self) -> bool:
        """Whether its policy decides for all waiting tasks at each event, trained on whole episodes."""
        return self.visits or self.algorithm in ("cma", "reinforce")


_OF_COPIES: dict[str, Any] = {
    **{"copies": 8, "groups": 48, "advantage": "group", "horizon_s": 15.0, "final_sharpness": 3.0},
    **{"standardise_advantages": "epoch", "entropy_coefficient": 0.0, "learning_rate": 1e-3},
    **{"steps_per_epoch": 49_152, "minibatch_size": 6144, "passes": 2, "validation_instances": 64},
}
IN_VISITS: dict[str, dict[str, Any]] = {
    "ppo": _OF_COPIES,
    "network": {"skip": "adaptive", "skip_sharpness": 8.0},
}
"""Defaults of methods that decide in rounds in the order of `adaptive-price`."""
ON_REPLICAS: dict[str, dict[str, Any]] = {
    "ppo": _OF_COPIES | {"groups": 12, "horizon_s": 100.0, "validation_instances": 16},
    "network": {"skip": "lmetric", "skip_sharpness": 1.0},
}
"""Defaults of methods that place and hold calls of LLM replicas."""
METHODS: dict[str, MethodSpec] = {
    "scale": MethodSpec("ppo", "cross-attention", True, "cross-attention pointer trained by PPO with SRR"),
    "crossattn": MethodSpec("ppo", "cross-attention", False, "cross-attention pointer trained by PPO, no SRR"),
    "ppo": MethodSpec("ppo", "mlp", False, "structured MLP trained by PPO, fixed number of servers"),
    "ppo-srr": MethodSpec("ppo", "mlp", True, "structured MLP trained by PPO with SRR, fixed number of servers"),
    "dqn": MethodSpec("dqn", "mlp", False, "structured MLP trained by double dueling DQN, fixed number of servers"),
    "sac": MethodSpec("sac", "mlp", False, "structured MLP trained by discrete SAC, fixed number of servers"),
    "deepsets": MethodSpec("ppo", "deep-sets", False, "Deep Sets encoder under the same pointer, PPO, no SRR"),
    "deepsets-srr": MethodSpec("ppo", "deep-sets", True, "Deep Sets encoder under the same pointer, PPO with SRR"),
    "set-transformer": MethodSpec(
        "ppo", "set-transformer", False, "servers attend to each other (induced points), same pointer, PPO, no SRR"
    ),
    "set-transformer-srr": MethodSpec(
        "ppo", "set-transformer", True, "servers attend to each other (induced points), same pointer, PPO with SRR"
    ),
    "attention-model": MethodSpec(
        "ppo", "attention-model", False, "cross-attention, pointer logits scaled and clipped (10 tanh), PPO, no SRR"
    ),
    "attention-model-srr": MethodSpec(
        "ppo", "attention-model", True, "cross-attention, pointer logits scaled and clipped (10 tanh), PPO with SRR"
    ),
    "scale-any": MethodSpec(
        "ppo",
        "cross-attention",
        True,
        "scale in the order and on the estimates of adaptive-price, for any cluster; a baseline over copies",
        visits=True,
        sees="workflows",
        defaults=IN_VISITS,
    ),
    "context-price": MethodSpec(
        "cma",
        None,
        False,
        "prices of fast servers by load, queue and idle servers, searched by CMA-ES",
        sees="workflows",
    ),
    "adaptive-price": MethodSpec(
        "cma",
        None,
        False,
        "dual prices of what has arrived, modulated by a map for any cluster that CMA-ES searches",
        sees="workflows",
    ),
    "adaptive-gate": MethodSpec(
        "cma",
        None,
        False,
        "lmetric behind a gate that follows the state, for LLM replicas, searched by CMA-ES",
        replicas=True,
    ),
    "scale-gate": MethodSpec(
        "ppo",
        "cross-attention",
        True,
        "scale for LLM replicas, places and holds calls; begins as lmetric behind its gate; a baseline over copies",
        replicas=True,
        defaults=ON_REPLICAS,
    ),
    "decima": MethodSpec(
        "reinforce",
        "decima",
        False,
        "graph network over the workflows (Decima, 2019): task, then server; REINFORCE",
        sees="workflows",
    ),
    "deeprm": MethodSpec(
        "reinforce", "deeprm", False, "image of cluster and queue (DeepRM, 2016), REINFORCE, fixed number of servers"
    ),
}
NETWORKS = [name for name, spec in METHODS.items() if not spec.dispatches and not spec.replicas]
"""Methods for servers of fixed speed whose policy is a network over an observation."""
