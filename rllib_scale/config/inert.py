"""Settings that cannot act in a run, as it ends before they begin to."""

from __future__ import annotations

from collections.abc import Iterable

from rllib_scale.config.algorithms import OffPolicy
from rllib_scale.config.trial import TrialConfig
from rllib_scale.errors import counted


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
