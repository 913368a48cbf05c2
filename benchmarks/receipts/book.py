"""The book: published measurements of routers and gates on real engines, each a folder of data.

`setting.yaml` says what was run and how it is played, `predicted.yaml` has the prediction from before the result was
opened, `today.yaml` today's prediction where it differs, and `measured.yaml` the published result. `engines.yaml` has
the facts of each engine and GPU; one rule makes the coefficients of all of them.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BeforeValidator, Field

from rllib_scale.config.base import Count, Model, NonNegative, Positive
from rllib_scale.config.replicas import PRESETS, Replica
from rllib_scale.config.yaml_files import build_model, parse_yaml, read_text
from rllib_scale.files import write_atomic

HERE = Path(__file__).parent
PARTS = ("seen", "half seen", "blind")
ALL = "all"
"""Name of the mean over all loads."""
REQUEST_S = 0.0164
"""Time of a request outside of steps [BLIS]."""
READING = 1.947
"""Time to read the cache over that at the GPU's full bandwidth [BLIS]."""
PEAK_SHARE = 0.45
"""Share of a GPU's peak that a prefill reaches [assumed, as for the presets]."""
BATCH = 32
"""Calls up to which a step of a mixture of experts grows with its calls; it is exact at 1 and at this number."""


class Experts(Model):
    """The experts of a mixture, of which each token needs some in each layer."""

    gb: Positive = Field(description="bytes of all of them")
    number: Count
    active: Count


class Facts(Model):
    """Published facts of an engine on its GPUs, and their source."""

    gpus: Count
    bandwidth_tb_s: Positive = Field(description="of a GPU")
    peak_tflops: Positive = Field(description="of a GPU, in 16 bit")
    dense_gb: Positive = Field(description="weights that every step reads")
    experts: Experts | None = None
    layers: Count
    attention_layers: Count | None = Field(default=None, description="that see the whole context; unset: all")
    width: Count = Field(description="of attention: heads times their size")
    kv_bytes: Count = Field(description="that a step reads for each token of context")
    active_b: Positive = Field(description="active weights [1e9]")
    prefill_tokens_s: Positive | None = Field(default=None, description="published, of one prompt of `prefill_prompt`")
    prefill_prompt: Count = 8192
    kv_tokens: Count
    token_budget: Count = 8192
    max_calls: Count = 256

    def replica(self) -> Replica:
        """Coefficients by the one rule: BLIS for steps; prefill by its published speed, or else by FLOPs."""
        bandwidth, peak = self.gpus * self.bandwidth_tb_s * 1e12, self.gpus * self.peak_tflops * PEAK_SHARE * 1e12
        one, many = (1.363 * self._weights_gb(calls) * 1e9 / bandwidth for calls in (1, BATCH))
        call_s = (many - one) / (BATCH - 1)
        step_s = one - call_s + 32.1e-6 * self.layers + 126e-6
        attention_s = 4 * (self.attention_layers or self.layers) * self.width / peak
        prefill_s = 2 * self.active_b * 1e9 / peak
        if self.prefill_tokens_s is not None:
            prompt = self.prefill_prompt
            rest_s = REQUEST_S + step_s + call_s + attention_s * prompt**2 / 2
            prefill_s = 1 / self.prefill_tokens_s - rest_s / prompt
        return Replica(
            step_s=step_s,
            call_s=call_s + 4.42e-6,
            context_s=READING * self.kv_bytes / bandwidth,
            prefill_s=prefill_s,
            attention_s=attention_s,
            request_s=REQUEST_S,
            kv_tokens=self.kv_tokens,
            token_budget=self.token_budget,
            max_calls=self.max_calls,
            gpus=self.gpus,
        )

    def _weights_gb(self, calls: int) -> float:
        """Bytes that a step of a number of calls reads, whose tokens choose experts at random."""
        if self.experts is None:
            return self.dense_gb
        return self.dense_gb + self.experts.gb * (1 - (1 - self.experts.active / self.experts.number) ** calls)


