"""Search for settings: random points or Optuna's, early stopping by ASHA, population-based training (PBT).

The values of a random point are settings of a trial, which is hashed, stored and skipped like any other. They depend on
the seed only: the same sweep draws the same points again. What Optuna suggests depends on the scores so far. A training
that waits for it is planned by its number. Free of ray and torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from rllib_scale.config import Count, Model, Seed, TrialConfig
from rllib_scale.config.base import Finite, Positive
from rllib_scale.config.identity import Settings, settings_in, world_of
from rllib_scale.config.paths import ByPath, is_integer, may_change
from rllib_scale.errors import UserError

Point = dict[str, Any]
"""Config path -> value."""
Metric = Literal["response_mean_s", "completed", "episode_return"]
Metrics = Annotated[tuple[Metric, ...], Field(min_length=2)]
SCORE = "score"
"""Key of the score in a training's results; NaN before an episode has ended: such a training is not compared."""
DIGITS = 4
"""Significant digits of a drawn number, all of which a label shows."""


class Distribution(Model):
    """Values of one setting: one of `uniform: [low, high]`, `loguniform: [low, high]`, `choice: [...]`."""

    uniform: tuple[Finite, Finite] | None = None
    loguniform: tuple[Positive, Positive] | None = None
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

    def draw(self, generator: np.random.Generator, integer: bool = False) -> Any:
        """Draw one value; `integer`: of a setting that is an integer."""
        if self.choice is not None:
            return self.choice[int(generator.integers(len(self.choice)))]
        low, high = self.ends(integer)
        if integer:
            low, high = low - 0.5, high + 0.5  # so that all are equally likely
        share = generator.random()
        if self.loguniform is not None:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        return self.nearest(round(value) if integer else value)

    def ends(self, integer: bool = False) -> tuple[Any, ...]:
        """The lowest and the highest value, or all values of a choice."""
        if self.bounds is None:
            return self.choice or ()
        low, high = self.bounds
        return (math.ceil(low), math.floor(high)) if integer else (low, high)

    def nearest(self, value: Any) -> Any:
        """The nearest number within the bounds: an integer stays one, another has DIGITS digits, as a bound may not."""
        if self.bounds is None:
            return value
        low, high = self.bounds
        if isinstance(value, int):
            return min(max(value, math.ceil(low)), math.floor(high))
        return min(max(rounded(value), low), high)


class ASHAConfig(Model):
    """Asynchronous successive halving: the worse trainings stop at each rung."""

    grace_steps: Count = Field(default=102_400, description="env steps of the first rung; nothing stops earlier")
    reduction_factor: Annotated[int, Field(ge=2, le=1000)] = Field(
        default=3,
        description="one in this many continues at a rung, and the next rung is this many times as far",
    )


class PBTConfig(Model):
    """Population-based training: the worst continue as copies of the best, with changed settings.

    All are compared at the same step: the first wait for the others.
    """

    interval_steps: Count = Field(default=51_200, description="env steps between two comparisons")
    quantile: Annotated[float, Field(gt=0, le=0.5)] = Field(
        default=0.25, description="share of the worst, and the best"
    )
    resample: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.25, description="probability of a new draw instead of a factor 0.8 or 1.2"
    )


