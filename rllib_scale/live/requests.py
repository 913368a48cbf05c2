"""Inputs of a router of requests: its settings, the replicas, and the demand of each request."""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from rllib_scale.config.base import Count, Model, NonNegative, Positive
from rllib_scale.config.cluster import MAX_PLACES, Label
from rllib_scale.config.replicas import Replica as LanguageModelReplica
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.live.comparison import STEPS


class Demand(Model):
    """Declared demand of a request."""

    compute_gflop: Positive = 1.0
    memory_gb: NonNegative = 0.0
    places: int = Field(default=1, ge=1, le=MAX_PLACES, description="of its replica's `max_ongoing_requests`")
    labels: tuple[Label, ...] = Field(default=(), description="that its replica must have, all of them")
    moved_gb: NonNegative = Field(default=1.0, description="where it runs on another replica than the call before")
    session: str | None = Field(default=None, description="whose calls follow each other")
    prompt_tokens: Count = Field(default=1, description="of a call of a language model, its context included")
    prefix: str | None = Field(default=None, description="with which prompts of several sessions begin")
    prefix_tokens: int = Field(default=0, ge=0, description="of it")

    @model_validator(mode="after")
    def _prefix_is_a_part(self) -> Demand:
        if (self.prefix is None) != (self.prefix_tokens == 0) or self.prefix_tokens > self.prompt_tokens:
            raise ValueError(
                f"prefix_tokens {self.prefix_tokens}: of prefix {self.prefix!r} and at most prompt_tokens "
                f"{self.prompt_tokens}; valid: both or neither"
            )
        return self


class GuardSettings(Model):
    """The rule that takes over from the scheduler of a router, for good, and when; see `live.guard`."""

    scheduler: str = Field(default="fastest-idle", description="as of the router")
    margin: NonNegative = Field(default=0.1, description="requests may stay longer by this share than with it")
    window: int = Field(default=1000, ge=STEPS, description="requests that arrive, or that end, over which it compares")


class RouterSettings(Model):
    """The `request_router_kwargs` of a deployment."""

    scheduler: str = Field(
        default="sticky", description="a heuristic's name, the folder of an exported policy, or zoo:NAME"
    )
    demand: str | dict[str, Any] | None = Field(
        default=None,
        description="`module:function`, which takes the arguments of a request and returns fields of Demand; or those "
        "fields, the same for all",
    )
    compute_gflops: Positive = Field(default=1.0, description="of a request, where `record_routing_stats` says nothing")
    memory_gb: Positive = Field(default=1e6, description="of a replica, where `record_routing_stats` says nothing")
    slowdown: NonNegative = Field(default=0.0, description="by each other request on a replica")
    bandwidth_gb_s: Positive = Field(default=10.0, description="at which what is elsewhere is moved, or made again")
    scenario: str = Field(default="coding-agents-0.7", description="whose communication and observation hold")
    seed: int = Field(default=0, description="of the scheduler's draws")
    state: Literal["deployment", "handle"] = Field(
        default="deployment", description="one for all handles of the deployment, in an actor, or one per handle"
    )
    fallback_after_s: Positive = Field(
        default=2.0, description="without an answer of that actor for this time, a handle routes by itself"
    )
    replica: LanguageModelReplica | None = Field(
        default=None, description="what each replica is, for rules of `service: replica`"
    )
    active_for_s: NonNegative = Field(
        default=80.0, description="such a rule counts a session to the working set for so long after its last answer"
    )
    guard: Annotated[
        GuardSettings | None,
        BeforeValidator(lambda value: {"scheduler": value} if isinstance(value, str) else value),
    ] = Field(default=None, description="a rule that takes over once requests stay longer than with it")


class Replica(NamedTuple):
    """A server of requests."""

    name: str
    max_concurrent: int
    compute_gflops: float
    memory_gb: float
    labels: tuple[str, ...] | None = ()
    """None: it has not said yet which it has."""
    kv_tokens: int | None = None
    """Memory for contexts of a language model; None: that of `RouterSettings.replica`."""


class _Reported(Model):
    """Keys that `record_routing_stats` may report of a replica, among other keys."""

    compute_gflops: Positive | None = None
    memory_gb: Positive | None = None
    labels: tuple[Label, ...] = ()
    kv_tokens: Count | None = None


def reported_replica(name: str, places: int, stats: Mapping[str, Any], settings: RouterSettings) -> Replica:
    """A replica as it describes itself.

    Args:
        name: of the replica.
        places: its `max_ongoing_requests`.
        stats: its `record_routing_stats`; empty before it has reported any.
        settings: of the router, for what it does not say.

    Raises:
        UserError: an invalid value.
    """
    source = f"record_routing_stats of replica {name}"
    if not isinstance(stats, Mapping):
        raise UserError(f"{source}: {stats!r}; valid: a dict with any of {', '.join(_Reported.model_fields)}")
    known = {key: stats[key] for key in _Reported.model_fields.keys() & stats.keys()}
    found = build_model(_Reported, known, source)
    gflops, memory = found.compute_gflops or settings.compute_gflops, found.memory_gb or settings.memory_gb
    return Replica(name, places, gflops, memory, found.labels if stats else None, found.kv_tokens)


class Call(NamedTuple):
    """A request in a message of a handle."""

    number: int  # its name at that handle
    demand: Demand
    age_s: float  # since it arrived
    replica: str | None = None  # where it runs; None: it waits
    runs_s: float = 0.0  # since it started


class LastCall(NamedTuple):
    """The last answered call of a session."""

    session: str
    replica: str
    silent_s: float  # since the answer
    prompt_tokens: int = 1
    prefix: str | None = None
    prefix_tokens: int = 0


def check_arrival(key: Hashable, since_s: float, known: Container[Hashable]) -> None:
    """See `Routing.arrive`; `known`: requests that wait or run."""
    if key in known or not math.isfinite(since_s):
        wrong = "it waits or runs already" if key in known else f"came at {since_s} s, which is no time"
        raise ValueError(f"request {key!r}: {wrong}")
