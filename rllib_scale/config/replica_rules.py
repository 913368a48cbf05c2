"""Rules in front of replicas of a language model, by name, with their parameters.

`rllib_scale.schedulers.replicas` makes them, compiled code of `rllib_scale.simulator.replicas` has them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rllib_scale.config.base import Count, NonNegative, Positive
from rllib_scale.config.rules import HeuristicSpec, NoParameters
from rllib_scale.errors import UserError, offered


class GateParameters(NoParameters):
    """Parameters of the rules for replicas."""

    gate: NonNegative = Field(
        default=0.0,
        description="calls are held while active agents would take more than this share of a replica's memory; 0: "
        "none is held",
    )
    order: NonNegative = Field(
        default=0.0,
        description="first of the held calls: most minutes waited less this multiple of the prefill that it needs "
        "[100,000 tokens]; 0: first come, first served; recommended: 3",
    )
    head_after_s: Positive | None = Field(
        default=None, description="a call that was held longer goes to the head of the line; unset: none does"
    )
    offers: Count = Field(default=4, description="held calls that are offered again at an event")
    active_for_s: Positive | None = Field(
        default=None,
        description="an agent is active, and its context counts, for so long after its last answer; unset: as long as "
        "`service.active_for_s`, or that of the router, says",
    )


class BoundedAffinityParameters(GateParameters):
    """Parameters of `bounded-affinity`."""

    bound: Annotated[float, Field(ge=1)] = Field(
        default=1.25, description="the session's replica is preferred up to this multiple of the mean load"
    )


class ScoresParameters(GateParameters):
    """Parameters of `weighted-scores`: the weights of llm-d's scorers, by default those of its guides."""

    prefix_cache: NonNegative = Field(default=3.0, description="prefix-cache-scorer: share of the prompt in the cache")
    queue: NonNegative = Field(
        default=2.0, description="queue-scorer: few waiting calls, from most (0) to least (1); 1 while they are alike"
    )
    kv_cache_utilization: NonNegative = Field(
        default=2.0, description="kv-cache-utilization-scorer: share of the memory that running calls leave"
    )
    running_requests: NonNegative = Field(
        default=0.0, description="running-requests-size-scorer: few running calls, as queue"
    )


class PrefixCacheAffinityParameters(GateParameters):
    """Parameters of `prefix-cache-affinity`: llm-d's filter of that name, and its token-load-scorer."""

    affinity_threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.8, description="replicas that have this share of the prompt in their cache are kept; 0: all are"
    )
    max_ttft_penalty_ms: NonNegative = Field(
        default=18_000.0,
        description="all are kept where the best of those would answer so much later than the best other one; 0: never",
    )
    peak_prefill_throughput: Positive = Field(
        default=15_928.0, description="a replica answers after its tokens in flight over this [tokens/s]"
    )
    token_load: NonNegative = Field(default=1.0, description="weight of token-load-scorer: few tokens in flight")
    queue_threshold_tokens: Positive = Field(default=4_194_304.0, description="tokens in flight of a full replica")


class CacheAwareParameters(GateParameters):
    """Parameters of `cache-aware`, with the defaults of SGLang's gateway; vLLM's router has .3, 64 and 1.5."""

    cache_threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.5, description="the best match is taken if it is more than this share of the prompt"
    )
    balance_abs_threshold: NonNegative = Field(
        default=32.0, description="loads are unbalanced if most - least calls are more than this, and"
    )
    balance_rel_threshold: NonNegative = Field(default=1.1, description="most more than this multiple of least")


class BoundedHashingParameters(GateParameters):
    """Parameters of `bounded-consistent-hashing`."""

    max_load_skew: Annotated[float, Field(ge=1)] = Field(
        default=1.5, description="replicas with more than this multiple of the mean number of calls are passed over"
    )


class DynamoParameters(GateParameters):
    """Parameters of `dynamo-kv`: those of Dynamo's KV router, with its defaults."""

    overlap_score_weight: NonNegative = Field(
        default=1.0, description="weight of the prefill blocks beside the decode blocks"
    )
    router_temperature: NonNegative = Field(
        default=0.0, description="of a softmax of the costs, which are divided by their range; 0: the least"
    )
    kv_cache_block_size: Count = Field(default=16, description="tokens of a block")


class MarginalPriceParameters(GateParameters):
    """Parameters of `marginal-price`."""

    answer: NonNegative = Field(
        default=300.0, description="length of an answer where service.lengths is hidden [tokens]"
    )
    overflow: NonNegative = Field(
        default=1.0, description="how often active contexts beyond the memory are computed again"
    )


class ThunderAgentParameters(NoParameters):
    """Parameters of `thunder-agent`: those of ThunderAgent, with its defaults."""

    scheduler_interval: Positive = Field(default=5.0, description="so often programs resume and are paused [s]")
    acting_token_weight: NonNegative = Field(default=1.0, description="weight of the tokens of acting programs")
    use_acting_token_decay: bool = Field(
        default=False, description="tokens of acting programs halve each second, where programs resume"
    )
    buffer_per_program: Annotated[int, Field(ge=0)] = Field(
        default=100, description="tokens that a program takes beside its own"
    )
    resume_timeout: Positive = Field(default=1800.0, description="a call that waits so long resumes its program [s]")
    characters_per_token: Positive = Field(
        default=5.0, description="of the prompts; until the first answer it takes one token for each 5 characters"
    )


_FIRST_TOKENS = "which calls on a replica have their first token"
FLEET_RULES = {
    "random-replica": HeuristicSpec(GateParameters),
    "least-outstanding": HeuristicSpec(GateParameters),
    "two-choices": HeuristicSpec(GateParameters),
    "session-affinity": HeuristicSpec(GateParameters),
    "bounded-affinity": HeuristicSpec(BoundedAffinityParameters),
    "lmetric": HeuristicSpec(GateParameters),
    "weighted-scores": HeuristicSpec(ScoresParameters),
    "prefix-cache-affinity": HeuristicSpec(PrefixCacheAffinityParameters, reads=_FIRST_TOKENS),
    "round-robin-replica": HeuristicSpec(GateParameters),
    "cache-aware": HeuristicSpec(CacheAwareParameters),
    "bounded-consistent-hashing": HeuristicSpec(BoundedHashingParameters),
    "dynamo-kv": HeuristicSpec(DynamoParameters, reads=_FIRST_TOKENS),
    "thunder-agent": HeuristicSpec(ThunderAgentParameters, by_request=False),
    "marginal-price": HeuristicSpec(
        MarginalPriceParameters, reads="how many calls decode on a replica, their contexts, and what waits for prefill"
    ),
}
"""Rules for `service: replica`, which decide call by call."""


def check_router_knows(name: str, where: str = "") -> None:
    """Refuse a rule that reads what a router cannot know; `where` it was asked for.

    Raises:
        UserError: with what it reads, and the rules that read no such thing.
    """
    if FLEET_RULES[name].no_router:
        valid = offered(rule for rule, its in FLEET_RULES.items() if not its.no_router)
        raise UserError(f"{where}{name}: {FLEET_RULES[name].no_router}; valid: {valid}")
