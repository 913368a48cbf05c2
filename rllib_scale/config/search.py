"""Searching for settings: random or Optuna's points, early stopping by ASHA, population-based training (PBT).

A point's values are those of a cell, so a training found by a search is hashed, stored and skipped as any other. The
points depend on the seed and, with Optuna, on the scores of the trainings before them: the same sweep, run again,
arrives at the same points. Free of ray and torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from rllib_scale.config import Count, Model, Seed
from rllib_scale.errors import UserError

Point = dict[str, Any]
"""Config path -> value."""
Metric = Literal["response_mean_s", "completed", "episode_return"]
DIGITS = 4
"""Significant digits of a sampled number: what a label shows is what was trained."""


class Distribution(Model):
    """Values of one setting: one of `uniform: [low, high]`, `loguniform: [low, high]`, `choice: [...]`."""

    uniform: tuple[float, float] | None = None
    loguniform: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None
    choice: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_of_three(self) -> Distribution:
        if sum(value is not None for value in (self.uniform, self.loguniform, self.choice)) != 1:
            raise ValueError("give one of uniform: [low, high], loguniform: [low, high], choice: [...]")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"low must be below high, got {list(self.bounds)}")
        return self

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Low and high; None for a choice."""
        return self.uniform or self.loguniform

    def draw(self, generator: np.random.Generator) -> Any:
        """One value."""
        if self.choice is not None:
            return self.choice[int(generator.integers(len(self.choice)))]
        assert self.bounds is not None
        low, high = self.bounds
        share = generator.random()
        if self.loguniform is not None:
            return rounded(math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
        return rounded(low + share * (high - low))


class ASHAConfig(Model):
    """Asynchronous successive halving: at each rung the worse trainings stop."""

    grace_steps: Count = Field(default=102_400, description="env steps of the first rung; nothing stops earlier")
    reduction_factor: Annotated[int, Field(ge=2)] = Field(
        default=3, description="one in so many goes on at a rung; the next rung is so many times as far"
    )


class PBTConfig(Model):
    """Population-based training: the worst go on as copies of the best, with settings changed.

    All are compared at the same step: who is first there waits for the others.
    """

    interval_steps: Count = Field(default=51_200, description="env steps between two comparisons")
    quantile: Annotated[float, Field(gt=0, le=0.5)] = Field(
        default=0.25, description="share of the worst, and the best"
    )
    resample: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.25, description="probability of a new draw instead of a factor 0.8 or 1.2"
    )


class SearchConfig(Model):
    """What a sweep tries beyond its grid, and which of its trainings it stops or changes on the way."""

    space: dict[str, Distribution] = Field(default={}, description="config path -> distribution")
    samples: Count = Field(default=16, description="points drawn from the space")
    sampler: Literal["random", "optuna"] = Field(
        default="random", description="optuna: TPE, `pip install rllib-scale[optuna]`"
    )
    batch: Count = Field(default=4, description="optuna: points trained at once, before it learns from their scores")
    seed: Seed = 0
    scheduler: Literal["none", "asha", "pbt"] = "none"
    metric: Metric = Field(
        default="episode_return", description="a low response alone may come from few completed tasks"
    )
    window: Count = Field(default=10, description="epochs with an ended episode whose mean is a training's score")
    asha: ASHAConfig = ASHAConfig()
    pbt: PBTConfig = PBTConfig()

    @model_validator(mode="after")
    def _parts_agree(self) -> SearchConfig:
        if self.scheduler == "pbt" and not self.space:
            raise ValueError("scheduler pbt changes the settings of `space`, which is empty")
        if self.scheduler == "pbt" and self.sampler == "optuna":
            raise ValueError("scheduler pbt goes with sampler random: optuna waits for whole trainings")
        if self.sampler == "optuna" and not self.space:
            raise ValueError("sampler optuna draws from `space`, which is empty")
        return self

    @property
    def mode(self) -> Literal["min", "max"]:
        """Which end of the metric is good."""
        return "min" if self.metric == "response_mean_s" else "max"

    def better(self, scores: Mapping[Any, float]) -> Any:
        """The key of the best score, the first among equals; None where no score is defined."""
        known = {key: value for key, value in scores.items() if not math.isnan(value)}
        choose = min if self.mode == "min" else max
        return choose(known, key=lambda key: known[key]) if known else None


def recent(curve: Sequence[Mapping[str, Any]], metric: str, window: int) -> float:
    """Mean of a metric over the last `window` epochs in which an episode ended; NaN where none did.

    >>> recent([{"completed": value} for value in (1.0, 5.0, float("nan"), 7.0)], "completed", 2)
    6.0
    """
    values = [row[metric] for row in curve if not math.isnan(row[metric])]
    return float(np.mean(values[-window:])) if values else math.nan


def rounded(value: float) -> float:
    """A number with DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")


def points(search: SearchConfig | None, scores: Sequence[float] = ()) -> list[Point]:
    """The points to train: all of a random search; of Optuna's those that the scores of the first ones lead to.

    Args:
        search: what to draw from; without one, or without a space, there is one point that sets nothing.
        scores: of the first points, in their order; NaN for one that failed. Optuna's next batch follows them.

    Raises:
        UserError: Optuna is asked for and not installed.
    """
    if search is None or not search.space:
        return [{}]
    if search.sampler == "optuna":
        return _optuna_points(search, scores)
    # A generator for each point: more samples later leave the first ones, and their trainings, what they are.
    generators = (np.random.default_rng([search.seed, index]) for index in range(search.samples))
    return [{path: values.draw(generator) for path, values in search.space.items()} for generator in generators]


def _optuna_points(search: SearchConfig, scores: Sequence[float]) -> list[Point]:
    try:
        import optuna
    except ImportError:
        raise UserError("search.sampler optuna: not installed; pip install 'rllib-scale[optuna]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=search.seed % 2**32, n_startup_trials=search.batch, constant_liar=True)
    study = optuna.create_study(sampler=sampler, direction="minimize" if search.mode == "min" else "maximize")
    found: list[Point] = []
    while len(found) < search.samples and len(found) <= len(scores):
        trials = [study.ask() for _ in range(min(search.batch, search.samples - len(found)))]
        batch = [{path: _suggest(trial, path, values) for path, values in search.space.items()} for trial in trials]
        found += batch
        for trial, score in zip(trials, scores[len(found) - len(batch) :], strict=False):
            if math.isnan(score):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, score)
    return found


def _suggest(trial: Any, path: str, values: Distribution) -> Any:
    if values.choice is not None:
        return values.choice[trial.suggest_categorical(path, range(len(values.choice)))]
    assert values.bounds is not None
    low, high = values.bounds
    return rounded(trial.suggest_float(path, low, high, log=values.loguniform is not None))
