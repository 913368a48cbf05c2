"""What a text refers to is found wherever it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from rllib_scale.config.paths import Refers, resolved, types_at
from rllib_scale.config.sweep import VARIED, SweepConfig
from rllib_scale.errors import UserError


def referring(prefix: str = "", depth: int = 4) -> Iterator[str]:
    """Paths of all settings of trials that refer to something."""
    kinds = types_at(SweepConfig, prefix) if prefix else [SweepConfig]
    if any(isinstance(kind, Refers) for kind in kinds):
        yield prefix
    fields = {
        name for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel) for name in kind.model_fields
    }
    for name in sorted(fields) if depth else ():
        path = f"{prefix}.{name}".lstrip(".")
        if path.split(".")[0] in VARIED:
            yield from referring(path, depth - 1)


def nested(path: str, value: Any) -> Any:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


@pytest.mark.parametrize("path", sorted(set(referring())))
def test_a_reference_is_resolved_wherever_it_is_written(path: str) -> None:
    written = [
        nested(path, "text"),
        {"grid": {path: ["text", None]}},
        {"zip": [{path: ["text"]}]},
        {"search": {"space": {path: {"choice": ["text"]}}}},
    ]
    if "." in path:
        section, below = path.split(".", 1)
        written += [{"grid": {section: [nested(below, "text")]}}, {"methods": [{"scale": nested(path, "text")}]}]
    for data in written:
        found = resolved(SweepConfig, data, lambda kind, text: f"{kind} {text}")
        texts = str(found).count("text"), str(found).count("'text'")
        assert texts == (1, 0), found

    def missing(kind: str, text: str) -> str:
        raise UserError(f"no {kind} {text}")

    for data in written:
        with pytest.raises(UserError, match=r"^[a-z.]*\w+: no \w+ text$") as refused:
            resolved(SweepConfig, data, missing)
        assert path.split(".")[-1] in str(refused.value)


def test_these_are_the_settings_that_refer() -> None:
    assert {
        *("scenario", "network.encoder", "algorithm.reward", "algorithm.expert", "algorithm.initial_policy"),
        *("env.service.trace", "env.workload.trace.file", "env.workload.fitted.table", "env.workload.generator"),
    } <= set(referring())
