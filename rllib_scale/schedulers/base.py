"""Base of all policies, and the interface of those that decide task by task."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from typing import Any, Literal, Self

import numpy as np

from rllib_scale.config import DecisionMode, EnvConfig, MaskMode, ObservationConfig
from rllib_scale.config.rules import NoParameters
from rllib_scale.config.schedulers import ALL_RULES
from rllib_scale.errors import UserError
from rllib_scale.observation.answers import OPEN
from rllib_scale.observation.feature_sets import ObservationView, first_candidate, view
from rllib_scale.observation.policy import Batch


class BasePolicy(ABC):
    """Parameters and random draws of a policy; see `observation.policy.Policy` for what it must do.

    Args:
        parameters: of its model in `rllib_scale.config`, or of `takes`; None: the defaults.
    """

    name = ""
    description = ""
    takes: type[NoParameters] = NoParameters
    """The parameters that a user-defined policy takes. For this and what follows the registry speaks for ours."""
    sees: Literal["tasks", "workflows"] = "workflows"
    plans, per_task, can_be_asked = False, False, False
    trial: Any = None

    def __init__(self, parameters: NoParameters | None = None) -> None:
        known = ALL_RULES.get(self.name)
        self.parameters: Any = parameters or (known.parameters if known is not None else self.takes)()
        self.generators: list[np.random.Generator] = []

    @classmethod
    def make(
        cls, parameters: NoParameters, observation: ObservationConfig, mask: MaskMode, decision: DecisionMode
    ) -> Self:
        """One with these parameters, of the model in `takes`; the rest concerns those that decide task by task."""
        return cls(parameters)

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`."""
        return env

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """Begin one episode per environment. `seeds`: (seed, episode) of each, which decide every draw in it."""
        self.generators = [np.random.default_rng(np.random.SeedSequence(seed)) for seed in seeds]

    def change_servers(self, seeds: list[tuple[int, int]]) -> None:
        """Go on with other servers, of any number. One that learns keeps what it knows of the work; others start again.

        Args:
            seeds: as for `reset`.
        """
        self.reset(seeds)

    @abstractmethod
    def advance(self, batch: Batch) -> None:
        """See `Policy.advance`."""

    def wrong(self, method: str, value: Any, expected: str) -> UserError:
        """The error for a method of a user-defined scheduler that returned something else than expected."""
        is_array = isinstance(value, np.ndarray)
        what = f"{value.dtype} array of shape {value.shape}" if is_array else reprlib.repr(value)
        return UserError(f"scheduler {type(self).__name__}: {method} returned {what}; expected {expected}")


def as_array(value: Any) -> np.ndarray:
    """The result of a user-defined method as an array; without dimensions for rows of different lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty((), dtype=object)


class Scheduler(BasePolicy):
    """Scores every server for the current task of each environment; the best score is the decision.

    Subclasses implement `scores`. Row i of a batch is environment i throughout an episode, so a scheduler may keep
    state per row; `reset` clears it. Random draws come from one generator per row, seeded there.

    Args:
        observation: normalisers by which observations are read back in physical units.
        mask: `feasible` restricts the choice to idle servers that fit, wherever there is one.
        decision: `argmax`, or `sample` from the softmax of the scores.
        parameters: as for `BasePolicy`.
    """

    sees: Literal["tasks", "workflows"] = "tasks"
    per_task, can_be_asked = True, True
    feature_set: str | None = None
    """Feature set that it reads; None: the problem's own."""

    def __init__(
        self,
        observation: ObservationConfig,
        mask: MaskMode = "none",
        decision: DecisionMode = "argmax",
        parameters: NoParameters | None = None,
    ) -> None:
        super().__init__(parameters)
        if self.feature_set is not None:
            observation = observation.model_copy(update={"feature_set": self.feature_set})
        self.observation, self.mask, self.decision = observation, mask, decision

    @classmethod
    def make(
        cls, parameters: NoParameters, observation: ObservationConfig, mask: MaskMode, decision: DecisionMode
    ) -> Self:
        """One for a problem with that observation and mask. `parameters`: of the model in `takes`."""
        return cls(observation, mask, decision, parameters)

    def problem(self, env: EnvConfig) -> EnvConfig:
        """The problem as this scheduler plays it: seen by its own observation config.

        Raises:
            UserError: it cannot play it.
        """
        return env.model_copy(update={"observation": self.observation})

    def advance(self, batch: Batch) -> None:
        """See `Policy.advance`."""
        batch.step(self(batch.observation, batch.fit))

    @abstractmethod
    def scores(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
        """Scores (B, N) for the first candidate; higher is better, -inf is never chosen where another is not.

        Args:
            observation: (B, W) of the config's feature set; the paper's has 5 + 5N columns.
            fit: (B, 1, N) how each server is for it, as `Engine.fit`.
        """

    def draw(self, num_rows: int) -> np.ndarray:
        """Uniform numbers (B, N), those of environment i from generator i."""
        return np.stack([generator.random(num_rows) for generator in self.generators])

    def __call__(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
        """Server index (B,) for the first of K candidates. Ties go to the lowest index.

        Args:
            observation: (B, W) with K candidates.
            fit: (B, K, N).

        Raises:
            UserError: `scores`, or `rate` of a `Rule`, returned something else.
        """
        observation, fit = first_candidate(observation, fit, self.observation)
        given = self.scores(observation, fit)
        scores, expected = as_array(given), fit[:, 0].shape
        if scores.shape != expected or scores.dtype.kind not in "biuf" or np.isnan(scores).any():
            method = "rate" if isinstance(self, Rule) else "scores"
            raise self.wrong(method, given, f"an array of numbers of shape {expected}, without NaN")
        scores = scores.astype(np.float64, copy=False)
        if self.mask == "feasible":
            feasible = fit[:, 0] == OPEN
            some = feasible.any(axis=1, keepdims=True)
            scores = np.where(feasible | ~some, scores, -np.inf)
        if self.decision == "sample":
            # The Gumbel trick: argmax of score + Gumbel noise is a draw from the softmax of the scores.
            scores = scores - np.log(-np.log(self.draw(scores.shape[1])))
        return np.argmax(scores, axis=1)


class Rule(Scheduler):
    """A scheduler that reads the observation in physical units. Subclasses implement `rate`."""

    @abstractmethod
    def rate(self, v: ObservationView) -> np.ndarray:
        """Scores (B, N) from the observation view."""

    def scores(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
        """See `Scheduler.scores`."""
        return self.rate(view(observation, fit, self.observation))