class SearchConfig(Model):
    """Settings that a sweep tries beyond its grid, and the scheduler that stops or changes trainings."""

    space: Annotated[dict[str, Distribution], ByPath()] = Field(default={}, description="config path -> distribution")
    samples: Count = Field(default=16, description="points of the space that are trained")
    algorithm: Literal["random", "optuna"] = Field(
        default="random",
        description="random: points drawn by `seed`; optuna: each training has the settings that Optuna (TPE) suggests "
        "from the scores so far; needs the extra `search`",
    )
    seed: Seed = 0
    scheduler: Literal["none", "asha", "pbt"] = "none"
    metric: Metric | Metrics = Field(
        default="episode_return",
        description="a low response alone may come from few completed tasks; several: a search for settings that no "
        "others beat in all of them",
    )
    window: Count = Field(default=10, description="epochs with an ended episode whose mean is a training's score")
    asha: ASHAConfig = ASHAConfig()
    pbt: PBTConfig = PBTConfig()

    @model_validator(mode="after")
    def _parts_agree(self) -> SearchConfig:
        if self.scheduler == "pbt" and not self.space:
            raise ValueError("scheduler pbt changes the settings of `space`, which is empty")
        if self.algorithm == "optuna" and not self.space:
            raise ValueError("algorithm optuna suggests settings of `space`, which is empty")
        if self.algorithm == "optuna" and self.scheduler == "pbt":
            raise ValueError("scheduler pbt changes the settings itself; valid with algorithm optuna: none, asha")
        if len(self.metrics) > 1 and self.scheduler != "none":
            raise ValueError(f"scheduler {self.scheduler} compares trainings by one metric, not by {len(self.metrics)}")
        return self

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Its metrics, often one."""
        return self.metric if isinstance(self.metric, tuple) else (self.metric,)

    @property
    def modes(self) -> list[Literal["min", "max"]]:
        """Whether each metric is minimised or maximised."""
        return ["min" if metric == "response_mean_s" else "max" for metric in self.metrics]

    def scores(self, curve: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The score of a training curve by each metric, under the keys of a training's results."""
        values = [recent(curve, metric, self.window) for metric in self.metrics]
        return dict(zip(self.score_keys, values, strict=True))

    @property
    def score_keys(self) -> list[str]:
        """Keys of the scores: `score`, or with several metrics one for each."""
        return [SCORE] if len(self.metrics) == 1 else [f"{SCORE}_{metric}" for metric in self.metrics]

    def best(self, scores: Mapping[Any, Sequence[float]]) -> list[Any]:
        """The keys of the best scores: those that no others beat in one metric and equal in the rest.

        With one metric these are ties. Scores with a NaN do not count.
        """
        signs = [1 if mode == "max" else -1 for mode in self.modes]
        known = {
            key: [sign * value for sign, value in zip(signs, values, strict=True)]
            for key, values in scores.items()
            if not any(map(math.isnan, values))
        }

        def is_beaten(own: list[float]) -> bool:
            return any(
                other != own and all(one >= two for one, two in zip(other, own, strict=True))
                for other in known.values()
            )

        return [key for key, own in known.items() if not is_beaten(own)]


def recent(curve: Sequence[Mapping[str, Any]], metric: str, window: int) -> float:
    """Mean of a metric over the last `window` epochs in which an episode ended; NaN without one.

    >>> recent([{"completed": value} for value in (1.0, 5.0, float("nan"), 7.0)], "completed", 2)
    6.0
    """
    values = [row[metric] for row in curve if not math.isnan(row[metric])]
    return float(np.mean(values[-window:])) if values else math.nan


