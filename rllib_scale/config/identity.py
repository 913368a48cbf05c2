"""Identity of trainings, problems and protocols: digests of content, and rows of dimensions.

An `EnvConfig` holds two things. The *world* is what is played: servers, workload, information, failures, times. The
*protocol* is how a policy is asked: its decisions, mask, observation and reward. Rows of one world are comparable,
whatever the protocol.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rllib_scale import __version__
from rllib_scale.config.base import digest
from rllib_scale.config.pinned import by_name, shown, without_places
from rllib_scale.config.problem import EnvConfig

IDENTITY_FORMAT = 5
"""Part of every digest, as settings at their defaults are not. Raise it when a default changes or acts differently."""
_ASKED_OF_EPISODE = ("clock_step_s", "idle_advance", "mask", "horizon_is_terminal", "max_decisions")
ASKED: Any = {"decision": True, "observation": True, "reward": True, "episode": set(_ASKED_OF_EPISODE)}
"""The settings of a problem that are its protocol."""

Settings = dict[str, Any]
"""Config path -> value of each setting."""
SECTION = "{...}"
"""Marks the settings of a section where others have a single value."""


def world_of(env: EnvConfig, defaults: bool = False) -> dict[str, Any]:
    """The problem as JSON content: what differs from the defaults, from which the id is made, or everything."""
    content = env.model_dump(mode="json", exclude_defaults=not defaults, exclude=ASKED)
    if defaults:
        return content
    for tier in content.get("cluster", {}).get("tiers", ()):
        tier.pop("ratio", None)  # of no effect at this number of servers
    return _content(content)


def protocol_of(env: EnvConfig, defaults: bool = False) -> dict[str, Any]:
    """The protocol as JSON content; see `world_of`."""
    content = env.model_dump(mode="json", exclude_defaults=not defaults, include=ASKED)
    return content if defaults else _content(content)


def _content(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Sections without those that a part of a problem has no settings in."""
    return {name: without_places(section) for name, section in sections.items() if section != {}}


def content_id(content: Any) -> str:
    """Digest of JSON content without defaults, under the present format."""
    return digest({"content": content, "format": IDENTITY_FORMAT})


def described(content: Mapping[str, Any]) -> dict[str, str]:
    """The columns of a dimension that say what is behind an id: all settings, and the version that has them."""
    return {"version": __version__, "settings": json.dumps(by_name(content))}


def settings_in(content: Mapping[str, Any], path: str = "") -> Settings:
    """Each setting in nested sections by its config path.

    The tiers of a cluster go by their names, their counts as a ratio with the number of servers: so a cluster that is
    only scaled differs in that number alone.

    >>> settings_in({"srr": {"lambda_kl": 0.1}, "seed": 1})
    {'srr.lambda_kl': 0.1, 'seed': 1}
    """
    found: Settings = {}
    _fill(found, content, f"{path}." if path else "")
    return found


def _fill(found: Settings, content: Mapping[str, Any], above: str) -> None:
    """Add the settings of a section whose paths begin with `above`."""
    tiers = content.get("tiers")
    if isinstance(tiers, list) and tiers and isinstance(tiers[0], dict):
        content = {**content, **_by_name(tiers)}
    for key, value in content.items():
        if isinstance(value, dict) and value:
            _fill(found, value, f"{above}{key}.")
        else:
            found[above + key] = value


def _by_name(tiers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The tiers of a cluster by their names, with their shares, and the number of servers."""
    ratio = [tier.get("ratio") or tier["count"] for tier in tiers]
    common = math.gcd(*ratio)
    named = {
        str(tier["name"]): {key: value for key, value in tier.items() if key not in ("name", "count", "ratio")}
        | {"share": count // common}
        for tier, count in zip(tiers, ratio, strict=True)
    }
    servers = sum(tier["count"] for tier in tiers)
    return {"servers": servers, "tier_names": [tier["name"] for tier in tiers], "tiers": named}


def distinguishing(settings: Mapping[Any, Settings]) -> dict[Any, Settings]:
    """The part of each of several settings that differs among them, in the order of the first.

    A path that one of them lacks does not count as differing: an older version had no such setting, or another
    algorithm has none. A section beside a value, such as null, does; SECTION stands for it.

    >>> distinguishing({"a": {"srr": None, "seed": 1}, "b": {"srr.lambda_kl": 0.1, "seed": 1, "clip": 0.2}})
    {'a': {'srr': None}, 'b': {'srr': '{...}'}}
    """
    paths = dict.fromkeys(path for own in {tuple(own): None for own in settings.values()} for path in own)
    split = [path.split(".") for path in paths]
    opened = {".".join(parts[:end]) for parts in split for end in range(1, len(parts))} & {*paths}
    if opened:
        settings = {name: _with_sections(own, opened) for name, own in settings.items()}
    first: Settings = {}
    differing = set()
    for own in settings.values():
        for path, value in own.items():
            known = first.setdefault(path, value)
            if value != known or isinstance(value, bool) != isinstance(known, bool):
                differing.add(path)
    chosen = [path for path in paths if path in differing]
    return {name: {path: own[path] for path in chosen if path in own} for name, own in settings.items()}


def _with_sections(settings: Settings, opened: Iterable[str]) -> Settings:
    """Settings with SECTION at each of some paths below which they have any."""
    sections = (path for path in opened if path not in settings and any(p.startswith(f"{path}.") for p in settings))
    return settings | dict.fromkeys(sections, SECTION)


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings as 'path=value' joined by '; ', which is empty for none.

    >>> in_words({"algorithm.epochs": 2, "network.skip": "linear", "env.decision": {"offer": "all"}})
    'algorithm.epochs=2; network.skip=linear; env.decision={"offer": "all"}'
    """
    return "; ".join(f"{path}={shown(value)}" for path, value in settings.items())
