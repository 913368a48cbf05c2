"""Every setting of a sweep, misspelt and with values of a wrong kind: one line that names the key."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from rllib_scale.__main__ import main
from rllib_scale.config import PPO, CrossAttentionConfig, EnvConfig
from rllib_scale.config.base import Some
from rllib_scale.config.plan import SweepConfig
from rllib_scale.errors import UserError
from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.planning import make_plan

VALID: dict[str, Any] = {"name": "x", "methods": ["scale"]}
NO_SETTINGS = ("custom_scenarios", "search.space")
"""Written by the program; with keys that are config paths."""


def settings(model: type[BaseModel] = SweepConfig, path: str = "") -> Iterator[tuple[str, Any]]:
    """Config path and type of every setting that is no section."""
    for name, field in model.model_fields.items():
        inner = [t for t in (field.annotation, *get_args(field.annotation)) if isinstance(t, type)]
        section = next((t for t in inner if issubclass(t, BaseModel)), None)
        where = f"{path}.{name}".lstrip(".")
        if where in NO_SETTINGS:
            continue
        some = [model for each in field.metadata if isinstance(each, Some) for model in each.models]
        for of_scale in (model for model in some if model in (PPO, CrossAttentionConfig, EnvConfig)):
            yield from settings(of_scale, where)
        if section is not None and get_origin(field.annotation) not in (tuple, dict):
            yield from settings(section, where)
        else:
            yield where, field.annotation


def with_setting(path: str, value: Any) -> dict[str, Any]:
    data: Any = yaml.safe_load(yaml.safe_dump(VALID))
    inner = data
    *parents, last = path.split(".")
    for key in parents:
        inner = inner.setdefault(key, {})
    inner[last] = value
    return data


def cases() -> Iterator[tuple[str, str, Any]]:
    """The key that must be named, the path that is set, and what it is set to."""
    for path, annotation in settings():
        kinds = {annotation, *get_args(annotation)}
        *above, last = path.split(".")
        misspelt = ".".join([*above, last[:-1] if len(last) > 3 else f"{last}x"])
        yield misspelt, misspelt, 1
        yield path, path, {"no": {"such": "section"}} if dict not in map(get_origin, kinds) else 7
        if float in kinds or int in kinds:
            yield path, path, "many"
            yield path, path, True
            yield path, path, math.nan
        if Literal in map(get_origin, kinds):
            yield path, path, "nothing-of-the-kind"


CASES = list(cases())


def test_every_malformed_setting_is_refused_by_name() -> None:
    wrong = []
    for key, path, value in CASES:
        try:
            make_plan(sweep_from(with_setting(path, value), "bad.yaml"), "bad.yaml")
            wrong.append((path, value, "accepted"))
        except UserError as error:
            text = str(error)
            if "\n" in text or key.rpartition(".")[2] not in text or not text.startswith("bad.yaml: "):
                wrong.append((path, value, text))
    assert len(CASES) > 200
    assert wrong == []


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 5], ids=lambda case: case[1])
def test_the_command_says_it_in_one_line_and_ends_with_2(case: tuple[str, str, Any], tmp_path: Path) -> None:
    key, path, value = case
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(with_setting(path, value)))
    found = CliRunner().invoke(main, ["validate", str(tmp_path / "bad.yaml")])
    assert found.exit_code == 2
    assert isinstance(found.exception, UserError | SystemExit)
    assert key.rpartition(".")[2] in found.output + str(found.exception)
