"""From YAML to settings. What a file names is found here once and pinned to its content.

The models in `rllib_scale.config` import no user code and open no files; this module does. Paths become absolute and
end in `#sha256=` and a digest. Names of user code end in `#source=` and the digest of its source. Scenarios in user
code become their content. Settings in this form travel to other processes and are in manifests, and reading them
again imports and opens nothing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from os.path import isfile  # False for a name that is too long for a file
from pathlib import Path
from typing import Any, cast

from rllib_scale import plugins, zoo
from rllib_scale.config import family
from rllib_scale.config.base import Model, merged
from rllib_scale.config.methods import METHODS
from rllib_scale.config.paths import Kind, resolved
from rllib_scale.config.pinned import DIGEST_SEPARATOR, digest_of
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.replicas import PRESETS, Replica
from rllib_scale.config.scenarios import SCENARIOS, read_scenario, scenario
from rllib_scale.config.schedulers import (
    ALL_RULES,
    PluginSpec,
    PolicySpec,
    SchedulerSpec,
    parse_scheduler,
    with_arguments,
)
from rllib_scale.config.sweep import EVALUATED_ALONE, VARIED, SweepConfig, layers
from rllib_scale.config.trial import TrialConfig
from rllib_scale.config.workload import TABLES
from rllib_scale.config.yaml_files import build_model, parse_override, parse_yaml, read_text, set_path
from rllib_scale.errors import UserError, offered

TASK_BY_TASK, EVENT_BY_EVENT = "rllib_scale.schedulers.base.Scheduler", "rllib_scale.schedulers.dispatcher.Dispatcher"
"""Base classes of user-defined schedulers, by name: their packages are above this module."""
Folders = tuple[Path, ...]
"""Folders that relative paths start from: that of the YAML file, then the working directory."""


def load_sweep(file: Path, overrides: Iterable[str] = ()) -> SweepConfig:
    """Read the YAML of a sweep, or that of a results folder from its manifest.json, with `key.path=value` overrides.

    Raises:
        UserError: one line with the first mistakes, each with its key, its value and what is valid.
    """
    if file.name != "manifest.json":
        return sweep_from(read_mapping(file, overrides), str(file), file.parent)
    try:
        config = json.loads(read_text(file))["config"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{file}: not the manifest of a results folder") from None
    return sweep_from(overridden(config, overrides), str(file))


def sweep_from(data: Any, source: str, folder: Path = Path()) -> SweepConfig:
    """The sweep that plain data describe.

    Args:
        data: a mapping of keys to values, as in YAML.
        source: origin of the data, for messages.
        folder: folder of files with relative paths.

    Raises:
        UserError: see `load_sweep`.
    """
    own = data.get("custom_scenarios") if isinstance(data, Mapping) else None
    scenarios = dict(own) if isinstance(own, Mapping) else {}
    data = _pinned(SweepConfig, data, source, (folder, Path()), scenarios)
    if scenarios.keys() - (own or {}).keys():
        data["custom_scenarios"] = scenarios | (data.get("custom_scenarios") or {})
    return build_model(SweepConfig, data, source)


def env_from(data: Any, source: str, folder: Path = Path()) -> EnvConfig:
    """The problem that plain data describe, as below `env` in a sweep; arguments as of `sweep_from`.

    Raises:
        UserError: see `load_sweep`.
    """
    return build_model(EnvConfig, _pinned(EnvConfig, data, source, (folder, Path()), {}), source)


def named_scenario(name: str, folders: Folders = (Path(),)) -> EnvConfig:
    """The problem of a scenario at its own number of servers.

    A user-defined scenario is a file, `FILE.yaml`, or in code (`rllib_scale.plugins`) an EnvConfig or a function
    without arguments that returns one.

    Args:
        name: name of the scenario, file, import path or entry point.
        folders: folders of files with relative paths.

    Raises:
        UserError: there is no such scenario, it cannot be read or imported, or it is something else.
    """
    if name in (*SCENARIOS, *family.SCENARIOS):
        return scenario(name)
    if name.endswith((".yaml", ".yml")):
        found = [path for path in (folder / name for folder in folders) if isfile(path)]
        path = (found or [Path(name)])[0]
        return read_scenario(path, lambda env: _pinned(EnvConfig, env, f"{path}: env", (path.parent, Path()), {})).env
    found = plugins.load("scenario", name, list(SCENARIOS))[0]
    if inspect.isfunction(found):
        found = plugins.call("scenario", name, found)
    if not isinstance(found, EnvConfig):
        valid = "a rllib_scale.config.EnvConfig, or a function without arguments that returns one"
        raise UserError(f"scenario {name!r}: is a {type(found).__name__}; valid: {valid}")
    return env_from(found.model_dump(mode="json"), f"scenario {name!r}")  # no worker needs the module


def read_mapping(file: Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The content of a YAML file with `key.path=value` overrides.

    Raises:
        UserError: it cannot be read, or is not a mapping.
    """
    data = parse_yaml(read_text(file), str(file))
    if not isinstance(data, dict):
        raise UserError(f"{file}: a mapping of keys to values is expected, not {type(data).__name__}")
    return overridden(data, overrides)


