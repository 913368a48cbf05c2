"""Settings with which recorded calls of language models become tasks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.workloads.formats.base import Undated
from rllib_scale.workloads.formats.calls import Call

MIN_FITTED_S = 1e-3
"""Shortest fitted duration, also if all constants of the fit are 0."""


class SessionMapping(Model):
    """Options to turn recorded calls into tasks."""

    unit: Literal["turn", "session"] = Field(
        default="turn",
        description="a workflow is one turn of a user, or a whole session with a person's gaps as release delays",
    )
    duration: Literal["fitted", "recorded"] = Field(
        default="fitted", description="seconds on the reference server: from tokens by the fit below, or as recorded"
    )
    base_s: NonNegative = Field(
        default=1.19,
        description="fit: seconds of any call [least squares, calls under 300 s of 710 kv-cache-tester sessions]",
    )
    s_per_1k_new: NonNegative = Field(
        default=0.038, description="fit: seconds per 1000 new input tokens, not in the cache [the same fit]"
    )
    s_per_1k_output: NonNegative = Field(default=15.2, description="fit: seconds per 1000 output tokens [the same fit]")
    s_per_1k_context: NonNegative = Field(
        default=0.0,
        description="fit: seconds per 1000 input tokens, cached or not [the same fit has 0.0144; assumed: left out, as "
        "the context counts by its memory and its transfers]",
    )
    reference_gflops: Positive = Field(
        default=1.0, description="compute_gflop of one second, the speed of the reference server [assumed: 1 unit]"
    )
    weights_gb: NonNegative = Field(
        default=0.0, description="memory of a call besides its cache [assumed: weights belong to the server]"
    )
    kv_mb_per_token: NonNegative = Field(
        default=0.16,
        description="cache per token of context; 0.13 for 8 B parameters with grouped-query attention in 16 bit, 0.33 "
        "for 70 B [assumed: 0.16]",
    )
    max_memory_gb: Positive | None = Field(
        default=None, description="calls that need more are clipped to it, and counted [assumed: no limit]"
    )
    tool_gap_cap_s: NonNegative | None = Field(
        default=None, description="longest gap after a call that asked for a tool [assumed: as recorded]"
    )
    think_gap_cap_s: NonNegative | None = Field(
        default=None, description="longest gap in which a person thinks, in unit session [assumed: as recorded]"
    )
    overlapping_turns: Literal["after", "as-recorded"] = Field(
        default="after",
        description="a turn that began before the previous one of its session had ended: played after it, or when it "
        "began [assumed: a person reads the answer first]",
    )
    clock_tolerance_s: NonNegative = Field(
        default=1.0, description="overlap of two calls that the clocks' resolution explains [kv-cache-tester: whole s]"
    )

    def fitted_s(self, call: Call) -> float:
        """Duration of a call on the reference server, from its tokens [s]."""
        tokens = (
            call.new_tokens * self.s_per_1k_new
            + call.output_tokens * self.s_per_1k_output
            + call.input_tokens * self.s_per_1k_context
        )
        return max(self.base_s + tokens / 1000, MIN_FITTED_S)


class UndatedSessions(Undated, SessionMapping):
    """Options to turn recorded calls without a common clock into tasks."""
