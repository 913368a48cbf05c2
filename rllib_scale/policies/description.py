"""The description of an exported policy, policy.json, and which problems it can play. Imports no torch and no numba."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rllib_scale import __version__, zoo
from rllib_scale.config import EnvConfig, TrialConfig, identity
from rllib_scale.config.identity import IDENTITY_FORMAT, content_id
from rllib_scale.config.pinned import without_places
from rllib_scale.config.plan import Row, rule_row
from rllib_scale.config.problem import without_paper_mode
from rllib_scale.config.schedulers import PolicySpec, SchedulerSpec
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.files import check_regular
from rllib_scale.plugins import unpinned
from rllib_scale.zoo import DESCRIPTION, POLICY_FILES

FORMAT = "rllib-scale-policy"


def _features_of(trial: TrialConfig) -> str:
    if trial.env.on_replicas:
        return trial.env.service.name
    return "relative" if trial.visits else trial.env.observation.feature_set


def facts(trial: TrialConfig) -> dict[str, Any]:
    """Facts about a training in a description, without its results."""
    return {
        "format": FORMAT,
        "version": IDENTITY_FORMAT,
        "method": trial.method,
        "seed": trial.seed,
        "trial_id": trial.trial_id,
        "feature_set": _features_of(trial),
        "train_servers": trial.env.cluster.num_servers,
        "trial": trial.model_dump(mode="json", exclude_defaults=True),
    }


def described(content: bytes, source: str) -> tuple[TrialConfig, dict[str, Any]]:
    """The training of a policy, and its whole description; `source` names the policy in errors.

    Raises:
        UserError: the description is not readable, of another version, or contradicts itself.
    """
    description = _read(content, f"{source}: {DESCRIPTION}")
    trial = build_model(TrialConfig, description.get("trial"), f"{source}: {DESCRIPTION}: trial")
    known = facts(trial)
    if unknown := sorted(set(description) - {*known, "epochs", "sha256"}):
        valid = ", ".join(sorted([*known, "epochs", "sha256"]))
        raise UserError(f"{source}: {DESCRIPTION}: unknown key {unknown[0]!r}; valid: {valid}")
    for key, value in known.items():
        if key != "trial" and description.get(key) != value:
            raise UserError(f"{source}: {DESCRIPTION}: {key} is {description.get(key)!r}, its trial says {value!r}")
    if not isinstance(epochs := description.get("epochs"), int):
        raise UserError(f"{source}: {DESCRIPTION}: epochs must be an integer (got {epochs!r})")
    return trial, description


def trained_in(folder: Path) -> TrialConfig:
    """The training of the policy in a folder.

    Raises:
        UserError: see `described`, or it cannot be read.
    """
    return _read_from(folder)[0]


def _read_from(folder: Path) -> tuple[TrialConfig, dict[str, Any]]:
    try:
        content = (folder / DESCRIPTION).read_bytes()
    except OSError as error:
        raise UserError(f"{folder}: not a whole policy folder: {DESCRIPTION} ({error.strerror})") from None
    return described(content, str(folder))


def policy_files(folder: str | Path) -> dict[str, bytes]:
    """The files of a policy folder, or of `zoo:NAME`, by name, unchecked.

    Raises:
        UserError: one is missing or cannot be read.
    """
    folder = zoo.folder_of(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such policy folder")
    try:
        for name in POLICY_FILES:
            check_regular(folder / name)
        return {name: (folder / name).read_bytes() for name in POLICY_FILES}
    except OSError as error:
        raise UserError(f"{folder}: not a whole policy folder: {error.filename} ({error.strerror})") from None


def scheduler_row(spec: SchedulerSpec, key: str = "scheduler") -> Row:
    """The row of `schedulers` of a rule or a given policy; `key` is where it was given.

    Raises:
        UserError: see `described`, or the policy is missing or has changed.
    """
    if not isinstance(spec, PolicySpec):
        return rule_row(spec)
    trial, description = _read_from(spec.folder(key))
    ids, settings = ({"weights": description.get("sha256"), **_playing(trial, defaults)} for defaults in (False, True))
    scheduler = content_id(without_places(ids))
    return {"scheduler": scheduler, "kind": "policy", "name": spec.label, **identity.described(settings)}


def _playing(trial: TrialConfig, defaults: bool) -> dict[str, Any]:
    """The settings of a training that its policy plays by, as JSON content."""
    parts: Any = {"network": True, "env": {"observation": True, "decision": True}}
    if trial.network is None or not trial.any_scale:  # made for what it was trained on
        parts |= {"algorithm": {"name", "rule", "problems"}, "env": True}
    return trial.model_dump(mode="json", exclude_defaults=not defaults, include=parts)


def check_trusted(trial: TrialConfig, source: str, trust: bool | str | None) -> None:
    """Refuse to import the encoder that a policy names, unless any is trusted or this pinned name.

    Raises:
        UserError: without trust.
    """
    if trial.encoder is not None and trust not in (True, trial.encoder):
        raise UserError(
            f"{source}: {DESCRIPTION}: names code to import, {unpinned(trial.encoder)}; if you know where it comes "
            "from, say --trust (in Python trust=True)"
        )


def as_played(name: str, trial: TrialConfig, env: EnvConfig) -> EnvConfig:
    """The problem `env` as the policy of a training plays it: one that reserves has decision rounds of its own.

    Raises:
        UserError: its network is fixed to another number of servers; it was trained on another service; or it decides
            for all waiting tasks, and in `env` an answer that starts none costs time.
    """
    if trial.env.service.name != env.service.name:
        raise UserError(f"{name}: was trained on service {trial.env.service.name} (got {env.service.name})")
    own, given = trial.env.cluster.num_rows, env.cluster.num_rows
    if not trial.any_scale and own != given:
        raise UserError(f"{name}: was trained at {own} servers and knows no other number (got {given})")
    if not trial.dispatches:
        return env.in_rounds_of(trial.env, name)
    plays_any = trial.visits or trial.rule == "adaptive-price"  # as the rule does
    if env.costs_time and not plays_any:
        raise UserError(without_paper_mode(name))
    return env


def _read(content: bytes, source: str) -> dict[str, Any]:
    try:
        description = json.loads(content)
    except (ValueError, RecursionError):
        raise UserError(f"{source}: not readable as JSON") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise UserError(f"{source}: not a policy of this program (format {FORMAT!r} is missing)")
    if description.get("version") != IDENTITY_FORMAT:
        raise UserError(
            f"{source}: policy of version {description.get('version')!r}, and this rllib-scale {__version__} reads "
            f"{IDENTITY_FORMAT}; `rllib-scale convert` brings one of 0.3 into its form"
        )
    return description
