"""Decision rules that a config may name, with their parameters, and what each is told: `NAME` or `NAME:key=value,...`.

`rllib_scale.schedulers.rules` holds what the names stand for, in this order. A rule of one's own is named by its import
path or its entry point (`rllib_scale.plugins`), with parameters behind it in the same way.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from rllib_scale import plugins, zoo
from rllib_scale.config.base import Finite, Model, NonNegative, Positive
from rllib_scale.config.methods import METHODS
from rllib_scale.config.problem import InformationConfig, NamedOrder
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError, choice_error, offered


def _split(value: Any) -> Any:
    return value.split("/") if isinstance(value, str) else value


class NoParameters(Model):
    """Of a rule without any."""


class OrderParameters(NoParameters):
    """Of the rules that visit the waiting tasks in a named order."""

    order: NamedOrder = Field(default="longest-hop", description="in which the waiting tasks are visited")


class ReserveParameters(OrderParameters):
    """Of `reserve`."""

    waiting: Positive = Field(
        default=1.5, description="so many times the earliest finish must be below that on the best idle row, to wait"
    )


class FinishParameters(NoParameters):
    """Of the rules that weigh waiting against transfer and execution."""

    waiting: NonNegative = Field(default=1.0, description="how many times a second of waiting counts")


class AffinityParameters(NoParameters):
    """Of `prefix-affinity`."""

    imbalance: Annotated[float, Field(ge=0)] = Field(
        default=0.5,
        description="the holder of the prefix is preferred up to this difference between two servers' shares of busy "
        "slots; inf, Ray Serve's default: always",
    )


class HungarianParameters(NoParameters):
    """Of `hungarian`."""

    alpha: Finite = Field(default=1.0, description="a task's cost counts descendants^alpha times, itself included")
    kappa: NonNegative = Field(default=2.0, description="how many times a second of waiting counts")


class PriceParameters(NoParameters):
    """Of `price`: n descendants, itself included; c GFLOP; p seconds on a row; w seconds until it is available."""

    a: Finite = Field(default=4.4, description="visited first: the largest n^a (c/10)^b + age (s since arrival)/10")
    b: Finite = Field(default=-0.9, description="see a")
    age: Finite = Field(default=0.035, description="see a")
    alpha: Finite = Field(default=2.0, description="to the row of least n^alpha (kappa w + p) + price p + penalty")
    kappa: NonNegative = Field(default=2.8, description="how many times a second of waiting counts")
    prices: Annotated[tuple[NonNegative, ...], BeforeValidator(_split)] = Field(
        default=(0.8, 6.6),
        description="of a second on each class of speed but the slowest, by speed, as 0.8/6.6; the last one holds for "
        "all beyond",
    )
    penalty: NonNegative = Field(default=2.9, description="of a row that has to be waited for")


class DualPriceParameters(NoParameters):
    """Of `dual-price`."""

    load: Positive | None = Field(
        default=None, description="offered load that the prices are of; unset: the problem's own"
    )
    discount: NonNegative = Field(default=0.8, description="times the duals: the prices")
    kappa: NonNegative = Field(default=2.0, description="how many times a second of waiting counts")
    penalty: NonNegative = Field(
        default=0.6, description="of a row that has to be waited for, in executions of a mean task on a mean row"
    )


@dataclass(frozen=True)
class HeuristicSpec:
    """What a rule takes and what it uses; a class of one's own says it in `takes`, `sees` and `plans`.

    Attributes:
        parameters: what may stand behind its name.
        sees: the tasks that wait, or whole workflows with the demands of all their tasks.
        plans: whether it decides ahead, so that it cannot be asked about one task at one moment.
        knows: what it is told beside, before anything arrives.
    """

    parameters: type[NoParameters] = NoParameters
    sees: Literal["tasks", "workflows"] = "tasks"
    plans: bool = False
    knows: str = ""


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
"""Asked for one task at a time, in the problem's own way of deciding."""
DISPATCHERS = {
    "heft": HeuristicSpec(sees="workflows", plans=True),
    "cpop": HeuristicSpec(sees="workflows", plans=True),
    "min-min": HeuristicSpec(),
    "max-min": HeuristicSpec(),
    "non-blocking": HeuristicSpec(OrderParameters),
    "reserve": HeuristicSpec(ReserveParameters),
    "hungarian": HeuristicSpec(HungarianParameters),
    "price": HeuristicSpec(PriceParameters),
    "dual-price": HeuristicSpec(DualPriceParameters, knows="the workload's distribution and load"),
}
"""Asked at each event for all tasks that wait."""
HEURISTICS = RULES | DISPATCHERS


TASK_BY_TASK, EVENT_BY_EVENT = "rllib_scale.schedulers.base.Scheduler", "rllib_scale.schedulers.dispatcher.Dispatcher"
"""What a rule of one's own is a subclass of, one of the two; by name, as they stand above this room."""


def split_heuristic(text: str) -> tuple[str, str | None]:
    """Name, with the digest of a pinned one, and what stands behind it for parameters; None: nothing does.

    >>> split_heuristic("reserve:waiting=2"), split_heuristic("my_package.rules:Greedy:waiting=2")
    (('reserve', 'waiting=2'), ('my_package.rules:Greedy', 'waiting=2'))
    """
    plain, mark, digest = text.partition(plugins.MARK)
    first, *rest = plain.split(":")
    if rest and first not in HEURISTICS and plugins.is_import_path(f"{first}:{rest[0]}"):
        first, rest = f"{first}:{rest[0]}", rest[1:]
    return first + mark + digest, ":".join(rest) if rest else None


