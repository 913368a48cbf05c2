"""Settings that cannot act: a run ends before they begin to, or every training has a value of its own in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rllib_scale.config.algorithms import OffPolicy
from rllib_scale.config.pinned import shown
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.trial import TrialConfig
from rllib_scale.errors import counted

DRAWN = ("workload", "communication", "information")
"""Sections of a problem that `algorithm.problems: any` draws."""


def inert_settings(trials: Iterable[TrialConfig]) -> list[str]:
    """A sentence for each setting that has no effect in some trainings, with the value and epochs that decide it."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        for reason in (_ramp(trial), _warmup(trial)):
            if reason is not None:
                found.setdefault(reason, []).append(trial.method)
    return [
        f"{counted(len(methods), 'training')} of {', '.join(dict.fromkeys(methods))}: {reason}"
        for reason, methods in found.items()
    ]


def _ramp(trial: TrialConfig) -> str | None:
    """SRR's weights at epoch e, 0 being the first, are in proportion to max(0, e - ramp_start_epoch)."""
    srr, epochs = trial.srr, trial.stop_epochs
    if srr is None or not (srr.lambda_decorrelation or srr.lambda_kl) or epochs - 1 > srr.ramp_start_epoch:
        return None
    return (
        "srr.lambda_decorrelation and srr.lambda_kl have no effect, as SRR begins after "
        f"srr.ramp_start_epoch {srr.ramp_start_epoch:g}, and the training ends after {counted(epochs, 'epoch')}"
    )


def _warmup(trial: TrialConfig) -> str | None:
    """DQN and SAC make one update for every `steps_per_update` steps after the warm-up."""
    settings, steps = trial.algorithm, trial.stop_epochs * (trial.env_steps_per_epoch or 0)
    if not isinstance(settings, OffPolicy) or steps - settings.warmup_steps >= settings.steps_per_update:
        return None
    return (
        f"nothing is learned, as updates begin after algorithm.warmup_steps {settings.warmup_steps:,}, and the "
        f"training ends after {steps:,} env steps ({counted(trial.stop_epochs, 'epoch')})"
    )


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
