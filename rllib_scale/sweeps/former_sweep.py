"""Sweeps of version 0.3 in the shape of a trial, as this version has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_scale.config import METHODS, SRRConfig
from rllib_scale.config.sweep import FORMER, path_of

_SECTIONS = (*FORMER, "network", "srr", "stop")


def sweep_of(former: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a sweep of 0.3, from its YAML or its manifest. What no method of it used is left out.

    Raises:
        ValueError: it has the shape of a trial already.
    """
    methods = former["methods"]
    if "algorithm" in former or not isinstance(methods, list) or any(isinstance(each, Mapping) for each in methods):
        raise ValueError("not a sweep of 0.3")
    found = {key: value for key, value in former.items() if key not in _SECTIONS}
    groups = former.get("zip") or []
    found["grid"] = _moved(former.get("grid"))
    found["zip"] = [*map(_moved, [groups] if isinstance(groups, Mapping) else groups)]
    if search := former.get("search"):
        found["search"] = search | {"space": _moved(search.get("space"))}
    paths = [*found["grid"], *(path for group in found["zip"] for path in group)]
    imitates = "algorithm.expert" in paths or "expert" in (former.get("imitation") or {})
    own = {method: _own(method, former, imitates) for method in former["methods"]}
    first = next(iter(own.values()), {})
    alike = all(sections == first for sections in own.values())
    found["methods"] = [method if alike or not sections else {method: sections} for method, sections in own.items()]
    found |= first if alike else {}
    return {key: value for key, value in found.items() if key == "methods" or value not in (None, {}, [])}


def _moved(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {path_of(path): value for path, value in (values or {}).items()}


def _own(method: str, former: Mapping[str, Any], imitates: bool) -> dict[str, Any]:
    """The sections of a method, with the settings that it uses."""

    def given(section: str) -> dict[str, Any]:
        return {key: value for key, value in (former.get(section) or {}).items() if value is not None}

    preset = METHODS.get(method, METHODS["crossattn"])  # one that is gone is refused by its name
    clones = imitates and preset.algorithm == {"name": "ppo"}
    algorithm = "imitation" if clones else str(preset.algorithm["name"])
    network = preset.network and str(preset.network["name"])
    weights = SRRConfig.model_validate(former.get("srr") or {}).model_dump(exclude_defaults=True)
    sections: dict[str, Any] = {
        "algorithm": ({"name": algorithm} if clones else {}) | given("training") | given(algorithm),
        "network": given(network if network in FORMER else "network") if network else {},
        "srr": weights if preset.srr is not None else {},
        "stop": given("stop"),
    }
    return {section: settings for section, settings in sections.items() if settings}
