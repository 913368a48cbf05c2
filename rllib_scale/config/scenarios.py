"""Named problems. A policy of any training can be evaluated on each of them, at any number of servers.

Each is a YAML file in `rllib_scale/scenarios`; files of users have the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from rllib_scale.config.base import Model
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.yaml_files import build_model, merged, parse_yaml, read_text
from rllib_scale.errors import choice_error

FOLDER = Path(__file__).parents[1] / "scenarios"
TROUBLE = (
    *("estimates-30", "estimates-100", "stragglers", "failures-1", "failures-10", "failures-often"),
    *("spot", "burst", "grow-shrink", "preemption"),
)
"""What goes wrong, one thing at a time, beside steady-0.7."""
NAMES = (
    *("paper", "steady-0.5", "steady-0.7", "steady-0.9", "overload-1.1", "shift", "day"),
    *("mix-small-heavy", "mix-large-heavy", "deep", "wide", "energy"),
    *("coding-agents-0.5", "coding-agents-0.7", "coding-agents-0.9", "coding-agents-day"),
    *TROUBLE,
)
"""In the order in which they are listed."""


class ScenarioFile(Model):
    """What stands in the YAML file of a scenario."""

    description: str = ""
    base: str | None = None
    """A shipped scenario that has what `env` leaves out; None: the paper's experiment."""
    env: dict[str, Any] = Field(default={}, description="what differs from the base")


class Scenario(NamedTuple):
    """A named problem."""

    env: EnvConfig
    description: str


def read_scenario(path: Path, resolved: Callable[[dict[str, Any]], Any] = lambda env: env) -> Scenario:
    """The scenario in a file.

    Args:
        path: of the YAML file.
        resolved: finds what the keys below `env` name.

    Raises:
        UserError: it cannot be read, or one line for the first mistakes, each with its key.
    """
    file = build_model(ScenarioFile, parse_yaml(read_text(path), str(path)), str(path))
    base = {} if file.base is None else scenario(file.base).model_dump(mode="json")
    return Scenario(build_model(EnvConfig, merged(base, resolved(file.env)), str(path)), file.description)


class _Scenarios(Mapping[str, Scenario]):
    """The shipped ones, each read when it is first asked for."""

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
    """The named problem at its own number of servers, 16 but for the mixes and for grow-shrink.

    Raises:
        UserError: there is none; `rllib_scale.loading.named_scenario` finds user-defined ones.
    """
    if name not in NAMES:
        raise choice_error("scenario", name, NAMES)
    return SCENARIOS[name].env
