"""Schedulers by name: rules with their parameters, user-defined schedulers, exported policies.

`rllib_scale.schedulers.rules` defines the rules in this order. `rllib_scale.loading.resolve` finds user-defined
schedulers and policies; `rllib_scale.policies.make.make_policy` makes any scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rllib_scale import plugins, zoo
from rllib_scale.config.base import Finite, NonNegative, Positive
from rllib_scale.config.pinned import DIGEST_SEPARATOR, check_unchanged
from rllib_scale.config.problem import EnvConfig, InformationConfig, NamedOrder
from rllib_scale.config.replica_rules import FLEET_RULES
from rllib_scale.config.rules import HeuristicSpec
from rllib_scale.config.rules import NoParameters as NoParameters
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError, offered


def _split(value: Any) -> Any:
    return value.split("/") if isinstance(value, str) else value


Scarce = Annotated[float, Field(ge=0, le=4)]
"""Power of a share of the capacity by which a key in the order of tasks is divided."""


class OrderParameters(NoParameters):
    """Parameters of rules that visit the waiting tasks in a named order."""

    order: NamedOrder = Field(default="longest-hop", description="order in which the waiting tasks are visited")


class ReserveParameters(OrderParameters):
    """Parameters of `reserve`."""

    waiting: Positive = Field(
        default=1.5,
        description="a task waits if its earliest finish is by this factor below that on the best idle server",
    )


class FinishParameters(NoParameters):
    """Parameters of rules that weigh waiting against transfer and execution."""

    waiting: NonNegative = Field(default=1.0, description="weight of a second of waiting")


class AffinityParameters(NoParameters):
    """Parameters of `prefix-affinity`."""

    imbalance: Annotated[float, Field(ge=0)] = Field(
        default=0.5,
        description="the holder of the prefix is preferred up to this difference between two servers' shares of busy "
        "places; inf, Ray Serve's default: always",
    )


class HungarianParameters(NoParameters):
    """Parameters of `hungarian`."""

    alpha: Finite = Field(default=1.0, description="a task's cost counts descendants^alpha times, itself included")
    kappa: NonNegative = Field(default=2.0, description="weight of a second of waiting")


class PriceParameters(NoParameters):
    """Parameters of `price`: n descendants and itself; c GFLOP; p seconds on a server; w seconds until it is free."""

    a: Finite = Field(default=4.4, description="visited first: the largest n^a (c/10)^b + age (s since arrival)/10")
    b: Finite = Field(default=-0.9, description="see a")
    age: Finite = Field(default=0.035, description="see a")
    alpha: Finite = Field(default=2.0, description="to the server of least n^alpha (kappa w + p) + price p + penalty")
    kappa: NonNegative = Field(default=2.8, description="weight of a second of waiting")
    prices: Annotated[tuple[NonNegative, ...], BeforeValidator(_split)] = Field(
        default=(0.8, 6.6),
        description="price of a second on each class of speed but the slowest, by speed, as 0.8/6.6; the last one "
        "holds for all faster classes",
    )
    penalty: NonNegative = Field(default=2.9, description="penalty of a server that has to be waited for")


class DualPriceParameters(NoParameters):
    """Parameters of `dual-price`."""

    load: Positive | None = Field(default=None, description="offered load of the prices; unset: that of the problem")
    discount: NonNegative = Field(default=0.8, description="prices are this multiple of the duals")
    kappa: NonNegative = Field(default=2.0, description="weight of a second of waiting")
    penalty: NonNegative = Field(
        default=0.6,
        description="penalty of a server that has to be waited for, in executions of a mean task on a mean server",
    )


class AdaptivePriceParameters(NoParameters):
    """Parameters of `adaptive-price`."""

    strength: Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.5,
        description="weight of the searched map, which was searched at 1; 0: no map",
    )
    tail: Annotated[float, Field(ge=0, le=10)] = Field(
        default=1.0,
        description="weight of a workflow's age in the order of tasks; lower: a lower mean response, and a higher 95th "
        "percentile of job completion times",
    )
    scarce: Scarce = Field(
        default=0.0,
        description="power of the share of capacity that a task fits, by which its key in the order is divided: "
        "what few servers can run is placed first",
    )


RULES = {
    "random-feasible": HeuristicSpec(),
    "round-robin": HeuristicSpec(),
    "fastest-idle": HeuristicSpec(),
    "earliest-finish": HeuristicSpec(),
    "large-only": HeuristicSpec(),
    "best-fit-memory": HeuristicSpec(),
    "earliest-finish-transfer": HeuristicSpec(FinishParameters),
    "sticky": HeuristicSpec(FinishParameters),
    "power-of-two": HeuristicSpec(),
    "least-loaded": HeuristicSpec(),
    "prefix-affinity": HeuristicSpec(AffinityParameters),
}
"""Rules that decide for one task at a time, by the problem's `decision`."""
DISPATCHERS = {
    "heft": HeuristicSpec(sees="workflows", plans=True),
    "cpop": HeuristicSpec(sees="workflows", plans=True),
    "min-min": HeuristicSpec(by_request=False),
    "max-min": HeuristicSpec(by_request=False),
    "non-blocking": HeuristicSpec(OrderParameters),
    "reserve": HeuristicSpec(ReserveParameters),
    "hungarian": HeuristicSpec(HungarianParameters, by_request=False),
    "price": HeuristicSpec(PriceParameters),
    "dual-price": HeuristicSpec(DualPriceParameters, knows="the workload's distribution and load"),
    "adaptive-price": HeuristicSpec(AdaptivePriceParameters, sees="workflows"),
}
"""Rules that decide at each event for all waiting tasks."""
HEURISTICS = RULES | DISPATCHERS
ALL_RULES = HEURISTICS | FLEET_RULES


