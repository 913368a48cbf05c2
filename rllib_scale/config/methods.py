"""Learned methods: which network, trained by which algorithm, with or without the regulariser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AlgorithmName = Literal["ppo", "dqn", "sac", "cma-es", "reinforce"]
NetworkName = Literal["cross-attention", "deep-sets", "set-transformer", "attention-model", "mlp", "graph", "image"]


@dataclass(frozen=True)
class MethodSpec:
    """A method: its algorithm, its network and its observability."""

    algorithm: AlgorithmName
    network: NetworkName | None  # None: a price rule
    srr: bool
    description: str
    rounds: bool = False  # decides in decision rounds with reservations, see config/rounds.py
    sees: Literal["tasks", "workflows"] = "tasks"

    @property
    def any_scale(self) -> bool:
        """Whether a trained policy runs at any number of servers."""
        return self.network not in ("mlp", "image")

    @property
    def takes_encoder(self) -> bool:
        """Whether a user-defined encoder may replace the encoder of its network."""
        return self.any_scale and not self.dispatches

    @property
    def dispatches(self) -> bool:
        """Whether its policy decides for all waiting tasks from a snapshot, trained on whole episodes outside RLlib."""
        return self.algorithm in ("cma-es", "reinforce")


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
    "scale-r": MethodSpec(
        "ppo", "cross-attention", True, "scale in rounds where tasks may wait for busy servers; prices first", True
    ),
    "crossattn-r": MethodSpec(
        "ppo", "cross-attention", False, "crossattn in rounds where tasks may wait for busy servers; prices first", True
    ),
    "context-price": MethodSpec(
        "cma-es",
        None,
        False,
        "prices of fast servers by load, queue and idle servers, searched by CMA-ES",
        sees="workflows",
    ),
    "adaptive-price": MethodSpec(
        "cma-es",
        None,
        False,
        "dual prices of what has arrived, modulated by a map for any cluster that CMA-ES searches",
        sees="workflows",
    ),
    "decima": MethodSpec(
        "reinforce",
        "graph",
        False,
        "graph network over the workflows (Decima, 2019): task, then server; REINFORCE",
        sees="workflows",
    ),
    "deeprm": MethodSpec(
        "reinforce", "image", False, "image of cluster and queue (DeepRM, 2016), REINFORCE, fixed number of servers"
    ),
}
NETWORKS = [name for name, spec in METHODS.items() if not spec.dispatches]
"""Methods whose policy is a network over an observation."""
