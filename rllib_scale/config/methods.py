"""Methods: presets of algorithm, network and regulariser, what is made of them, and the name of what a training is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import Any

from rllib_scale.config.algorithms import ALGORITHM_MODELS
from rllib_scale.config.base import Model, merged
from rllib_scale.config.network import NETWORK_MODELS, CustomEncoderConfig
from rllib_scale.config.training import SRRConfig, StopConfig, TrialResources
from rllib_scale.errors import choice_error

SECTIONS = ("algorithm", "network", "srr", "stop", "resources")
"""Sections of a trial that a method's preset, a sweep, an entry of `methods` and a grid give in part."""
MEMBERS: dict[str, dict[str, Any]] = {"algorithm": ALGORITHM_MODELS, "network": NETWORK_MODELS}
"""Models of the sections that are one of several, by the names of these."""
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
    "release": Preset(
        "which held call goes: an index over held calls behind a gate that follows the state, searched by CMA-ES",
        {"name": "cma", "rule": "release-index"},
        None,
    ),
    "scale-release": Preset(
        "scale says which held call goes: its pointer over held calls, by evolution strategies; begins as release",
        {"name": "es", "rule": "scale-release"},
        _POINTER | {"skip": "linear", "num_blocks": 1},
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
    unlike = [_kind(found) != _kind(own) for found, own in pairs]
    changed = sum(
        found.get(key, default) != own.get(key, default)
        for found, own in pairs
        for key, default in _telling(own.get("name", "")).items()
    )
    return sum(unlike), unlike[0], changed + ((settings.get("srr") is None) != (preset.srr is None))


def _kind(member: Partial) -> Any:
    """Kind of an algorithm or a network: the rule that is searched; else its name."""
    name = member.get("name", "")
    fields: Any = ALGORITHM_MODELS[name].model_fields if name in ALGORITHM_MODELS else {}
    return member.get("rule", fields["rule"].default) if "rule" in fields else name


@cache
def _telling(member: str) -> dict[str, Any]:
    """The settings of an algorithm or a network that some preset changes, with their defaults."""
    sections = [part for preset in METHODS.values() for part in (preset.algorithm, preset.network or {})]
    keys = {key for part in sections if part.get("name") == member for key in part} - {"name"}
    fields: Any = (ALGORITHM_MODELS | NETWORK_MODELS)[member].model_fields if keys else {}
    return {key: fields[key].default for key in keys}


def composed(method: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training: a method's preset with layers of sections over it, each merged; the last one wins.

    A section that names another algorithm or network than the preset drops what the preset sets there. An own encoder
    is a network of its own. `srr` acts where the method has SRR.

    Args:
        method: name of a preset.
        layers: sections of a trial (`SECTIONS`) with some settings each. An empty one, and null, changes nothing.

    Raises:
        ValueError: there is no such method; a section is no mapping; or an algorithm or a network has no such setting.
    """
    preset = preset_of(method)
    given = {name: [_mapping(name, layer.get(name)) for layer in layers] for name in SECTIONS}
    encoder = [layer["encoder"] for layer in given["network"] if "encoder" in layer][-1:]
    if encoder and preset.network is not None:
        given["network"] = [{key: layer[key] for key in layer if key != "encoder"} for layer in given["network"]]
        given["network"] += [{"name": "custom", "encoder": encoder[0]}] * (encoder[0] is not None)
    return {
        "algorithm": _member(method, "algorithm", preset.algorithm, given["algorithm"]),
        "network": _member(method, "network", preset.network, given["network"]),
        "srr": None if preset.srr is None else _over(SRRConfig, preset.srr, given["srr"]),
        "stop": _over(StopConfig, {}, given["stop"]),
        "resources": _over(TrialResources, {}, given["resources"]),
    }


def _mapping(section: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, Model):
        return value.model_dump(exclude_unset=True)
    if not (value is None or isinstance(value, Mapping)):
        raise ValueError(f"{section}: must be a mapping of keys to values (got {value!r:.60})")
    return value or {}


def _over(models: Any, base: Mapping[str, Any], layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return reduce(partial(merged, models), layers, dict(base))


def _member(
    method: str, section: str, preset: Partial | None, layers: list[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The settings of an algorithm or a network."""
    name = next((layer["name"] for layer in reversed(layers) if layer.get("name") is not None), None)
    if preset is None and name is None:
        if unused := next((key for layer in layers for key in layer), None):
            raise ValueError(f"{section}.{unused}: {method} has no {section}; {_place(section, unused)}")
        return None
    base = preset if preset is not None and name in (None, preset["name"]) else {"name": name}
    models = MEMBERS[section]
    model: Any = models.get(str(base["name"]))
    found = _over(tuple(models.values()), base, layers)
    for key in found if model is not None else ():
        if key not in model.model_fields and any(key in other.model_fields for other in models.values()):
            raise ValueError(
                f"{section}.{key}: {method}, with {section} {base['name']}, has none; {_place(section, key)}"
            )
    return found


def has_setting(method: str, path: str) -> bool:
    """Whether a method, as its preset is, has the setting at a config path; other sections than its own it has."""
    section, _, below = path.partition(".")
    if section == "srr":
        return METHODS[method].srr is not None
    if section not in MEMBERS or not below:
        return True
    if (member := getattr(METHODS[method], section)) is None:
        return False
    model = MEMBERS[section][member["name"]]
    if path == "network.encoder":  # it makes another network of one that scores
        return model.asked == CustomEncoderConfig.asked
    return below.partition(".")[0] in model.model_fields


def _place(section: str, key: str) -> str:
    """Valid places of a setting that not all methods of a sweep have."""
    having = [name for name, model in MEMBERS[section].items() if key in model.model_fields]
    methods = [name for name in METHODS if has_setting(name, f"{section}.{key}")]
    valid = f"valid: with {section}.name {', '.join(having)}"
    if not methods:
        return valid
    return f"{valid}; for one of several methods: `methods: [{{{methods[0]}: {{{section}: {{{key}: ...}}}}}}, ...]`"