def is_heuristic(text: str) -> bool:
    """Whether a text names a rule, ours or one of one's own, and not a policy of the zoo or the folder of one."""
    if zoo.is_named(text):
        return False
    name = plugins.unpinned(split_heuristic(text)[0])
    return name in HEURISTICS or plugins.is_import_path(name) or name in plugins.entry_points("scheduler")


def is_policy(text: str) -> bool:
    """Whether a text names a policy: of the zoo, or a folder that is there, whose name is none of our rules'."""
    return zoo.is_named(text) or (text.partition(":")[0] not in HEURISTICS and os.path.exists(text))


def load_heuristic(text: str) -> type[Any]:
    """The class of a rule of one's own.

    Raises:
        UserError: there is none, it cannot be imported, or it is no scheduler.
    """
    if zoo.is_named(text):
        raise UserError(f"scheduler {text!r}: is a policy, where a rule is asked for; valid: {offered(HEURISTICS)}")
    found = plugins.load("scheduler", split_heuristic(text)[0], list(HEURISTICS))[0]
    name = plugins.unpinned(split_heuristic(text)[0])
    bases = {f"{c.__module__}.{c.__qualname__}" for c in getattr(found, "__mro__", ())}
    if not bases & {TASK_BY_TASK, EVENT_BY_EVENT}:
        raise UserError(
            f"scheduler {name!r}: is a {type(found).__name__}; valid: a subclass of "
            f"{TASK_BY_TASK.removesuffix('Scheduler')}Rule, {TASK_BY_TASK} or {EVENT_BY_EVENT}"
        )
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise UserError(f"scheduler {name!r}: does not define {', '.join(missing)}")
    for method, wanted in (("rate", 1), ("scores", 2), ("dispatch", 1)):
        defined = getattr(found, method, None)
        if defined is not None and not _takes(defined, wanted + 1):
            given = inspect.signature(defined)
            raise UserError(f"scheduler {name!r}: {method}{given} must take {wanted} argument(s) beside self")
    return cast(type[Any], found)


def _takes(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    return True


def spec_of(text: str) -> HeuristicSpec:
    """What a rule takes and what it uses: the registry's, or what the class of one's own says.

    Raises:
        UserError: see `load_heuristic`.
    """
    name, _ = split_heuristic(text)
    if name in HEURISTICS:
        return HEURISTICS[name]
    found = load_heuristic(text)
    return HeuristicSpec(found.takes, found.sees, found.plans)


def parse_heuristic(text: str) -> tuple[str, NoParameters]:
    """Name and parameters of e.g. `reserve:waiting=2,order=first-ready`.

    Raises:
        UserError: no such rule, or no such parameter of it, or not such a value.
    """
    name, rest = split_heuristic(text)
    model, given = spec_of(text).parameters, {}
    name, text = plugins.unpinned(name), plugins.unpinned(text)
    if rest is not None and not model.model_fields:
        raise UserError(f"scheduler {text!r}: {name} has no parameters")
    for part in rest.split(",") if rest is not None else ():
        key, _, value = part.partition("=")
        if not value or key in given:
            raise UserError(f"scheduler {text!r}: {part!r} must be key=value, each key once; keys: {_keys(model)}")
        given[key] = value
    return name, build_model(model, given, f"scheduler {text!r}")


def heuristic_name(text: str) -> str:
    """The one way to write a rule: parameters in their order, without those at their default.

    >>> heuristic_name("reserve:waiting=2.0,order=longest-hop")
    'reserve:waiting=2'

    Raises:
        UserError: as `parse_heuristic`.
    """
    name, parameters = parse_heuristic(text)
    default = type(parameters)()
    changed = [key for key in type(parameters).model_fields if getattr(parameters, key) != getattr(default, key)]
    values = ",".join(f"{key}={plain(getattr(parameters, key))}" for key in changed)
    return f"{name}:{values}" if values else name


def pinned_heuristic(text: str, foreign: bool = False) -> str:
    """As `heuristic_name`, and of a rule of one's own with the digest of its source; a pinned one as it is.

    Args:
        text: a rule.
        foreign: it comes from a file that another may have written; then nothing is imported.

    Raises:
        UserError: as `parse_heuristic`; or a foreign one would have to be imported.
    """
    if plugins.MARK in text:
        return text
    name, _ = split_heuristic(text)
    if name in HEURISTICS:
        return heuristic_name(text)
    if foreign:
        raise UserError(f"{choice_error('scheduler', name, HEURISTICS)}; no other is imported because a file says so")
    return heuristic_name(text) + plugins.MARK + plugins.load("scheduler", name, list(HEURISTICS))[1]


def information(method: str, told: InformationConfig, sees: str = "tasks") -> str:
    """What a method is told in a problem: whole workflows as `told.label` says, or of the tasks that wait only.

    `sees`: as in `HeuristicSpec`, of a method that is none of ours.

    >>> information("heft", InformationConfig()), information("scale", InformationConfig(estimate_error=0.5))
    ('clairvoyant', 'waiting tasks, estimates')
    """
    spec = HEURISTICS.get(method.partition(":")[0]) or METHODS.get(method)
    if (spec.sees if spec is not None else sees) == "workflows":
        return told.label
    return "waiting tasks" if told.label == "clairvoyant" else f"waiting tasks, {told.label}"


def _keys(model: type[NoParameters]) -> str:
    return ", ".join(model.model_fields)


def plain(value: Any) -> str:
    """A parameter's value as it is written behind a rule's name."""
    if isinstance(value, tuple):
        return "/".join(map(plain, value))
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
