"""What a replica is: the coefficients of its step, its limits, and presets of GPUs with models.

A step takes `step_s + call_s B + context_s C + prefill_s P + attention_s Q` seconds: B calls in the step, C tokens of
context of those that decode, P prefill tokens, and Q the sum over the prefill tokens of the tokens before each. A
request takes `request_s` in addition.

Sources of the presets. [BLIS]: coefficients of github.com/inference-sim/inference-sim (Apache-2.0), "trained physics",
of Llama-3.1-8B: `step_s` and `context_s` of L40S, A100, H100 and 4xH100, `call_s` 4.4 us, `request_s` 16.4 ms.
[FLOPs]: 2 FLOP per active parameter and token at a share of the peak of .45 (H100), .38 (A100), .32 (L40S).
[fit]: `rllib-scale fit-replica` on LLMServingSim's run, docs/replicas.md. The other coefficients are assumed:
`step_s` of another model scales with the bytes of its active weights, `context_s` with the KV bytes of a token,
`prefill_s` with its active parameters, `attention_s` with layers times heads; the KV memory is 90 % of the GPU's less
the weights.
"""

from __future__ import annotations

from types import MappingProxyType

from pydantic import Field

from rllib_scale.config.base import Count, Model, NonNegative, Positive
from rllib_scale.errors import choice_error


class Replica(Model):
    """Coefficients and limits of a replica."""

    step_s: Positive = Field(default=8e-3, description="any step")
    call_s: NonNegative = Field(default=3e-5, description="each call in a step; a fit cannot tell it from the others")
    context_s: NonNegative = Field(default=1.2e-8, description="each token of context of the calls that decode")
    prefill_s: NonNegative = Field(default=1.8e-5, description="each prefill token")
    attention_s: NonNegative = Field(default=4.3e-10, description="each prefill token and token of context before it")
    request_s: NonNegative = Field(default=0.0, description="each request, outside of steps")
    kv_tokens: Count = Field(default=2_237_000, description="tokens that fit into the memory for contexts")
    token_budget: Count = Field(default=8192, description="tokens of a step, those of decoding calls included")
    max_calls: Count = Field(default=256, description="calls that run at a time")
    keep_s: NonNegative = Field(
        default=0.0, description="for so long no call is admitted at the cost of a kept context (as Continuum)"
    )
    gpus: Count = Field(default=1, description="GPUs of a replica")
    sources: str = Field(default="assumed", description="where the coefficients come from")


def _preset(
    gpu: str, model: str, step_ms: float, context_ns: float, prefill_us: float, attention_ps: float, kv: int, text: str
) -> tuple[str, Replica]:
    replica = Replica(
        step_s=step_ms / 1e3,
        call_s=4.4e-6,
        context_s=context_ns / 1e9,
        prefill_s=prefill_us / 1e6,
        attention_s=attention_ps / 1e12,
        request_s=0.0164,
        kv_tokens=kv,
        sources=f"call_s, request_s: [BLIS]; attention_s: assumed (4 FLOP x layers x width at prefill's share of the "
        f"peak); kv_tokens: assumed (90 % of the memory less the weights); {text}",
    )
    return f"{gpu}/{model}", replica


_BLIS = "step_s, context_s: [BLIS]; prefill_s: [FLOPs]"
_SCALED = "step_s, context_s: assumed ([BLIS] of the 8 B model, scaled by bytes); prefill_s: [FLOPs]"
_FIT = "step_s, context_s, prefill_s: [fit]"
_ASSUMED = "step_s, context_s: assumed (the fit of the 8 B model, scaled by bytes); prefill_s: assumed (scaled)"
PRESETS = MappingProxyType(
    dict(
        (
            _preset("l40s", "8b", 23.2, 295, 138, 4500, 197_000, _BLIS),
            _preset("a100", "8b", 10.5, 125, 135, 4400, 428_000, _BLIS),
            _preset("h100", "8b", 6.8, 76, 36, 1180, 428_000, _BLIS),
            _preset("4xh100", "8b", 2.6, 19, 9, 295, 2_070_000, _BLIS),
            _preset("rtxpro6000", "8b", 12.2, 110, 80, 2600, 537_000, _FIT),
            _preset("l40s", "30b-a3b", 9.6, 221, 52, 3400, 138_000, _SCALED + "; weights in 8 bit"),
            _preset("a100", "30b-a3b", 4.3, 94, 51, 3300, 440_000, _SCALED + "; weights in 8 bit"),
            _preset("h100", "30b-a3b", 2.8, 57, 13, 885, 440_000, _SCALED + "; weights in 8 bit"),
            _preset("4xh100", "30b-a3b", 1.1, 14, 3.4, 221, 2_640_000, _SCALED + "; weights in 8 bit"),
            _preset("rtxpro6000", "30b-a3b", 5.0, 82, 30, 1950, 585_000, _ASSUMED + "; weights in 8 bit"),
            _preset("a100", "70b", 92.0, 313, 1180, 22000, 5_000, _SCALED + "; weights in 8 bit"),
            _preset("h100", "70b", 30.0, 190, 157, 5900, 6_000, _SCALED + "; weights in 8 bit, FLOPs in 8 bit"),
            _preset("4xh100", "70b", 22.8, 48, 79, 1475, 450_000, _SCALED),
            _preset("rtxpro6000", "70b", 53.0, 275, 350, 6500, 49_000, _ASSUMED + "; weights in 8 bit"),
        )
    )
)


def preset(name: str) -> Replica:
    """A preset, by `GPU/MODEL`.

    Raises:
        UserError: there is none of that name.
    """
    if name not in PRESETS:
        raise choice_error("replica", name, PRESETS)
    return PRESETS[name]
