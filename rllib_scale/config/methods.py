"""Methods: presets of algorithm, network and regulariser, and the name of what a training uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from rllib_scale.config.algorithms import ALGORITHM_MODELS
from rllib_scale.config.network import NETWORK_MODELS
from rllib_scale.errors import choice_error

Partial = Mapping[str, Any]
"""Some settings of a section."""


@dataclass(frozen=True)
class Preset:
    """A method: what its trainings set, in the shape of a trial.

    Attributes:
        description: one line.
        algorithm: its name, and settings in place of its defaults.
        network: the same of its network; None: a price rule.
        srr: settings of SRR; None: without it.
    """

    description: str
    algorithm: Partial
    network: Partial | None
    srr: Partial | None = None


_PPO = {"name": "ppo"}
_POINTER, _MLP = {"name": "cross-attention"}, {"name": "mlp"}
_COPIES: dict[str, Any] = _PPO | {
    **{"copies": 8, "groups": 48, "advantage": "group", "horizon_s": 15.0, "final_sharpness": 3.0},
    **{"standardise_advantages": "epoch", "entropy_coefficient": 0.0, "learning_rate": 1e-3},
    **{"steps_per_epoch": 49_152, "minibatch_size": 6144, "passes": 2, "validation_instances": 64},
}
METHODS: dict[str, Preset] = {
    "scale": Preset("cross-attention pointer trained by PPO with SRR", _PPO, _POINTER, srr={}),
    "crossattn": Preset("cross-attention pointer trained by PPO, no SRR", _PPO, _POINTER),
    "ppo": Preset("structured MLP trained by PPO, fixed number of servers", _PPO, _MLP),
    "ppo-srr": Preset("structured MLP trained by PPO with SRR, fixed number of servers", _PPO, _MLP, srr={}),
    "dqn": Preset("structured MLP trained by double dueling DQN, fixed number of servers", {"name": "dqn"}, _MLP),
    "sac": Preset("structured MLP trained by discrete SAC, fixed number of servers", {"name": "sac"}, _MLP),
    "deepsets": Preset("Deep Sets encoder under the same pointer, PPO, no SRR", _PPO, {"name": "deep-sets"}),
    "deepsets-srr": Preset(
        "Deep Sets encoder under the same pointer, PPO with SRR", _PPO, {"name": "deep-sets"}, srr={}
    ),
    "set-transformer": Preset(
        "servers attend to each other (induced points), same pointer, PPO, no SRR", _PPO, {"name": "set-transformer"}
    ),
    "set-transformer-srr": Preset(
        "servers attend to each other (induced points), same pointer, PPO with SRR",
        _PPO,
        {"name": "set-transformer"},
        srr={},
    ),
    "attention-model": Preset(
        "cross-attention, pointer logits scaled and clipped (10 tanh), PPO, no SRR", _PPO, {"name": "attention-model"}
    ),
    "attention-model-srr": Preset(
        "cross-attention, pointer logits scaled and clipped (10 tanh), PPO with SRR",
        _PPO,
        {"name": "attention-model"},
        srr={},
    ),
    "scale-any": Preset(
        "scale in the order and on the estimates of adaptive-price, for any cluster; a baseline over copies",
        _COPIES,
        _POINTER | {"skip": "adaptive", "skip_sharpness": 8.0},
        srr={},
    ),
    "context-price": Preset(
        "prices of fast servers by load, queue and idle servers, searched by CMA-ES",
        {"name": "cma", "rule": "context-price"},
        None,
    ),
    "adaptive-price": Preset(
        "dual prices of what has arrived, modulated by a map for any cluster that CMA-ES searches",
        {"name": "cma", "rule": "adaptive-price"},
        None,
    ),
    "adaptive-gate": Preset(
        "lmetric behind a gate that follows the state, for LLM replicas, searched by CMA-ES",
        {"name": "cma", "rule": "adaptive-gate"},
        None,
    ),
    "scale-gate": Preset(
        "scale for LLM replicas, places and holds calls; begins as lmetric behind its gate; a baseline over copies",
        _COPIES | {"groups": 12, "horizon_s": 100.0, "validation_instances": 16},
        _POINTER | {"skip": "lmetric", "skip_sharpness": 1.0},
        srr={},
    ),
    "decima": Preset(
        "graph network over the workflows (Decima, 2019): task, then server; REINFORCE",
        {"name": "reinforce"},
        {"name": "decima"},
    ),
    "deeprm": Preset(
        "image of cluster and queue (DeepRM, 2016), REINFORCE, fixed number of servers",
        {"name": "reinforce"},
        {"name": "deeprm"},
    ),
}


def preset_of(method: str) -> Preset:
    """The preset of a method.

    Raises:
        ValueError: there is no such method.
    """
    if method not in METHODS:
        raise ValueError(str(choice_error("method", method, METHODS)))
    return METHODS[method]


def method_in(settings: Mapping[str, Any]) -> str:
    """The name of the method in the settings of a training: that of the nearest preset.

    Nearest by algorithm and network, then by the other settings of presets. The settings are plain data, not validated,
    which may be of an older version: what they lack is at its default.

    >>> method_in({"algorithm": {"name": "ppo", "passes": 2}, "network": {"name": "mlp"}, "srr": {}})
    'ppo-srr'
    >>> method_in({"algorithm": {"name": "imitation"}, "network": {"name": "cross-attention"}, "srr": None})
    'crossattn'
    """
    return min(METHODS, key=lambda name: _distance(METHODS[name], settings))


def _distance(preset: Preset, settings: Mapping[str, Any]) -> tuple[int, bool, int]:
    pairs = [
        (settings.get("algorithm") or {}, preset.algorithm),
        (settings.get("network") or {}, preset.network or {}),
    ]
    unlike = [found.get("name") != own.get("name") for found, own in pairs]
    changed = sum(
        found.get(key, default) != own.get(key, default)
        for found, own in pairs
        for key, default in _telling(own.get("name", "")).items()
    )
    return sum(unlike), unlike[0], changed + ((settings.get("srr") is None) != (preset.srr is None))


@cache
def _telling(member: str) -> dict[str, Any]:
    """The settings of an algorithm or a network that some preset changes, with their defaults."""
    sections = [part for preset in METHODS.values() for part in (preset.algorithm, preset.network or {})]
    keys = {key for part in sections if part.get("name") == member for key in part} - {"name"}
    fields = (ALGORITHM_MODELS | NETWORK_MODELS)[member].model_fields if keys else {}
    return {key: fields[key].default for key in keys}
