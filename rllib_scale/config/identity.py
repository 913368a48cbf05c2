"""What is trained, what is played, and how a policy is asked: digests of content, and differences in words.

An `EnvConfig` holds two things. The *world* is what is played: servers, workload, information, failures, times. The
*protocol* is how a policy is asked: its decisions, mask, observation and reward. Rows of one world are comparable,
whatever the protocol.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from rllib_scale.config.base import digest
from rllib_scale.config.pinned import shown, without_places
from rllib_scale.config.problem import EnvConfig

IDENTITY_FORMAT = 4
"""Part of every digest, as settings at their defaults are not. Raise it when a default changes or acts differently."""
_ASKED_OF_EPISODE = ("clock_step_s", "idle_advance", "mask", "horizon_is_terminal", "max_decisions")
ASKED: Any = {"decision": True, "observation": True, "reward": True, "episode": set(_ASKED_OF_EPISODE)}
"""The settings of a problem that are its protocol."""

Settings = dict[str, Any]
"""Config path -> value of each setting."""


def world_of(env: EnvConfig) -> dict[str, Any]:
    """What is played: JSON content that differs from the defaults."""
    content = env.model_dump(mode="json", exclude_defaults=True, exclude=ASKED)
    for tier in content.get("cluster", {}).get("tiers", ()):
        tier.pop("ratio", None)  # of no effect at this number of servers
    return _content(content)


def protocol_of(env: EnvConfig) -> dict[str, Any]:
    """How a policy is asked: JSON content that differs from the defaults."""
    return _content(env.model_dump(mode="json", exclude_defaults=True, include=ASKED))


def _content(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Sections without those that a part of a problem has no settings in."""
    return {name: without_places(section) for name, section in sections.items() if section != {}}


def content_id(content: Any) -> str:
    """Digest of JSON content without defaults, under the present format."""
    return digest({"content": content, "format": IDENTITY_FORMAT})


def settings_in(content: Mapping[str, Any], path: str = "") -> Settings:
    """Each setting in nested sections by its config path.

    The tiers of a cluster stand by their names, their counts as a ratio beside the number of servers: so a cluster
    that is only scaled differs in that number alone.

    >>> settings_in({"srr": {"lambda_kl": 0.1}, "seed": 1})
    {'srr.lambda_kl': 0.1, 'seed': 1}
    """
    return dict(_settings(_readable(content), path))


def _settings(content: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        below = f"{path}.{key}".lstrip(".")
        if isinstance(value, Mapping) and value:
            yield from _settings(value, below)
        else:
            yield below, value


def _readable(content: Mapping[str, Any]) -> dict[str, Any]:
    """Sections with the tiers of their cluster by name."""
    found = {key: _readable(value) if isinstance(value, Mapping) else value for key, value in content.items()}
    if isinstance(tiers := found.get("tiers"), list) and all(isinstance(tier, Mapping) for tier in tiers):
        ratio = [tier.get("ratio") or tier["count"] for tier in tiers]
        common = math.gcd(*ratio)
        found["servers"] = sum(tier["count"] for tier in tiers)
        found["tiers"] = {
            str(tier["name"]): {key: value for key, value in tier.items() if key not in ("name", "count", "ratio")}
            | {"share": count // common}
            for tier, count in zip(tiers, ratio, strict=True)
        }
    return found


def difference(these: Mapping[str, Any], others: Mapping[str, Any]) -> Settings:
    """The settings of the first that differ from the second's, with the first's values.

    Settings that the second lacks are included, those that only the second has are not: they belong to another
    algorithm or network, which the first names by settings of its own.

    >>> difference({"epochs": 2, "seed": 1}, {"epochs": 3, "seed": 1, "clip": 0.2})
    {'epochs': 2}
    """
    return {path: value for path, value in these.items() if path not in others or others[path] != value}


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings as 'path=value' joined by '; ', which is empty for none.

    >>> in_words({"training.epochs": 2, "network.skip": "linear", "env.decision": {"offer": "all"}})
    'training.epochs=2; network.skip=linear; env.decision={"offer": "all"}'
    """
    return "; ".join(f"{path}={shown(value)}" for path, value in settings.items())


@lru_cache(maxsize=1024)
def _settings_of(env: EnvConfig, asked: bool, told: bool = False) -> Settings:
    part: Any = {"include": ASKED} if asked else {"exclude": ASKED}
    return settings_in(env.model_dump(mode="json", exclude_defaults=told, **part))


def _differing(env: EnvConfig, scenario: EnvConfig, asked: bool) -> str:
    others, told = _settings_of(scenario, asked), _settings_of(env, asked, told=True)
    found = difference(_settings_of(env, asked), others)
    kept = {path for path in found if path in others or path in told or path.startswith("cluster.tiers.")}
    return in_words({path: value for path, value in found.items() if path in kept})


def changes_of(env: EnvConfig, scenario: EnvConfig) -> str:
    """In words what of a world differs from a named scenario at the same number of servers."""
    return _differing(env, scenario, asked=False)


def asked_of(env: EnvConfig, scenario: EnvConfig) -> str:
    """In words how a policy is asked otherwise than in a named scenario."""
    return _differing(env, scenario, asked=True)
