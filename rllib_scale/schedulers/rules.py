"""Heuristics. Where none of its servers is free, a rule names a busy one: an invalid decision, by which it waits."""

from __future__ import annotations

from typing import Any

from rllib_scale.config import DecisionMode, MaskMode, ObservationConfig
from rllib_scale.config.schedulers import ALL_RULES as SPECS
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
from rllib_scale.observation.policy import Policy
from rllib_scale.schedulers import choosing
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.base import BasePolicy, Scheduler
from rllib_scale.schedulers.choosing import ChoosingRule
from rllib_scale.schedulers.dual_price import DualPrice
from rllib_scale.schedulers.planning import CPOP, HEFT
from rllib_scale.schedulers.replicas import REPLICA_RULES
from rllib_scale.schedulers.reserving import Hungarian, MaxMin, MinMin, NonBlocking, Price, Reserve


class RandomFeasible(ChoosingRule):
    """Any idle server that fits, uniformly."""

    name = "random-feasible"
    description = "an idle server that fits, uniformly at random"
    rule, draws = choosing.RANDOM, True


class RoundRobin(ChoosingRule):
    """The next idle server that fits, in cyclic order after the last one named that was."""

    name = "round-robin"
    description = "the next idle server that fits, in cyclic order"
    rule = choosing.ROUND_ROBIN


class FastestIdle(ChoosingRule):
    """The fastest idle server that fits."""

    name = "fastest-idle"
    description = "the fastest idle server that fits"
    rule = choosing.FASTEST


class EarliestFinish(ChoosingRule):
    """The server that would finish the task first, its running task awaited: it may wait for a fast one."""

    name = "earliest-finish"
    description = "the server that would finish the task first, waiting for it where it is busy"
    rule = choosing.EARLIEST_FINISH


class LargeOnly(ChoosingRule):
    """The servers of the highest capacity, waiting for the one that is free first.

    Others only where a mask forbids to wait, or where those are too small for the task: the fastest first.
    """

    name = "large-only"
    description = "only servers of the highest capacity, waiting for the one that is free first"
    rule = choosing.LARGE_ONLY


class BestFitMemory(ChoosingRule):
    """The idle server whose memory is enough by the smallest margin."""

    name = "best-fit-memory"
    description = "the idle server whose memory is enough by the smallest margin"
    rule = choosing.BEST_FIT


class LocalityRule(ChoosingRule):
    """A rule that knows where a task's input is, or that shares out load; it reads the feature set `rounds`.

    It plays any problem: with `on_busy: step` it waits as every rule does, with `on_busy: reserve` a busy server that
    it names is reserved, and with `mask: feasible` it chooses among the open ones.
    """

    feature_set = "rounds"


class EarliestFinishTransfer(LocalityRule):
    """The server that would finish the task first, its tasks awaited and the input moved."""

    name = "earliest-finish-transfer"
    description = "the server that would finish the task first, its tasks awaited and the task's input moved"
    rule = choosing.FINISH_WITH_TRANSFER


class Sticky(LocalityRule):
    """The server where the task's input is, unless the wait there is longer than moving it; else as earliest finish."""

    name = "sticky"
    description = "where the task's input is, unless the wait is longer than moving it; else earliest-finish-transfer"
    rule = choosing.STICKY


class PowerOfTwo(LocalityRule):
    """Of two random servers the one that is available earlier.

    Source: M. Mitzenmacher, The power of two choices in randomized load balancing, IEEE TPDS 12(10), 2001.
    """

    name = "power-of-two"
    description = "of two random servers that fit the one that is available earlier"
    rule, draws = choosing.POWER_OF_TWO, True


class LeastLoaded(LocalityRule):
    """The server with the smallest share of busy places; an open one, where there is one."""

    name = "least-loaded"
    description = "the open server with the smallest share of busy places, ties at random; else the next free"
    rule, draws = choosing.LEAST_LOADED, True


class PrefixAffinity(LocalityRule):
    """The server that holds the prefix, unless the load is out of balance: as Ray Serve's PrefixCacheAffinityRouter.

    The prefix of a task, its KV cache, is where its first predecessor ran. The load of a server is the share of its
    places that are busy. Where two servers' loads differ by more than `imbalance`, power-of-two decides. A task without
    a prefix goes to the server with the least memory in use. (Ray Serve 2.60 counts requests, not shares, and compares
    prefixes by their text: with less than a tenth in common it takes the server that holds the fewest characters.)
    """

    name = "prefix-affinity"
    description = "the server with the prefix (KV cache), unless loads differ too much, then power-of-two"
    rule, draws = choosing.PREFIX_AFFINITY, True


RULES: dict[str, type[Scheduler]] = {
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
ALL_RULES: dict[str, type[BasePolicy]] = {**SCHEDULERS, **REPLICA_RULES}


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
        found, parameters = ALL_RULES[spec.name], spec.parameters
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
    if isinstance(spec, RuleSpec):
        made.sees = SPECS[spec.name].sees
    return made
