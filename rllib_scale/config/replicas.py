"""Service by replicas of a language model: what a replica is, its presets, and the sessions whose calls it serves.

A step takes `call_s B + M + F - overlap min(M, F)` seconds for B calls: `M = step_s + context_s C` to read the weights
and C tokens of context of the calls that decode, and `F = prefill_s P + attention_s Q` to compute P prefill tokens,
where Q is the sum over them of the tokens before each. A request takes `request_s` in addition.

Sources of the presets:

- [BLIS] github.com/inference-sim/inference-sim (Apache-2.0), "trained physics": `step_s` and `context_s` of
  Llama-3.1-8B on L40S, A100, H100 and 4xH100, `call_s`, `request_s`.
- [FIT] `rllib-scale fit-replica` on LLMServingSim's run (MIT) of Llama-3.1-8B on an RTX PRO 6000: docs/replicas.md.
- [POD] a pod of two H100 (github.com/zetxqx/thunderagent-original-verification): serial prefills of 28 to 33 us a token
  at 58,000 to 66,000 tokens, 61 to 64 us at 165,000 to 176,000; steps of 7.8 ms with 2.5 calls and of 20.4 ms with 10,
  whose contexts are taken as 227,000 and 783,000 tokens together: `step_s` and `context_s` solve the two.
- [FLOP] FLOPs over the GPU's peak in 16 bit, of which prefill reaches a share: 2 FLOP per active weight and token, and
  4 x layers x width for each pair of tokens; the shares are .45 (H100), .38 (A100), .32 (L40S), and
  .76 (RTX PRO 6000) by [FIT].

The rest is assumed. Another model than the 8 B scales `step_s` with the bytes of its weights, as batches read those of
all experts, and `context_s` with the KV bytes of a token. Contexts have 90 % of the memory less the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag, model_validator

from rllib_scale.config.base import Count, Model, NonNegative, Positive
from rllib_scale.config.paths import Refers
from rllib_scale.config.pinned import check_unchanged, split
from rllib_scale.config.workload import ServicePart, SplitConfig
from rllib_scale.errors import UserError, choice_error

GPU_NAMES, MODEL_NAMES = ("l40s", "a100", "h100", "4xh100", "rtxpro6000"), ("8b", "30b-a3b", "70b")


class Replica(Model):
    """Coefficients and limits of a replica. The defaults are the pod of two H100 with Qwen3-Coder-30B-A3B in 8 bit.

    In YAML also the name of a preset, `h100/8b`, or a file of `rllib-scale fit-replica`, for their coefficients.
    """

    texts: ClassVar = (*(f"{gpu}/{model}" for gpu in GPU_NAMES for model in MODEL_NAMES), "2xh100/30b-a3b")

    step_s: Positive = Field(default=2.67e-3, description="any step")
    call_s: NonNegative = Field(default=3e-5, description="each call in a step")
    context_s: NonNegative = Field(default=2.225e-8, description="each token of context of the calls that decode")
    prefill_s: NonNegative = Field(default=1.22e-5, description="each prefill token")
    attention_s: NonNegative = Field(default=5.9e-10, description="each prefill token and token before it")
    request_s: NonNegative = Field(default=0.0, description="each request, outside of steps")
    overlap: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="share of the shorter of reading memory and prefilling that is done beside the longer"
    )
    kv_tokens: Count = Field(default=2_237_000, description="tokens that fit into the memory for contexts")
    token_budget: Count = Field(default=8192, description="tokens of a step, those of decoding calls included")
    max_calls: Count = Field(default=256, description="calls that run at a time")
    keep_s: NonNegative = Field(
        default=0.0, description="for so long no call is admitted at the cost of a kept context (as Continuum)"
    )
    gpus: Count = Field(default=1, description="GPUs of a replica")
    sources: str = Field(default="assumed", description="where the coefficients come from")

    @classmethod
    def written_out(cls, value: Any) -> Any:
        """The coefficients of a preset."""
        if isinstance(value, str):
            if value not in PRESETS:
                raise ValueError(str(choice_error("replica", value, PRESETS)))
            return PRESETS[value].model_dump(mode="json", exclude={"sources"})
        return value


class _GPU(NamedTuple):
    """A GPU server: memory [GB], bandwidth [TB/s], peak [TFLOP/s], share of it; step [ms], context [ns], of 8 B."""

    memory: float
    bandwidth: float
    peak: float
    share: float
    step: float
    context: float
    gpus: int
    of_8b: str


class _LLM(NamedTuple):
    """Weights and active weights [1e9], bytes of a weight, layers, width of attention, KV bytes of a token."""

    weights: float
    active: float
    size: float
    layers: int
    width: int
    kv: int


_8B = _LLM(8.03, 8.03, 2, 32, 4096, 131_072)
MODELS = MappingProxyType(
    {"8b": _8B, "30b-a3b": _LLM(30.5, 3.3, 1, 48, 4096, 98_304), "70b": _LLM(70.6, 70.6, 0.5, 80, 8192, 327_680)}
)
"""Llama-3.1-8B in 16 bit, Qwen3-30B-A3B in 8 bit, Llama-3.1-70B in 4 bit [assumed: the precision]."""
GPUS = MappingProxyType(
    {
        "l40s": _GPU(48, 0.864, 362, 0.32, 23.2, 295, 1, "[BLIS]"),
        "a100": _GPU(80, 2.039, 312, 0.38, 10.5, 125, 1, "[BLIS]"),
        "h100": _GPU(80, 3.35, 989, 0.45, 6.8, 76, 1, "[BLIS]"),
        "4xh100": _GPU(320, 13.4, 3956, 0.45, 2.6, 19, 4, "[BLIS]"),
        "rtxpro6000": _GPU(96, 1.792, 504, 0.76, 13.3, 102, 1, "[FIT]"),
    }
)


def least_context_s(gpu: str | None, kv_bytes: int | None) -> float:
    """Time in which a GPU reads the cache of a token at its full bandwidth [s]; 0 if neither is given.

    Raises:
        UserError: an unknown GPU, or one is given without the other.
    """
    if gpu is None and kv_bytes is None:
        return 0.0
    if gpu is None or kv_bytes is None or kv_bytes < 1:
        raise UserError(f"--gpu {gpu}, --kv-bytes {kv_bytes}: a floor of context_s needs both, bytes of at least 1")
    if gpu not in GPUS:
        raise choice_error("--gpu", gpu, GPUS)
    return kv_bytes / (GPUS[gpu].bandwidth * 1e12)


def _preset(gpu: _GPU, llm: _LLM) -> Replica:
    bytes_gb, reached = llm.weights * llm.size, gpu.peak * gpu.share * 1e12
    scaled = gpu.of_8b if llm is _8B else f"{gpu.of_8b}, scaled by bytes (assumed)"
    return Replica(
        step_s=gpu.step * bytes_gb / (_8B.weights * _8B.size) / 1e3,
        call_s=4.4e-6,
        context_s=gpu.context * llm.kv / _8B.kv / 1e9,
        prefill_s=2 * llm.active * 1e9 / reached,
        attention_s=4 * llm.layers * llm.width / reached,
        request_s=0.0164,
        kv_tokens=int((0.9 * gpu.memory - bytes_gb) * 1e9 / llm.kv),
        gpus=gpu.gpus,
        sources=f"step_s, context_s: {scaled}; call_s, request_s: [BLIS]; prefill_s, attention_s: [FLOP]; "
        "kv_tokens, token_budget, max_calls: assumed",
    )


PRESETS = MappingProxyType(
    {f"{gpu}/{llm}": _preset(of_gpu, of_llm) for gpu, of_gpu in GPUS.items() for llm, of_llm in MODELS.items()}
    | {
        "2xh100/30b-a3b": Replica(
            gpus=2,
            sources="step_s, context_s, prefill_s, attention_s: [POD]; kv_tokens: as measured there; call_s, "
            "token_budget, max_calls: assumed",
        )
    }
)


class FleetSessions(Model):
    """Live sessions of a fleet, at any number of replicas."""

    total: Count = Field(description="live sessions of all replicas together")


Sessions = Annotated[
    Annotated[Count, Tag("number")] | Annotated[FleetSessions, Tag("total")],
    Discriminator(lambda value: "total" if isinstance(value, Mapping | FleetSessions) else "number"),
]


class ServiceConfig(Model):
    """Service model: servers of fixed speed, or LLM replicas. In YAML also `service: replica`.

    `fixed`: a task has a place and takes a time that is known when it starts. `replica`: servers are replicas of a
    language model that batch the calls of agents' sessions and keep their contexts, see docs/replicas.md; the other
    settings here are for it.
    """

    text_key: ClassVar = "name"

    name: Literal["fixed", "replica"] = "fixed"
    trace: Annotated[str, Refers("file")] | None = Field(
        default=None, description="recorded sessions; unset: drawn ones"
    )
    format: Literal["kv-cache-tester", "copilot", "tracelab", "mooncake", "dynamo", "otel", "scaffolding"] = Field(
        default="kv-cache-tester", description="of the trace"
    )
    block_size: Count | None = Field(default=None, description="mooncake: tokens of a block of hash_ids; unset: 512")
    split: SplitConfig = SplitConfig()
    part: ServicePart | None = Field(
        default=None,
        description="sessions to play; unset: all, but in a training train, and test in a sweep that trains on the "
        "trace or plays a policy that was trained on it. Train is divided, a quarter for validation, where a training "
        "chooses its best policy by whole episodes: fitting, validation",
    )
    sessions: Sessions = Field(
        default=16, description="live sessions in a closed loop: per replica, or {total: N} of the fleet"
    )
    start: Literal["anywhere", "first"] = Field(
        default="anywhere",
        description="where the first sessions of a closed loop begin: anywhere in their course, as if they had run for "
        "long, or at their first call, where all later ones and those of an open loop begin",
    )
    arrivals_per_s: Positive | Literal["recorded"] | None = Field(
        default=None,
        description="sessions per second and replica, in an open loop, or recorded: each once, when it began in the "
        "trace; unset: a closed loop",
    )
    warm_up_s: NonNegative = Field(default=1800.0, description="first part of an episode, which no metric counts")
    spread_s: NonNegative = Field(default=300.0, description="the first sessions of a closed loop begin in this time")
    tool_gap_cap_s: NonNegative = Field(default=600.0, description="longest gap after a call that asked for a tool")
    think_gap_cap_s: NonNegative = Field(default=120.0, description="longest gap in which a person thinks")
    lengths: Literal["hidden", "estimated", "known"] = Field(
        default="hidden", description="what is known of an answer's length when its call is asked"
    )
    length_error: NonNegative = Field(
        default=0.5, description="estimated: standard deviation of ln(estimated / real length), drawn once per call"
    )
    active_for_s: NonNegative = Field(
        default=80.0, description="an agent is active, and its context counts, for so long after its last answer"
    )
    ends: Literal["hidden", "told"] = Field(
        default="hidden", description="told: the agents of a session are no longer active when it has ended"
    )
    slo_ttft_s: Positive = Field(default=5.0, description="objective of the time to the first token")
    slo_tpot_s: Positive = Field(default=0.1, description="objective of the time per output token after the first")

    @model_validator(mode="after")
    def _block_size_of_mooncake(self) -> ServiceConfig:
        if self.block_size is not None and self.format != "mooncake":
            raise ValueError(f"block_size {self.block_size}: not with format {self.format}; valid: with mooncake")
        return self

    @model_validator(mode="after")
    def _starts_in_a_closed_loop(self) -> ServiceConfig:
        if self.start == "first" and self.arrivals_per_s is not None:
            raise ValueError("start first: with arrivals_per_s every session begins at its first call; leave it out")
        return self

    def live(self, replicas: int) -> int:
        """Live sessions of a fleet in a closed loop."""
        return self.sessions.total if isinstance(self.sessions, FleetSessions) else self.sessions * replicas

    @property
    def path(self) -> Path | None:
        """The checked path of the recorded sessions.

        Raises:
            UserError: the file is missing or has changed.
        """
        if self.trace is None:
            return None
        place, content = split(self.trace)
        return check_unchanged(Path(place), content, "service.trace")
