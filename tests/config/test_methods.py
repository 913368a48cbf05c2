"""Names that a config may give, with their parameters, and that there is something behind each."""

import pytest

from rllib_scale.config import InformationConfig
from rllib_scale.config.heuristics import (
    DISPATCHERS,
    HEURISTICS,
    RULES,
    PriceParameters,
    ReserveParameters,
    heuristic_name,
    information,
    parse_heuristic,
)
from rllib_scale.config.sweep import EvaluationConfig
from rllib_scale.errors import UserError
from rllib_scale.schedulers import rules


def test_heuristics_that_a_config_may_name_are_exactly_those_there_are() -> None:
    assert list(rules.RULES) == list(RULES)
    assert list(rules.DISPATCHERS) == list(DISPATCHERS)
    assert list(rules.SCHEDULERS) == list(HEURISTICS)


def test_parameters_stand_behind_a_name() -> None:
    assert parse_heuristic("reserve") == ("reserve", ReserveParameters())
    assert parse_heuristic("reserve:order=first-ready,waiting=2") == (
        "reserve",
        ReserveParameters(waiting=2.0, order="first-ready"),
    )
    assert parse_heuristic("price:prices=1/2.5,kappa=3") == ("price", PriceParameters(prices=(1.0, 2.5), kappa=3.0))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("heft", "heft"),
        ("reserve:waiting=1.50", "reserve"),
        ("reserve:waiting=2.0,order=first-ready", "reserve:order=first-ready,waiting=2"),
        ("price:prices=1/2.50", "price:prices=1/2.5"),
        ("prefix-affinity:imbalance=inf", "prefix-affinity:imbalance=inf"),
    ],
)
def test_a_rule_has_one_name_however_it_is_written(text: str, name: str) -> None:
    assert heuristic_name(text) == name
    assert heuristic_name(name) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reserv:waiting=2", "unknown scheduler 'reserv'; did you mean 'reserve'"),
        ("reserve:wating=2", "scheduler 'reserve:wating=2': unknown key 'wating'; did you mean 'waiting'"),
        ("reserve:waiting=0", "waiting: input should be greater than 0 .got '0'."),
        ("reserve:waiting", "'waiting' must be key=value, each key once; keys: order, waiting"),
        ("reserve:", "'' must be key=value"),
        ("reserve:waiting=2,waiting=3", "'waiting=3' must be key=value, each key once"),
        ("heft:waiting=2", "scheduler 'heft:waiting=2': heft has no parameters"),
        ("prefix-affinity:imbalance=nan", "imbalance: input should be greater than or equal to 0"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        parse_heuristic(text)
    assert "\n" not in str(refused.value)


def test_a_sweep_evaluates_a_rule_once_however_it_is_written() -> None:
    names = ("reserve:waiting=2.0", "fastest-idle", "reserve:waiting=2")
    assert EvaluationConfig(heuristics=names).heuristics == ("reserve:waiting=2", "fastest-idle")
    with pytest.raises(ValueError, match="unknown key 'wating'"):
        EvaluationConfig(heuristics=("reserve:wating=2",))


@pytest.mark.parametrize(
    ("told", "label"),
    [
        ({}, "clairvoyant"),
        ({"estimate_error": 0.5}, "estimates"),
        ({"workflows": "revealed"}, "revealed"),
        ({"workflows": "revealed", "estimate_error": 0.5}, "revealed estimates"),
    ],
)
def test_what_a_method_is_told_is_the_problems_and_its_own(told: dict[str, object], label: str) -> None:
    problem = InformationConfig.model_validate(told)
    assert problem.label == label
    assert information("cpop", problem) == information("heft", problem) == label
    rest = "waiting tasks" if label == "clairvoyant" else f"waiting tasks, {label}"
    assert {information(name, problem) for name in ("scale", "fastest-idle", "price")} == {rest}