@dataclass(frozen=True)
class RuleSpec:
    """A rule of this package: `NAME` or `NAME:key=value,...`."""

    name: str
    parameters: NoParameters

    def __str__(self) -> str:
        return _written(self.name, self.parameters)

    @property
    def label(self) -> str:
        """Its name in tables."""
        return str(self)


@dataclass(frozen=True)
class PluginSpec:
    """A user-defined scheduler.

    Attributes:
        name: import path, `package.module:Name`, or entry point. `rllib_scale.loading.resolve` reads a word that names
            a folder with a policy as that policy.
        arguments: `key=value,...`, which the class checks.
        source: digest of its source; empty before it is resolved.
    """

    name: str
    arguments: str | None = None
    source: str = ""

    def __str__(self) -> str:
        return self.label + (plugins.SOURCE_SEPARATOR + self.source if self.source else "")

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.name if self.arguments is None else f"{self.name}:{self.arguments}"


@dataclass(frozen=True)
class PolicySpec:
    """An exported policy: `zoo:NAME`, or a folder, whose path has a slash.

    Attributes:
        location: as written; once resolved `zoo:NAME`, or the absolute path of its policy.json.
        content: digest of policy.json, which holds the digest of the weights; empty before it is resolved.
    """

    location: str
    content: str = ""

    def __str__(self) -> str:
        return self.location + (DIGEST_SEPARATOR + self.content if self.content else "")

    @property
    def label(self) -> str:
        """Its name in tables: `zoo:NAME`, or the name of the folder."""
        if zoo.is_named(self.location):
            return self.location
        path = Path(self.location)
        return path.parent.name if path.suffix == ".json" else path.name

    def folder(self, key: str) -> Path:
        """Its folder; `key` is its key in the config.

        Raises:
            UserError: the policy is missing or has changed since it was resolved.
        """
        path = zoo.folder_of(self.location) if zoo.is_named(self.location) else Path(self.location)
        path = path if path.suffix == ".json" else path / "policy.json"
        return check_unchanged(path, self.content, key).parent if self.content else path.parent


SchedulerSpec = RuleSpec | PluginSpec | PolicySpec