def overridden(data: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The data with every `key.path=value`: settings of trainings lie over those there, as in a grid."""
    for path, value in map(parse_override, overrides):
        section = path.partition(".")[0]
        if section == "scenario" or section not in VARIED:
            set_path(data, path, value)
        elif path != section or value is not None:
            data |= merged(TrialConfig, {section: data.get(section) or {}}, *layers(((path, value),)))
    return data


def resolve(spec: SchedulerSpec, folders: Folders = (Path(),)) -> SchedulerSpec:
    """The scheduler pinned to its present content; a pinned scheduler stays as it is.

    Raises:
        UserError: it does not exist, cannot be imported, or takes no such parameters.
    """
    if isinstance(spec, PolicySpec):
        return spec if spec.content else _policy(spec, folders)
    if not isinstance(spec, PluginSpec) or spec.source:
        return spec
    if any(isfile(folder / spec.name / zoo.DESCRIPTION) for folder in folders):
        return _policy(PolicySpec(spec.label), folders)
    try:
        found, source = load_scheduler(spec)
    except UserError as error:
        if spec.name in METHODS:
            in_zoo = f"zoo:{spec.name}, " if spec.name in zoo.names() else ""
            raise UserError(
                f"scheduler {spec.label!r}: is a method, which has to be trained; valid: {in_zoo}the folder of a "
                f"policy of `rllib-scale train --method {spec.name}`, or a rule (`rllib-scale schedulers`)"
            ) from None
        raise UserError(f"{error}; or the folder of a policy; or zoo:NAME") from None
    return PluginSpec(spec.name, with_arguments(spec, found.takes).arguments, source)


def load_scheduler(spec: PluginSpec) -> tuple[type[Any], str]:
    """The class of a user-defined scheduler, and the digest of its source.

    Raises:
        UserError: it does not exist, cannot be imported, or is not a scheduler.
    """
    name = spec.name
    found, source = plugins.load(
        "scheduler", name + (plugins.SOURCE_SEPARATOR + spec.source if spec.source else ""), [*ALL_RULES]
    )
    bases = {f"{c.__module__}.{c.__qualname__}" for c in getattr(found, "__mro__", ())}
    if not bases & {TASK_BY_TASK, EVENT_BY_EVENT}:
        raise UserError(
            f"scheduler {name!r}: is a {type(found).__name__}; valid: a subclass of "
            f"{TASK_BY_TASK.removesuffix('Scheduler')}Rule, {TASK_BY_TASK} or {EVENT_BY_EVENT}"
        )
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise UserError(f"scheduler {name!r}: does not define {', '.join(missing)}")
    for method, wanted in (("rate", 1), ("scores", 2), ("dispatch", 1)):
        defined = getattr(found, method, None)
        if defined is not None and not _takes(defined, wanted + 1):
            given = inspect.signature(defined)
            raise UserError(f"scheduler {name!r}: {method}{given} must take {wanted} argument(s) besides self")
    return cast(type[Any], found), source


def _takes(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    return True


# ---------------------------------------------------------------------- what a text in a config refers to


def _file(value: str, folders: Folders) -> str:
    """The absolute path and digest of the file in the first folder that has it."""
    if DIGEST_SEPARATOR in value:
        return value
    paths = list(dict.fromkeys((folder / value).absolute() for folder in folders))
    for path in paths:
        if isfile(path):
            return f"{path}{DIGEST_SEPARATOR}{digest_of(path)}"
    raise UserError(f"no file {' or '.join(map(str, paths))}")


def _table(value: str, folders: Folders) -> str:
    if value in TABLES:
        return value
    try:
        return _file(value, folders)
    except UserError as error:
        raise UserError(f"{error}; valid: {offered(TABLES)}, or a file") from None


def _replica(value: str, folders: Folders) -> dict[str, Any]:
    """The coefficients in a file of `rllib-scale fit-replica`."""
    try:
        path = Path(_file(value, folders).split(DIGEST_SEPARATOR)[0])
    except UserError as error:
        raise UserError(f"{error}; valid: {offered(PRESETS)}, or a file of `rllib-scale fit-replica`") from None
    return build_model(Replica, read_mapping(path), str(path)).model_dump(mode="json", exclude={"sources"})


def _policy(spec: PolicySpec, folders: Folders) -> PolicySpec:
    if zoo.is_named(spec.location):  # by name, as the package may lie elsewhere on another node
        return PolicySpec(spec.location, digest_of(zoo.folder_of(spec.location) / zoo.DESCRIPTION))
    path = spec.location if spec.location.endswith(".json") else f"{spec.location}/policy.json"
    try:
        return PolicySpec(*_file(path, folders).split(DIGEST_SEPARATOR))
    except UserError as error:
        raise UserError(f"policy {spec.location!r}: {error}") from None


def _pinned(model: type[Model], data: Any, source: str, folders: Folders, scenarios: dict[str, Any]) -> Any:
    """Plain data of a model, what it refers to pinned; `scenarios` receives the content of user-defined ones."""

    def resolve_text(kind: Kind, text: str) -> Any:
        match kind:
            case "file":
                return _file(text, folders)
            case "table":
                return _table(text, folders)
            case "policy":
                return str(resolve(PolicySpec(*text.split(DIGEST_SEPARATOR)), folders))
            case "scheduler":
                return str(resolve(parse_scheduler(text), folders))
            case "replica":
                return text if text in PRESETS else _replica(text, folders)
            case "scenario":
                if text not in (*SCENARIOS, *EVALUATED_ALONE, *scenarios):
                    scenarios[text] = named_scenario(text, folders).model_dump(mode="json")
                return text
            case _:
                return plugins.pinned(kind, text)

    try:
        return resolved(model, data, resolve_text)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
