"""Names of schedulers that a config may give, with their parameters, and that there is something behind each."""

from pathlib import Path
from typing import Any

import pytest

from rllib_scale.config import SCENARIOS, InformationConfig, TrialConfig
from rllib_scale.config.schedulers import (
    ALL_RULES,
    DISPATCHERS,
    HEURISTICS,
    RULES,
    PluginSpec,
    PolicySpec,
    PriceParameters,
    ReserveParameters,
    RuleSpec,
    observability,
    parse_scheduler,
)
from rllib_scale.config.sweep import EvaluationConfig
from rllib_scale.errors import UserError
from rllib_scale.loading import resolve
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
    spec = parse_scheduler(text)
    assert spec == parse_scheduler(name) == RuleSpec(name.partition(":")[0], parameters)
    assert str(spec) == spec.label == name
    assert EvaluationConfig(heuristics=(text, "fastest-idle", name)).heuristics == (name, "fastest-idle")


@pytest.mark.parametrize(
    ("text", "spec", "label"),
    [
        ("my.rules:Greedy", PluginSpec("my.rules:Greedy"), "my.rules:Greedy"),
        (
            "my.rules:Greedy:waiting=2#source=0",
            PluginSpec("my.rules:Greedy", "waiting=2", "0"),
            "my.rules:Greedy:waiting=2",
        ),
        ("mine", PluginSpec("mine"), "mine"),
        ("zoo:scale#sha256=0", PolicySpec("zoo:scale", "0"), "zoo:scale"),
        ("out/mine", PolicySpec("out/mine"), "mine"),
        ("/out/mine/policy.json#sha256=0", PolicySpec("/out/mine/policy.json", "0"), "mine"),
    ],
)
def test_a_text_names_user_code_or_a_policy_and_a_spec_is_written_as_it_is_read(
    text: str, spec: Any, label: str
) -> None:
    assert parse_scheduler(text) == spec
    assert (str(spec), spec.label) == (text, label)


def test_a_folder_with_a_policy_is_one_unless_a_rule_has_its_name(tmp_path: Path) -> None:
    for name in ("mine", "heft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.json").write_text(name)
    mine = resolve(parse_scheduler("mine"), (tmp_path,))
    assert isinstance(mine, PolicySpec)
    assert mine.location == str(tmp_path / "mine" / "policy.json")
    assert resolve(mine) == resolve(parse_scheduler(str(mine))) == mine
    assert mine.folder("key") == tmp_path / "mine"
    assert isinstance(resolve(parse_scheduler("heft"), (tmp_path,)), RuleSpec)
    (tmp_path / "mine" / "policy.json").write_text("other")
    with pytest.raises(UserError, match=r"key: .*policy.json has changed since the config was read"):
        mine.folder("key")
    with pytest.raises(UserError, match=r"unknown scheduler 'nobody'.*or the folder of a policy; or zoo:NAME"):
        resolve(parse_scheduler("nobody"), (tmp_path,))
    with pytest.raises(UserError, match="scheduler 'json:loads': is a function; valid: a subclass of"):
        resolve(parse_scheduler("json:loads"))


@pytest.mark.parametrize(
    "told", [{}, {"estimate_error": 0.5}, {"workflows": "revealed"}, {"workflows": "revealed", "estimate_error": 0.5}]
)
def test_what_a_method_is_told_is_the_problems_and_its_own(told: dict[str, object]) -> None:
    problem = InformationConfig.model_validate(told)
    whole = {observability(ALL_RULES[name].sees, problem) for name in ("heft", "cpop", "adaptive-price")}
    assert whole == {problem.label}
    rest = "waiting tasks" if not told else f"waiting tasks, {problem.label}"
    assert {observability(ALL_RULES[name].sees, problem) for name in ("fastest-idle", "price")} == {rest}
    env = SCENARIOS["steady-0.7"].env
    trained = [
        TrialConfig.of(name, env=env).sees for name in ("scale", "deeprm", "decima", "context-price", "scale-any")
    ]
    assert [observability(sees, problem) for sees in trained] == [rest, rest, *[problem.label] * 3]