@lru_cache(maxsize=1024)
def parse_scheduler(text: str) -> SchedulerSpec:
    """The scheduler that a text names, pinned or not. No other code splits such a text. It opens no file.

    >>> str(parse_scheduler("reserve:waiting=2.0,order=longest-hop"))
    'reserve:waiting=2'
    >>> parse_scheduler("my_package.rules:Greedy:waiting=2")
    PluginSpec(name='my_package.rules:Greedy', arguments='waiting=2', source='')
    >>> parse_scheduler("zoo:scale"), parse_scheduler("out/scale")
    (PolicySpec(location='zoo:scale', content=''), PolicySpec(location='out/scale', content=''))

    Raises:
        UserError: a rule has no such parameter, or the value is not valid.
    """
    first, _, rest = text.partition(":")
    if zoo.is_named(text) or "/" in first:
        location, _, content = text.partition(DIGEST_SEPARATOR)
        return PolicySpec(location, content)
    if (known := ALL_RULES.get(first)) is not None:
        given = rest if ":" in text else None
        return RuleSpec(first, parse_parameters(known.parameters, given, text))
    label, _, source = text.partition(plugins.SOURCE_SEPARATOR)
    word, *more = label.split(":")
    if more and plugins.is_import_path(f"{word}:{more[0]}"):
        word, more = f"{word}:{more[0]}", more[1:]
    return PluginSpec(word, ":".join(more) if more else None, source)


def parse_parameters(model: type[NoParameters], text: str | None, scheduler: str) -> NoParameters:
    """Parameters from `key=value,...`; None: the defaults.

    Raises:
        UserError: there is no such parameter, or the value is not valid.
    """
    if text is not None and not model.model_fields:
        raise UserError(f"scheduler {scheduler!r}: {scheduler.partition(':' + text)[0]} has no parameters")
    given: dict[str, str] = {}
    for part in text.split(",") if text is not None else ():
        key, _, value = part.partition("=")
        if not value or key in given:
            valid = ", ".join(model.model_fields)
            raise UserError(f"scheduler {scheduler!r}: {part!r} must be key=value, each key once; keys: {valid}")
        given[key] = value
    return build_model(model, given, f"scheduler {scheduler!r}")


def _written(name: str, parameters: NoParameters) -> str:
    """The canonical text: parameters in their order without defaults."""
    default = type(parameters)()
    changed = [key for key in type(parameters).model_fields if getattr(parameters, key) != getattr(default, key)]
    values = ",".join(f"{key}={plain(getattr(parameters, key))}" for key in changed)
    return f"{name}:{values}" if values else name


def with_arguments(spec: PluginSpec, takes: type[NoParameters]) -> PluginSpec:
    """The spec with its arguments in canonical form.

    Raises:
        UserError: see `parse_parameters`.
    """
    written = _written(spec.name, parse_parameters(takes, spec.arguments, spec.label))
    return replace(spec, arguments=written.removeprefix(spec.name)[1:] or None)


def check_service(spec: SchedulerSpec, env: EnvConfig) -> None:
    """Refuse a rule for a problem whose service it does not know.

    Raises:
        UserError: naming those that do.
    """
    if isinstance(spec, RuleSpec) and (spec.name in FLEET_RULES) != env.on_replicas:
        valid = offered(FLEET_RULES if env.on_replicas else HEURISTICS)
        raise UserError(f"{spec.name}: decides on service {_SERVICES[not env.on_replicas]}; valid here: {valid}")


_SERVICES = ("fixed", "replica")


def check_planned(name: str, env: EnvConfig) -> None:
    """Refuse a problem for a planner: it plans whole workflows, on servers that stay, one task on each.

    Raises:
        UserError: with the setting that is in the way.
    """
    for setting, is_set, valid in (
        ("information.workflows", env.information.workflows == "revealed", "whole"),
        ("cluster.changes", not env.cluster.changes.none, "none"),
        ("cluster.tiers.max_concurrent", any(tier.max_concurrent > 1 for tier in env.cluster.tiers), "1"),
    ):
        if is_set:
            raise UserError(f"{name} plans workflows as a whole: {setting} is set; valid for it: {valid}")


def plain(value: Any) -> str:
    """The text of a parameter's value in a scheduler's name."""
    if isinstance(value, tuple):
        return "/".join(map(plain, value))
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def observability(sees: str, told: InformationConfig) -> str:
    """Observability of a scheduler in a problem: whole workflows as in `told.label`, or the waiting tasks only.

    Args:
        sees: as in `HeuristicSpec`.
        told: observability of the problem.

    >>> observability("workflows", InformationConfig()), observability("tasks", InformationConfig(estimate_error=0.5))
    ('clairvoyant', 'waiting tasks, estimates')
    """
    if sees == "workflows":
        return told.label
    return "waiting tasks" if told.label == "clairvoyant" else f"waiting tasks, {told.label}"
