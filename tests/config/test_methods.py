"""Names of schedulers that a config may give, with their parameters, and that there is something behind each."""

from pathlib import Path
from typing import Any

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
    is_heuristic,
    is_policy,
    parse_heuristic,
    pinned_heuristic,
)
from rllib_scale.config.sweep import EvaluationConfig
from rllib_scale.errors import UserError
from rllib_scale.schedulers import rules


def test_heuristics_that_a_config_may_name_are_exactly_those_there_are() -> None:
    assert list(rules.RULES) == list(RULES)
    assert list(rules.DISPATCHERS) == list(DISPATCHERS)
    assert list(rules.SCHEDULERS) == list(HEURISTICS)


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("reserve:waiting=1.50", "reserve", ReserveParameters()),
        (
            "reserve:waiting=2.0,order=first-ready",
            "reserve:order=first-ready,waiting=2",
            ReserveParameters(waiting=2.0, order="first-ready"),
        ),
        ("price:prices=1/2.50,kappa=3", "price:kappa=3,prices=1/2.5", PriceParameters(prices=(1.0, 2.5), kappa=3.0)),
    ],
)
def test_a_rule_has_one_name_however_it_is_written(text: str, name: str, parameters: Any) -> None:
    assert heuristic_name(text) == heuristic_name(name) == pinned_heuristic(text) == name
    assert parse_heuristic(text) == (name.partition(":")[0], parameters)
    assert EvaluationConfig(heuristics=(text, "fastest-idle", name)).heuristics == (name, "fastest-idle")


def test_a_name_is_a_rule_or_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "heft"):
        (tmp_path / name).mkdir()
    named = ["heft", "reserve:waiting=2", "my.rules:Greedy", "my.rules:Greedy:waiting=2#source=0"]
    policies = ["zoo:scale", "mine"]
    assert [is_heuristic(name) for name in (*named, *policies, "nobody")] == [True] * 4 + [False] * 3
    assert [is_policy(name) for name in (*named, *policies, "nobody")] == [False] * 4 + [True] * 2 + [False]


def test_a_file_imports_no_rule() -> None:
    assert pinned_heuristic("my.rules:Greedy#source=0", foreign=True) == "my.rules:Greedy#source=0"
    assert pinned_heuristic("heft", foreign=True) == "heft"
    with pytest.raises(UserError, match=r"unknown scheduler 'json:loads'.*no other is imported because a file says so"):
        pinned_heuristic("json:loads", foreign=True)
    with pytest.raises(UserError, match="scheduler 'json:loads': is a function; valid: a subclass of"):
        pinned_heuristic("json:loads")


@pytest.mark.parametrize(
    "told", [{}, {"estimate_error": 0.5}, {"workflows": "revealed"}, {"workflows": "revealed", "estimate_error": 0.5}]
)
def test_what_a_method_is_told_is_the_problems_and_its_own(told: dict[str, object]) -> None:
    problem = InformationConfig.model_validate(told)
    whole = {information(name, problem) for name in ("heft", "cpop", "context-price", "decima")}
    assert whole == {problem.label}
    rest = "waiting tasks" if not told else f"waiting tasks, {problem.label}"
    assert {information(name, problem) for name in ("scale", "fastest-idle", "price:kappa=3")} == {rest}
    assert [information("strange", problem, sees) for sees in ("tasks", "workflows")] == [rest, problem.label]