class Engine(Model):
    """An engine on its GPUs: a preset of the package, or facts."""

    about: str
    preset: str | None = None
    facts: Facts | None = None
    sources: str

    def replica(self) -> Replica:
        """The coefficients."""
        if self.preset is not None:
            return PRESETS[self.preset]
        assert self.facts is not None
        return self.facts.replica()

    def floor(self) -> Replica | None:
        """The coefficients with the cache read at full bandwidth; None for a preset."""
        replica = self.replica()
        return replica.model_copy(update={"context_s": replica.context_s / READING}) if self.facts is not None else None


class Ladder(Model):
    """Single requests with shared prefixes in stages of Poisson arrivals; a stage is drained before the next one."""

    kind: Literal["ladder"]
    groups: Count = Field(description="of prompts with a common prefix")
    prompts: Count = Field(description="of a group; all are shuffled once and sent in turn, over and over")
    prefix_tokens: Count
    question_tokens: Count
    output_tokens: Count
    block_tokens: Count = Field(
        default=100, description="a prompt that was sent before is cached but for its last block"
    )
    stages: list[tuple[Positive, Positive]] = Field(description="requests/s, seconds")
    arrivals: Literal["poisson", "constant"] = "poisson"
    warm_up: int = Field(default=1, ge=0, description="stages that do not count")


class Lengths(Model):
    """A random number, cut to its bounds: normal or lognormal by mean and standard deviation, else uniform."""

    law: Literal["uniform", "normal", "lognormal"] = "uniform"
    mean: Positive | None = None
    sd: Positive | None = None
    least: NonNegative
    most: NonNegative

    def draw(self, rng: random.Random) -> float:
        """One number."""
        if self.law == "uniform":
            return rng.uniform(self.least, self.most)
        assert self.mean is not None
        assert self.sd is not None
        value = rng.gauss(self.mean, self.sd)
        if self.law == "lognormal":
            variance = math.log(1 + (self.sd / self.mean) ** 2)
            value = math.exp(rng.gauss(math.log(self.mean) - variance / 2, math.sqrt(variance)))
        return min(max(value, self.least), self.most)


def _lengths(value: Any) -> Any:
    return {"least": value, "most": value} if isinstance(value, int | float) else value


Amount = Annotated[Lengths, BeforeValidator(_lengths)]
"""A number, or how it is drawn."""


class Conversations(Model):
    """Sessions whose turns send all that came before: each played once, or in a closed loop for a time."""

    kind: Literal["conversations"]
    live: list[Count] = Field(description="sessions of the fleet, the loads")
    begin_within_s: NonNegative = 0.0
    passages: Count = Field(default=1, description="of `shared` tokens; a session begins with one of them")
    shared: int = Field(default=0, ge=0)
    first: Amount = Field(description="further tokens of a first prompt")
    turns: Amount
    new: Amount = Field(description="tokens of a later question")
    output: Amount
    gap_s: Amount = Field(default=Lengths(least=0, most=0), description="between an answer and the next turn")
    sent: Count | None = Field(
        default=None, description="requests of a session; one with fewer turns begins again; unset: its turns"
    )
    block_tokens: Count = 100
    drawn: Count = Field(default=1000, description="conversations of a closed loop")
    warm_up_s: NonNegative = 0.0
    measured_s: Positive | None = Field(default=None, description="unset: each is played once, to the last answer")


class Recorded(Model):
    """Recorded sessions in a closed loop."""

    kind: Literal["recorded"]
    live: list[Count] = Field(description="sessions of the fleet, the loads")
    warm_up_s: Positive
    measured_s: Positive


class PolicyOf(Model):
    """How a measured router or gate is played."""

    rule: str
    set: dict[str, Any] = Field(default={}, description="settings of the problem that are its own")
    about: str = ""


class Cliff(Model):
    """The first load at which a metric of a policy is beyond a limit."""

    policy: str
    metric: str
    beyond: Literal["above", "below"]
    limit: Positive


