"""Named problems at any number of servers: YAML files in `rllib_scale/scenarios`; files of users have the same form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from rllib_scale.config import family
from rllib_scale.config.base import Model, merged
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.yaml_files import build_model, parse_yaml, read_text
from rllib_scale.errors import UserError, choice_error

FOLDER = Path(__file__).parents[1] / "scenarios"
TROUBLE = (
    *("estimates-30", "estimates-100", "stragglers", "failures-1", "failures-10", "failures-often"),
    *("spot", "burst", "grow-shrink"),
)
"""Variants of steady-0.7 in which one thing goes wrong."""
NAMES = (
    *("paper", "steady-0.5", "steady-0.7", "steady-0.9", "overload-1.1", "shift", "day"),
    *("mix-small-heavy", "mix-large-heavy", "deep", "wide", "energy"),
    *("coding-agents-0.5", "coding-agents-0.7", "coding-agents-0.9", "coding-agents-day"),
    *TROUBLE,
    "agents-replicas",
)
"""In the order of listings."""


class ScenarioFile(Model):
    """The YAML file of a scenario."""

    description: str = ""
    base: str | None = None
    """Shipped scenario with the settings that `env` leaves out; None: the paper's experiment."""
    env: dict[str, Any] = Field(default={}, description="settings that differ from the base")


class Scenario(NamedTuple):
    """A named problem."""

    env: EnvConfig
    description: str


def read_scenario(path: Path, resolved: Callable[[dict[str, Any]], Any] = lambda env: env) -> Scenario:
    """The scenario in a file.

    Args:
        path: path of the YAML file.
        resolved: resolves files and user code that `env` names.

    Raises:
        UserError: the file cannot be read, or one line with the first mistakes, each with its key.
    """
    file = build_model(ScenarioFile, parse_yaml(read_text(path), str(path)), str(path))
    base = {} if file.base is None else scenario(file.base).model_dump(mode="json")
    return Scenario(build_model(EnvConfig, merged(EnvConfig, base, resolved(file.env)), str(path)), file.description)


class _Scenarios(Mapping[str, Scenario]):
    """The shipped scenarios, each read at its first use."""

    @staticmethod
    @cache
    def _read(name: str) -> Scenario:
        return read_scenario(FOLDER / f"{name}.yaml")

    def __getitem__(self, name: str) -> Scenario:
        if name not in NAMES:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


SCENARIOS: Mapping[str, Scenario] = _Scenarios()


def scenario(name: str) -> EnvConfig:
    """The problem of a shipped scenario at its own number of servers.

    Raises:
        UserError: there is no such scenario; `rllib_scale.loading.named_scenario` finds user-defined ones.
    """
    if name in family.SCENARIOS:
        raise UserError(f"scenario {name}: holds many problems; valid in evaluation.scenarios of a sweep alone")
    if name not in NAMES:
        raise choice_error("scenario", name, NAMES)
    return SCENARIOS[name].env
