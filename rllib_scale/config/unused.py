"""Refusals of settings that no method of a sweep uses."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rllib_scale.config.algorithms import ALGORITHM_MODELS, TrainingConfig
from rllib_scale.config.methods import METHODS
from rllib_scale.config.network import NETWORK_MODELS
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.training import SRRConfig
from rllib_scale.config.trial import trained_on
from rllib_scale.config.yaml_files import set_path
from rllib_scale.errors import nearest, offered

BOTH = ((False, True), (False, True))


def refuse_unused(methods: Sequence[str], env: EnvConfig, given: Sequence[tuple[str, str, Any]]) -> None:
    """Refuse a setting that no method uses.

    Args:
        methods: methods of a sweep.
        env: the sweep's problem.
        given: where each setting of the sweep stands ("", "grid." or "search.space."), its config path and its value.

    Raises:
        ValueError: with the setting and what is valid.
    """
    choices = [_is_set(path, given) for path in ("imitation.expert", "network.encoder")]
    used = {setting for method in methods for setting in _used(method, choices)}
    for where, path, value in given:
        section, _, key = path.partition(".")
        if section == "env" and methods:
            _refuse_replaced(methods, env, where, path, value)
        elif section in ("env", "stop") or value == {} or (value is None and not key):  # a whole section that is reset
            continue
        elif f"{section}.{key.partition('.')[0]}" not in used:
            nobody = f"no method of the sweep ({', '.join(methods)})" if methods else "nothing is trained, so no method"
            raise ValueError(f"{where}{path}: {nobody} uses it; valid: {_valid(path, methods, used)}")


def sections_of(methods: Sequence[str]) -> set[str]:
    """The sections below which methods have settings, except `env` and `stop`."""
    return {setting.partition(".")[0] for method in methods for setting in _used(method, BOTH)}


def _parts_of(method: str, imitates: bool, own_encoder: bool) -> tuple[str, str | None]:
    preset = METHODS[method]
    algorithm, network = preset.algorithm["name"], preset.network["name"] if preset.network else None
    if imitates and algorithm == "ppo" and not preset.algorithm.get("copies"):
        algorithm = "imitation"
    return algorithm, "custom" if own_encoder and network not in (None, "mlp", "decima", "deeprm") else network


def _is_set(path: str, given: Sequence[tuple[str, str, Any]]) -> Sequence[bool]:
    """Whether a setting is null in some trainings, and given in some."""
    values = [(where, value) for where, name, value in given if name == path]
    varied = [value for where, value in values if where] or [value for _, value in values]
    return sorted({value is not None for value in varied}) or [False]


def _used(method: str, choices: Sequence[Sequence[bool]]) -> Iterator[str]:
    """The settings that a method uses, except those of `env` and `stop`.

    `choices`: whether an expert, and whether an encoder is given, where some trainings may differ from others.
    """
    for choice in itertools.product(*choices):
        algorithm, network = _parts_of(method, *choice)
        fields = ALGORITHM_MODELS[algorithm].model_fields
        yield from (f"{algorithm}.{field}" for field in fields if field != "name")
        yield from (f"training.{field}" for field in TrainingConfig.model_fields if field in fields)
        if network is not None:
            model = NETWORK_MODELS[network]
            yield from (f"{model.section}.{field}" for field in model.model_fields if field != "name")
    if METHODS[method].srr is not None:
        yield from (f"srr.{field}" for field in SRRConfig.model_fields)


def _refuse_replaced(methods: Sequence[str], env: EnvConfig, where: str, path: str, value: Any) -> None:
    """Refuse a setting of the problem in whose place every method has a value of its own."""
    content = env.model_dump(mode="json")
    set_path(content, path.removeprefix("env."), value)
    own: dict[str, Any] = {}
    try:
        asked = EnvConfig.model_validate(content)
        for method in methods:
            algorithm = METHODS[method].algorithm
            own[method] = _at(trained_on(asked, ALGORITHM_MODELS[algorithm["name"]].model_validate(algorithm)), path)
    except ValueError:
        return  # the training is refused with what is wrong
    if _at(asked, path) not in own.values():
        raise ValueError(
            f"{where}{path} {_at(asked, path)}: {methods[0]} has {own[methods[0]]} in its place; leave it out"
        )


def _at(env: EnvConfig, path: str) -> Any:
    content: Any = env.model_dump(mode="json")
    for key in path.split(".")[1:]:
        content = content.get(key) if isinstance(content, dict) else None
    return content


def _valid(path: str, methods: Sequence[str], used: Collection[str]) -> str:
    """What uses a setting, and settings of its section that methods of the sweep use."""
    section, _, name = path.partition(".")
    choice = "network.encoder" if section == "network" else "imitation.expert"
    users = [method for method in METHODS if path in _used(method, BOTH)]
    parts = [f"a method that does, as {', '.join(users[:3])}"] if users else []
    if own := [method for method in users if method in methods]:
        parts = [f"{own[0]} {'without' if choice in used else 'with'} {choice}"]
    beside = sorted(setting.removeprefix(f"{section}.") for setting in used if setting.startswith(f"{section}."))
    parts += [f"of {section} its {offered(beside, nearest(name, beside))}"] if beside else []
    return "; ".join(parts)
