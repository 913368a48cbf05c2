"""Settings of a problem in whose place trainings have a value of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rllib_scale.config.pinned import shown
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.trial import TrialConfig

DRAWN = ("workload", "communication", "information")
"""Sections of a problem that `algorithm.problems: any` draws."""


class Replaced:
    """Collects how trainings take the settings of the problem that a sweep gives.

    Args:
        evaluates_own: whether policies are evaluated on the problem of their training, too.
    """

    def __init__(self, evaluates_own: bool) -> None:
        self.evaluates_own = evaluates_own
        self._trained: dict[tuple[str, str], dict[str, str]] = {}

    def add(self, written: Iterable[tuple[str, str]], asked: EnvConfig, config: TrialConfig) -> None:
        """Add a training.

        Args:
            written: of each setting of its problem that the sweep gives, its place and its config path.
            asked: the problem as the sweep gives it.
            config: the training.
        """
        asked = asked.with_part("train")
        given = asked.model_dump(mode="json")
        trained = given if config.env is asked else config.env.model_dump(mode="json")
        problems = config.algorithm.problems
        draws = problems is not None and problems.family is not None and not self.evaluates_own
        for place, path in written:
            value, own = (shown(_at(env, path)) for env in (given, trained))
            if draws and path.split(".")[1:2] and path.split(".")[1] in DRAWN:
                own = "what algorithm.problems draws"
            self._trained.setdefault((place, f"{path} {value}"), {})[own] = config.method

    def refuse(self) -> None:
        """Refuse a setting in whose place every training has another one.

        Raises:
            ValueError: with the setting and what is there.
        """
        for (place, given), trained in self._trained.items():
            if given.partition(" ")[2] not in trained:
                own, method = next(iter(trained.items()))
                raise ValueError(f"{place}{given}: {method} has {own} in its place; leave it out")


def _at(env: Any, path: str) -> Any:
    for key in path.split(".")[1:]:
        env = env.get(key) if isinstance(env, dict) else None
    return env