class Setting(Model):
    """The setting of a measurement, and how it is played."""

    title: str
    part: Literal["seen", "half seen", "blind"]
    source: str
    rebuilt: str = Field(description="what is not published, and what is taken for it")
    engine: str
    pods: Count
    workload: Annotated[Ladder | Conversations | Recorded, Field(discriminator="kind")]
    service: dict[str, Any] = Field(default={}, description="further settings of `service`")
    policies: dict[str, PolicyOf] = Field(description="the first one is what the others are compared with")
    compare: list[str] = Field(description="metrics; the first one counts as the receipt's size")
    headline: str = Field(default=ALL, description="load at which it counts")
    cliff: Cliff | None = None
    seeds: Count = 3
    again: str = Field(default="", description="when and why a seen receipt was predicted again")

    @property
    def baseline(self) -> str:
        """The baseline of comparisons."""
        return next(iter(self.policies))

    @property
    def metrics(self) -> list[str]:
        """All that are predicted."""
        cliff = [] if self.cliff is None or self.cliff.metric in self.compare else [self.cliff.metric]
        return [*self.compare, *cliff]

    @property
    def loads(self) -> list[str]:
        """Names of the loads."""
        if isinstance(self.workload, Ladder):
            return [f"{rate:g}" for rate, _ in self.workload.stages[self.workload.warm_up :]] + [ALL]
        return [str(live) for live in self.workload.live] + [ALL]

    def tiny(self) -> Setting:
        """The same in a moment: one seed, few loads, few sessions."""
        work = self.workload
        if isinstance(work, Ladder):
            warm_up = min(work.warm_up, 1)
            stages = [(rate, min(2.0, 20 / rate)) for rate, _ in work.stages[: warm_up + 1]]
            work = work.model_copy(update={"stages": stages, "warm_up": warm_up})
        else:
            work = work.model_copy(update={"live": [2]})
            if work.measured_s is not None:
                work = work.model_copy(update={"warm_up_s": 60.0, "measured_s": 240.0})
        return self.model_copy(update={"workload": work, "seeds": 1})


Values = dict[str, dict[str, dict[Annotated[str, BeforeValidator(str)], float]]]
"""Policy -> metric -> load -> value."""


class Predicted(Model):
    """Prediction of the simulator: means over seeds, and half the spread between the least and the largest.

    `floor`: of the first seed, with the cache read at the GPU's full bandwidth; where coefficients follow from facts.
    """

    values: Values
    spread: Values
    floor: Values = Field(default={})


class Measured(Model):
    """The published result."""

    source: str
    values: Values = Field(default={})
    gains: Values = Field(default={}, description="as published, where values are not: times the baseline's")
    causes: list[str] = Field(default=[], description="likely causes of what the simulator missed")


M = TypeVar("M", bound=Model)


class Receipt:
    """One folder of the book."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        setting = _read(Setting, folder / "setting.yaml")
        assert setting is not None
        self.setting = setting
        self.predicted = _read(Predicted, folder / "predicted.yaml")
        self.today = _read(Predicted, folder / "today.yaml")
        self.measured = _read(Measured, folder / "measured.yaml")

    def write(self, name: str, found: Predicted) -> None:
        """Write a play to a file of the folder, `predicted` or `today`."""
        text = yaml.safe_dump(found.model_dump(mode="json"), sort_keys=False, width=1000, default_flow_style=None)
        write_atomic(self.folder / f"{name}.yaml", lambda path: path.write_text(text, encoding="utf-8"))


def distances(known: Predicted, other: Predicted) -> list[float]:
    """|ln| of each value of another play over the known one."""
    return [
        abs(math.log(of[policy][metric][load] / value)) if of[policy][metric][load] > 0 else math.inf
        for values, of in ((known.values, other.values), (known.floor, other.floor))
        for policy, by_metric in values.items()
        for metric, by_load in by_metric.items()
        for load, value in by_load.items()
        if value > 0
    ]


def _read(model: type[M], path: Path) -> M | None:
    if not path.exists():
        return None
    return build_model(model, parse_yaml(read_text(path), str(path)), str(path))


def receipts() -> list[Receipt]:
    """All of the book, by part and name."""
    found = [Receipt(path.parent) for path in sorted(HERE.glob("*/setting.yaml"))]
    return sorted(found, key=lambda receipt: (PARTS.index(receipt.setting.part), receipt.name))


def engines() -> dict[str, Engine]:
    """All engines by name."""
    path = HERE / "engines.yaml"
    data = parse_yaml(read_text(path), str(path))
    return {name: build_model(Engine, facts, str(path), name) for name, facts in data.items()}
