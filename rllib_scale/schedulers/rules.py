"""Heuristics. Where none of its servers is free, a rule names a busy one: an invalid decision, by which it waits."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_scale.config import DecisionMode, MaskMode, ObservationConfig
from rllib_scale.config.schedulers import (
    PolicySpec,
    RuleSpec,
    SchedulerSpec,
    parse_parameters,
    parse_scheduler,
    with_arguments,
)
from rllib_scale.errors import UserError, offered
from rllib_scale.loading import load_scheduler
from rllib_scale.observation.answers import OPEN
from rllib_scale.observation.feature_sets import ObservationView
from rllib_scale.observation.policy import Policy
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.base import BasePolicy, Rule
from rllib_scale.schedulers.batch_mode import MaxMin, MinMin
from rllib_scale.schedulers.dual_price import DualPrice
from rllib_scale.schedulers.locality import EarliestFinishTransfer, LeastLoaded, PowerOfTwo, PrefixAffinity, Sticky
from rllib_scale.schedulers.planning import CPOP, HEFT
from rllib_scale.schedulers.reserving import Hungarian, NonBlocking, Price, Reserve


class RandomFeasible(Rule):
    """Any idle server that fits, uniformly."""

    name = "random-feasible"
    description = "an idle server that fits, uniformly at random"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        return np.where(v.feasible, self.draw(v.capacity.shape[1]), -np.inf)


class RoundRobin(Rule):
    """The next idle server that fits, in cyclic order after the last one chosen."""

    name = "round-robin"
    description = "the next idle server that fits, in cyclic order"

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self._last = np.full(len(seeds), -1)

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        num_rows = v.capacity.shape[1]
        distance = (np.arange(num_rows)[None, :] - self._last[:, None] - 1) % num_rows
        return np.where(v.feasible, -distance.astype(np.float64), -np.inf)

    def __call__(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
        """See `Scheduler.__call__`; remembers the choice where it can be carried out."""
        chosen = super().__call__(observation, fit)
        valid = fit[np.arange(len(chosen)), 0, chosen] == OPEN
        self._last = np.where(valid, chosen, self._last)
        return chosen


class FastestIdle(Rule):
    """The fastest idle server that fits."""

    name = "fastest-idle"
    description = "the fastest idle server that fits"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        return np.where(v.feasible, v.capacity, -np.inf)


class EarliestFinish(Rule):
    """The server that would finish the task first, its running task awaited: it may wait for a fast one."""

    name = "earliest-finish"
    description = "the server that would finish the task first, waiting for it where it is busy"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        return np.where(v.fits, -(v.remaining + v.execution_s), -np.inf)


class LargeOnly(Rule):
    """The servers of the highest capacity, waiting for the one that is free first.

    Others only where a mask forbids to wait, or where those are too small for the task: the fastest first.
    """

    name = "large-only"
    description = "only servers of the highest capacity, waiting for the one that is free first"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        highest = v.capacity.max(axis=1, keepdims=True)
        wait = -v.remaining.astype(np.float64)
        return np.where(v.fits, np.where(v.capacity == highest, wait, v.capacity - 1e9), -np.inf)


class BestFitMemory(Rule):
    """The idle server whose memory is enough by the smallest margin."""

    name = "best-fit-memory"
    description = "the idle server whose memory is enough by the smallest margin"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        return np.where(v.feasible, -(v.memory - v.task_memory).astype(np.float64), -np.inf)


RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        *(RandomFeasible, RoundRobin, FastestIdle, EarliestFinish, LargeOnly, BestFitMemory),
        *(EarliestFinishTransfer, Sticky, PowerOfTwo, LeastLoaded, PrefixAffinity),
    )
}
DISPATCHERS: dict[str, type[BasePolicy]] = {
    dispatcher.name: dispatcher
    for dispatcher in (
        *(HEFT, CPOP, MinMin, MaxMin),
        *(NonBlocking, Reserve, Hungarian, Price, DualPrice, AdaptivePrice),
    )
}
SCHEDULERS: dict[str, type[BasePolicy]] = {**RULES, **DISPATCHERS}


def make_scheduler(
    scheduler: SchedulerSpec | str,
    observation: ObservationConfig,
    mask: MaskMode = "none",
    decision: DecisionMode = "argmax",
) -> Policy:
    """A rule, or a user-defined scheduler, which is imported. Observation and mask are for rules.

    `rllib_scale.policies.make.make_policy` takes exported policies, too.

    Raises:
        UserError: there is none, it has no such parameter, or sampling is asked of a rule, whose scores are no
            probabilities.
    """
    spec = parse_scheduler(scheduler) if isinstance(scheduler, str) else scheduler
    if isinstance(spec, PolicySpec):
        raise UserError(f"scheduler {spec.label!r}: is a policy, and a rule is asked for; valid: {offered(SCHEDULERS)}")
    if decision == "sample":
        raise UserError(f"decision sample: {spec.name!r} is a rule; only trained policies can sample")
    found: type[Any]
    if isinstance(spec, RuleSpec):
        found, parameters = SCHEDULERS[spec.name], spec.parameters
    else:
        found, _ = load_scheduler(spec)
        parameters = parse_parameters(found.takes, spec.arguments, spec.label)
        spec = with_arguments(spec, found.takes)
    name = spec.name
    try:
        made: Policy = found.make(parameters, observation, mask, decision)
    except TypeError as error:
        raise UserError(f"scheduler {name!r}: cannot be made ({error})") from None
    made.name = spec.label
    return made