def rounded(value: float) -> float:
    """A number with DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")


def points(search: SearchConfig | None) -> list[Point]:
    """The random points to train; without a search or a space one point without settings.

    Raises:
        UserError: the bounds of an integer have none between them.
    """
    if search is None or not search.space:
        return [{}]
    integers = integers_of(search)
    # A generator for each point: more samples later do not change the first points.
    generators = (np.random.default_rng([search.seed, index]) for index in range(search.samples))
    return [
        {path: values.draw(generator, path in integers) for path, values in search.space.items()}
        for generator in generators
    ]


def integers_of(search: SearchConfig) -> set[str]:
    """The paths of a space that are integers.

    Raises:
        UserError: the bounds of an integer have none between them.
    """
    integers = {path for path in search.space if is_integer(TrialConfig, path)}
    for path in integers:
        bounds = search.space[path].bounds
        if bounds is not None and math.ceil(bounds[0]) > math.floor(bounds[1]):
            raise UserError(f"search.space.{path} {list(bounds)}: there is no integer between; valid: wider bounds")
    return integers


def check_acts(search: SearchConfig | None, trainings: Iterable[TrialConfig]) -> None:
    """Refuse a scheduler that first compares trainings when all of them have ended.

    Raises:
        UserError: with the interval, the steps of the longest training, and what is valid.
    """
    if search is None or search.scheduler == "none":
        return
    trainings = list(trainings)
    if search.scheduler == "pbt":
        for path in search.space:
            if not may_change(TrialConfig, path):
                raise UserError(
                    f"search.space.{path}: is fixed when a training begins, and search.scheduler pbt changes it later; "
                    f"valid: {', '.join(sorted(changing_settings(trainings[0])))}"
                )
    check_one_problem(f"search.scheduler {search.scheduler}", trainings, "search.scheduler none")
    for training in trainings:
        if training.dispatches:
            raise UserError(f"search.scheduler {search.scheduler}: {training.method} has no env steps to compare at")
    name, interval = "asha.grace_steps", search.asha.grace_steps
    if search.scheduler == "pbt":
        name, interval = "pbt.interval_steps", search.pbt.interval_steps
    steps, last = max(
        (epochs * per_epoch, (epochs - 1) * per_epoch)  # what is compared at the end of the last epoch has ended
        for epochs, per_epoch in ((training.stop_epochs, training.env_steps_per_epoch or 0) for training in trainings)
    )
    if interval > last:
        valid = f"1 to {last}, or more algorithm.epochs" if last else "more algorithm.epochs"
        raise UserError(
            f"search.{name} {interval}: the trainings end after {steps} env steps, before {search.scheduler} compares "
            f"them; valid: {valid}"
        )


def check_one_problem(comparing: str, trainings: Iterable[TrialConfig], valid: str) -> None:
    """Refuse to compare trainings of several problems, or with several rewards.

    Args:
        comparing: the setting that compares them.
        trainings: that it compares.
        valid: a setting that does not.

    Raises:
        UserError: with the paths in which the problems differ.
    """
    if differing := _differing([_played(training) for training in trainings]):
        said = f"compares trainings of one problem, which differ in {', '.join(differing)}"
        raise UserError(f"{comparing}: {said}; valid: {valid}, or one value")


def changing_settings(training: TrialConfig) -> list[str]:
    """The config paths of the settings of a training that may change while it runs."""
    return [path for path in settings_in(training.model_dump(mode="json")) if may_change(TrialConfig, path)]


def few_points(search: SearchConfig | None, planned: int, asked: int) -> list[str]:
    """A sentence for each way in which a search tries less than it was asked for.

    Args:
        search: the search.
        planned: distinct trainings of the sweep.
        asked: methods x seeds x grid x samples.
    """
    if search is None or not search.space:
        return []
    found = []
    choices = [values.choice for values in search.space.values()]
    distinct = math.prod(len(choice) for choice in choices if choice is not None)
    if search.algorithm == "optuna" and None not in choices and distinct < search.samples:
        found.append(f"search.samples {search.samples}: search.space has {distinct} points, so some are trained again")
    if planned < asked:
        found.append(f"search.samples {search.samples}: equal points are drawn, so {planned} of {asked} are trained")
    if search.scheduler == "pbt" and planned < 2:
        found.append("search.scheduler pbt: a population of one has no other member to copy; give more search.samples")
    return found


def _played(training: TrialConfig) -> Settings:
    """Settings other than the policy that a training's score depends on: the problems and the reward."""
    own = training.algorithm.model_dump(mode="json", include={"problems", "reward"})
    reward = training.env.reward.model_dump(mode="json")
    return settings_in({"env": {**world_of(training.env), "reward": reward}, "algorithm": own})


def _differing(several: Sequence[Settings]) -> list[str]:
    """The config paths at which some settings differ, at most three."""
    paths = dict.fromkeys(path for settings in several for path in settings)
    return [path for path in paths if any(other.get(path) != several[0].get(path) for other in several[1:])][:3]
