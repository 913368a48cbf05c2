"""Rules that send calls to replicas, as they are used in the field, and a gate that holds calls back.

With a gate, a call is sent only where the contexts of the active sessions, its own included, stay within a share of the
memory for contexts, or where its session is active already (as ThunderAgent). Among these replicas the rule chooses.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rllib_scale.compiled import compiled, rare
from rllib_scale.config.base import Model, NonNegative
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError, choice_error
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.loop import FULL, answer, fits, next_offer
from rllib_scale.simulator.replicas.service import duration
from rllib_scale.simulator.replicas.state import NONE, RUNNING, Fleet, grown
from rllib_scale.workloads.random_numbers import integer

RANDOM, LEAST, TWO, STICKY, AFFINITY, LMETRIC, WEIGHTED = range(7)
NAMES = MappingProxyType(
    {
        "random": RANDOM,
        "least-outstanding": LEAST,
        "power-of-two": TWO,
        "sticky": STICKY,
        "prefix-affinity": AFFINITY,
        "lmetric": LMETRIC,
        "weighted-scores": WEIGHTED,
    }
)
RuleName = Literal[
    "random", "least-outstanding", "power-of-two", "sticky", "prefix-affinity", "lmetric", "weighted-scores"
]


class Rule(Model):
    """A rule with its parameters, written as `NAME:key=value,key=value`."""

    name: RuleName = Field(default="lmetric", description="the rule")
    gate: NonNegative = Field(
        default=0.0, description="share of the memory that active sessions may take; 0: no gate, nothing is held"
    )
    bound: Annotated[float, Field(ge=1)] = Field(
        default=1.25, description="prefix-affinity: the holder is preferred up to so many times the mean load"
    )
    prefix: NonNegative = Field(default=3.0, description="weighted-scores: share of the prompt in the cache")
    queue: NonNegative = Field(default=2.0, description="weighted-scores: few calls, between least and most")
    memory: NonNegative = Field(default=2.0, description="weighted-scores: free memory")

    def __str__(self) -> str:
        """As it is written."""
        given = self.model_dump(exclude_defaults=True, exclude={"name"})
        changed = [f"{key}={value:g}" for key, value in given.items()]
        return f"{self.name}:{','.join(changed)}" if changed else self.name

    def values(self) -> NDArray[np.float64]:
        """As compiled code takes it."""
        return np.array([NAMES[self.name], self.gate, self.bound, self.prefix, self.queue, self.memory])


def parse_rule(text: str) -> Rule:
    """A rule from `NAME:key=value,key=value`.

    Raises:
        UserError: an unknown name or parameter, or an impossible value.
    """
    name, _, parameters = text.partition(":")
    if name not in NAMES:
        raise choice_error("rule", name, NAMES)
    pairs = [part.partition("=") for part in parameters.split(",") if part]
    if bad := [key for key, sign, _ in pairs if not sign or key == "name"]:
        raise UserError(f"rule {text!r}: {bad[0]!r} must be key=value; valid: {', '.join([*Rule.model_fields][1:])}")
    return build_model(Rule, {"name": name} | {key: value for key, _, value in pairs}, f"rule {text!r}")


@rare
def memory_now(here, time):  # type: ignore[no-untyped-def]
    """Share of the memory that running calls take."""
    pinned = here.pinned
    if here.phase == RUNNING and here.decoding > 0 and here.planned > 1:
        whole = duration(here, here.planned)
        pinned += int(here.planned * here.decoding * min(1.0, (time - here.clock) / whole))
    return pinned / here.kv_tokens


@rare
def open_to(fleet, index, replica, gate):  # type: ignore[no-untyped-def]
    """Whether a call fits a replica, and the gate lets it through."""
    if not fits(fleet, index, replica):
        return False
    call, here = fleet.calls[index], fleet.replicas[replica]
    return (
        gate <= 0.0
        or fleet.agents[call.session, call.agent].active == replica
        or here.active + call.prompt <= gate * here.kv_tokens
    )


@rare
def _score(fleet, index, replica, rule, time, most, least):  # type: ignore[no-untyped-def]
    """What a rule minimises over the replicas."""
    kind, call, here = int(rule[0]), fleet.calls[index], fleet.replicas[replica]
    load = here.calls + here.waiting
    if kind == LMETRIC:  # new prefill tokens x batch with the call [arXiv 2603.15202]
        return float(call.target - found(fleet, call, replica)) * (load + 1)
    if kind == WEIGHTED:
        spread = (load - least) / (most - least) if most > least else 0.0
        hit = found(fleet, call, replica) / call.prompt
        return -(rule[3] * hit + rule[4] * (1.0 - spread) + rule[5] * (1.0 - memory_now(here, time)))
    return float(load)


@rare
def choose(fleet, index, rule, rng):  # type: ignore[no-untyped-def]
    """The replica that a rule sends an offered call to, or NONE to hold it."""
    kind, gate, call = int(rule[0]), rule[1], fleet.calls[index]
    count, most, least, total = 0, 0, 2**62, 0
    for replica in range(len(fleet.replicas)):
        if open_to(fleet, index, replica, gate):
            load = fleet.replicas[replica].calls + fleet.replicas[replica].waiting
            count, total, most, least = count + 1, total + load, max(most, load), min(least, load)
    if count == 0:
        return NONE
    home = fleet.agents[call.session, call.agent].home
    if home != NONE and not open_to(fleet, index, home, gate):
        home = NONE
    if kind == STICKY and home != NONE:
        return home
    if kind == AFFINITY and home != NONE:
        load = fleet.replicas[home].calls + fleet.replicas[home].waiting
        if load + 1 <= rule[2] * (total + 1) / count:
            return home
    first, second = integer(rng, 0, count - 1), NONE
    if kind == TWO and count > 1:
        second = integer(rng, 0, count - 2)
        second += second >= first
    # Ties go to the first replica from a random one on: with the lowest index, replicas that are alike would not be
    # used alike.
    best, best_score, seen = NONE, np.inf, 0
    for turn in range(2):
        seen = 0
        for replica in range(len(fleet.replicas)):
            if not open_to(fleet, index, replica, gate):
                continue
            number = seen
            seen += 1
            if kind in (RANDOM, TWO):
                is_candidate = turn == 0 and number in (first, second)
            else:
                is_candidate = number >= first if turn == 0 else number < first
            if is_candidate:
                score = _score(fleet, index, replica, rule, fleet.now[0].time, most, least)
                if score < best_score:
                    best, best_score = replica, score
    return best


@compiled
def play(fleet, until_s, rule, rng, ended):  # type: ignore[no-untyped-def]
    """Play under a rule until a time: DONE or FULL."""
    while True:
        index = next_offer(fleet, until_s, ended)
        if index < 0:
            return index
        answer(fleet, index, choose(fleet, index, rule, rng))


def run(fleet: Fleet, until_s: float, rule: Rule, rng: NDArray[np.uint64], parts: list[NDArray[Any]]) -> Fleet:
    """Play until a time, and append the records of completed calls to `parts`."""
    ended, values = np.zeros(fleet.batch.shape[1], np.int64), rule.values()
    while True:
        state = play(fleet, until_s, values, rng, ended)
        parts.append(fleet.records[: fleet.now[0]["records"]].copy())
        fleet.now["records"] = 0
        if state != FULL:
            return fleet
        fleet = grown(fleet)
