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


def _choosing(feature_set: str | None, rules: dict[str, tuple[int, str]]) -> dict[str, type[Scheduler]]:
    """Rules that decide for one task at a time, by name: how each chooses, and its description."""
    return {
        name: type("ChoosingRule", (ChoosingRule,), shared | {"name": name, "rule": rule, "description": description})
        for shared in [{"__module__": __name__, "feature_set": feature_set}]
        for name, (rule, description) in rules.items()
    }


# Those that know where a task's input is, or that share out load, read the feature set `rounds`.
RULES = _choosing(
    None,
    {
        "random-feasible": (choosing.RANDOM, "an idle server that fits, uniformly at random"),
        "round-robin": (choosing.ROUND_ROBIN, "the next idle server that fits, in cyclic order"),
        "fastest-idle": (choosing.FASTEST, "the fastest idle server that fits"),
        "earliest-finish": (
            choosing.EARLIEST_FINISH,
            "the server that would finish the task first, waiting for it where it is busy",
        ),
        # Others only where a mask forbids to wait, or where those are too small for the task: the fastest first.
        "large-only": (
            choosing.LARGE_ONLY,
            "only servers of the highest capacity, waiting for the one that is free first",
        ),
        "best-fit-memory": (choosing.BEST_FIT, "the idle server whose memory is enough by the smallest margin"),
    },
) | _choosing(
    "rounds",
    {
        "earliest-finish-transfer": (
            choosing.FINISH_WITH_TRANSFER,
            "the server that would finish the task first, its tasks awaited and the task's input moved",
        ),
        "sticky": (
            choosing.STICKY,
            "where the task's input is, unless the wait is longer than moving it; else earliest-finish-transfer",
        ),
        # M. Mitzenmacher, The power of two choices in randomized load balancing, IEEE TPDS 12(10), 2001.
        "power-of-two": (choosing.POWER_OF_TWO, "of two random servers that fit the one that is available earlier"),
        "least-loaded": (
            choosing.LEAST_LOADED,
            "the open server with the smallest share of busy places, ties at random; else the next free",
        ),
        # As Ray Serve's PrefixCacheAffinityRouter. The prefix of a task, its KV cache, is where its first predecessor
        # ran; a task without one goes to the server with the least memory in use. The load of a server is the share of
        # its places that are busy: where two differ by more than `imbalance`, power-of-two decides. (Ray Serve 2.60
        # counts requests, not shares, and compares prefixes by their text: with less than a tenth in common it takes
        # the server that holds the fewest characters.)
        "prefix-affinity": (
            choosing.PREFIX_AFFINITY,
            "the server with the prefix (KV cache), unless loads differ too much, then power-of-two",
        ),
    },
)
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
