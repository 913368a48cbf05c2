"""What names a row: the training as trained, the world that is played, and how the policy is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from rllib_scale.config import SCENARIOS, EnvConfig, TrialConfig
from rllib_scale.config.identity import protocol_of, world_of
from rllib_scale.config.plan import Plan, as_trained, telling
from rllib_scale.errors import UserError
from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.planning import make_plan
from seeds import examples

VALUES: dict[str, list[Any]] = {
    "scenario": ["paper", "steady-0.7", "coding-agents-0.7"],
    "env": [None, {"episode": {"horizon_s": 30.0}}, {"reward": {"name": "tasks-in-system"}}],
    "env.cluster": [{"servers": 16}, {"servers": 32}, None],
    "env.workload.min_tasks": [3, 2],
    "env.workload": [{"max_tasks": 8}, {"max_tasks": 6}],
    "env.episode.mask": ["none", "feasible"],
    "env.decision.ties": ["first-ready", "first-arrival"],
    "algorithm": [{"learning_rate": 1e-3}, {"learning_rate": 3e-4, "epochs": 20}],
    "algorithm.epochs": [10, 1000],
    "srr": [{"lambda_kl": 0.1}, {"lambda_kl": 0.001}, {"reduction": "mean"}],
    "srr.lambda_decorrelation": [0.01, 0.1],
    "network.embedding_dim": [16, 32],
    "resources.env_runners": [0, 2],
}
GRIDS = st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True).flatmap(
    lambda paths: st.fixed_dictionaries(
        {path: st.lists(st.sampled_from(VALUES[path]), min_size=1, max_size=2, unique_by=json.dumps) for path in paths}
    )
)
METHODS = st.lists(st.sampled_from(["scale", "crossattn", "deepsets", "ppo"]), min_size=1, max_size=2, unique=True)
SCENARIO_LISTS = st.sampled_from([[], ["train"], ["steady-0.7"], ["train", "steady-0.5"]])


def plan_of(methods: list[str] | None = None, **data: Any) -> Plan:
    data = {"name": "test", "methods": ["scale"] if methods is None else methods} | data
    data.setdefault("evaluation", {"scales": [16, 32], "heuristics": ["fastest-idle"]})
    return make_plan(sweep_from(data, "test"), "test")


@examples(40)
@given(METHODS, GRIDS, SCENARIO_LISTS)
def test_a_grid_names_each_thing_by_its_content(methods: list[str], grid: dict[str, Any], scenarios: list[str]) -> None:
    evaluation = {"scales": [16, 32], "heuristics": ["fastest-idle"], "scenarios": scenarios}
    data = {"seeds": [1, 2], "grid": grid, "evaluation": evaluation}
    try:
        plan = plan_of(methods, **data)
    except UserError:  # settings that do not go together
        reject()
    assert plan == plan_of(methods, **data), "expanding twice gives the same plan"
    assert Plan.from_json(plan.sweep, json.loads(json.dumps(plan.to_json())), "test") == plan
    differing = [json.dumps(settings, sort_keys=True) for settings in telling([trial.config for trial in plan.trials])]
    told = {(t.config.method, t.config.seed, settings) for t, settings in zip(plan.trials, differing, strict=True)}
    assert len(told) == len(plan.trials), "what differs tells trainings apart"
    keys = [tuple(unit.columns.values()) for unit in plan.units]
    assert len(set(keys)) == len(keys) == len({unit.key for unit in plan.units}), "one row key is one unit"
    worlds = {(unit.problem.id, json.dumps(world_of(unit.env), sort_keys=True)) for unit in plan.units}
    assert len(worlds) == len({one for one, _ in worlds}) == len({content for _, content in worlds})
    rules = {(unit.problem.id, unit.protocol) for unit in plan.units if not unit.learned}
    assert {unit.problem.id for unit in plan.units} == {problem for problem, _ in rules}, "a rule plays each problem"


def test_a_world_and_a_protocol_are_all_of_a_problem() -> None:
    """Each leaf setting changes one of the two, but for those that are of no effect."""
    env = EnvConfig()
    content = env.model_dump(mode="json")
    for section, fields in content.items():
        for field, value in fields.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            other = env.model_copy(update={section: getattr(env, section).model_copy(update={field: value + 1})})
            changed = [part(other) != part(env) for part in (world_of, protocol_of)]
            assert sum(changed) == 1, f"{section}.{field}"


@pytest.mark.parametrize(
    "asked",
    [
        {"episode": {"mask": "feasible"}},
        {"episode": {"idle_advance": "clock-step"}},
        {"decision": {"on_busy": "reserve"}},
        {"observation": {"feature_set": "rounds"}},
        {"reward": {"name": "tasks-in-system"}},
    ],
    ids=str,
)
def test_how_a_policy_is_asked_is_no_part_of_the_world(asked: dict[str, Any]) -> None:
    one, other = EnvConfig(), EnvConfig.model_validate(asked)
    assert world_of(one) == world_of(other)
    assert protocol_of(one) != protocol_of(other)


def test_policies_that_decide_otherwise_are_compared_on_one_problem_with_one_rule() -> None:
    """An evaluation of a rule for each training's decisions had one row key, and one of them was lost."""
    evaluation = {"scales": [16], "heuristics": ["fastest-idle"], "scenarios": ["steady-0.7"]}
    grid = {"env.decision.on_busy": ["step", "reserve"]}
    plan = plan_of(["scale"], scenario="steady-0.7", evaluation=evaluation, grid=grid)
    assert len({unit.problem.id for unit in plan.units}) == 1
    rule, one, other = (unit.protocol for unit in plan.units)
    assert rule == one != other
    asked = {row["protocol"]: json.loads(row["settings"]) for row in plan.dimensions["protocols"]}
    assert [asked[each]["decision"]["on_busy"] for each in (one, other)] == ["step", "reserve"]


def test_what_a_grid_or_a_search_varies_of_the_problem_is_evaluated_on_it() -> None:
    loads = [0.5, 1.2]
    space = {"env.workload.offered_load": {"choice": loads}}
    for data in ({"grid": {"env.workload.offered_load": loads}}, {"search": {"space": space, "samples": 8}}):
        units = plan_of(**data).units
        assert {unit.env.workload.offered_load for unit in units} == set(loads)
        named = plan_of(**data, evaluation={"scales": [16], "scenarios": ["paper"]}).units
        assert {unit.env for unit in named} == {SCENARIOS["paper"].env}
    envs = plan_of(grid={"env": [{"workload": {"offered_load": load}} for load in loads]}).units
    assert {unit.problem.id for unit in envs} == {unit.problem.id for unit in units}


def test_sections_merge_in_grids_as_in_env_and_an_empty_one_changes_nothing() -> None:
    agents = SCENARIOS["coding-agents-0.7"].env
    (trial,) = plan_of(scenario="coding-agents-0.7", grid={"env.cluster": [{"servers": 32}]}).trials
    assert trial.config.env.cluster == agents.at_scale(32).cluster
    trials = plan_of(algorithm={"epochs": 2}, grid={"algorithm": [{"learning_rate": 1e-3}, None]}).trials
    assert [trial.config.stop_epochs for trial in trials] == [2, 2]
    empty: dict[str, Any] = {"env": {"cluster": None}, "srr": None, "algorithm": None, "grid": {"env.episode": [None]}}
    (same,) = plan_of(scenario="coding-agents-0.7", **empty).trials
    assert same.config.env == agents.with_part("train")
    (moved,) = plan_of(env={"communication": {"predecessors": "all"}}, grid={"env.communication": ["transfer"]}).trials
    assert moved.config.env.communication.predecessors == "all"


def test_a_setting_and_its_section_vary_together() -> None:
    grid = {"env.workload.offered_load": [0.5, 0.9], "env.workload": [{"min_tasks": 2}, {"min_tasks": 4}]}
    workloads = [trial.config.env.workload for trial in plan_of(grid=grid).trials]
    assert [(own.offered_load, own.min_tasks) for own in workloads] == [(0.5, 2), (0.5, 4), (0.9, 2), (0.9, 4)]


def test_zip_varies_together_and_seeds_may_be_a_range() -> None:
    data = {
        "zip": {"algorithm.epochs": [10, 20], "srr.lambda_kl": [0.1, 0.2]},
        "grid": {"scenario": ["paper", "steady-0.7"]},
    }
    trials = plan_of(seeds="range(1, 3)", **data).trials
    points = {(trial.config.stop_epochs, trial.config.srr.lambda_kl) for trial in trials}
    assert (len(trials), points) == (2 * 2 * 2, {(10, 0.1), (20, 0.2)})
    assert plan_of(seeds="1..2", **data).trials == trials
    for wrong, said in (
        ({"zip": {"algorithm.epochs": [1, 2], "srr.lambda_kl": [0.1]}}, "algorithm.epochs has 2, srr.lambda_kl has 1"),
        ({"zip": {"algorithm.epochs": [1]}, "grid": {"algorithm.epochs": [2]}}, "algorithm.epochs: is set twice"),
        ({"seeds": "1-5"}, r"seeds: 1-5: valid: a list, range\(1, 6\) or 1..5"),
    ):
        with pytest.raises(UserError, match=said):
            plan_of(**wrong)


def test_points_that_are_the_same_training_are_refused_and_named() -> None:
    grid = {"srr": [{"lambda_kl": 0.1}, {"lambda_kl": 0.2}], "srr.lambda_kl": [0.3]}
    with pytest.raises(UserError) as raised:
        plan_of(grid=grid)
    assert 'srr={"lambda_kl": 0.1}; srr.lambda_kl=0.3 and srr={"lambda_kl": 0.2}; srr.lambda_kl=0.3' in str(
        raised.value
    )
    with pytest.raises(UserError, match=r"resources.cpus=1 and resources.cpus=2 are the same training"):
        plan_of(grid={"resources.cpus": [1, 2]})
    assert len(plan_of(["crossattn", "scale"], grid={"srr.lambda_kl": [0.1, 0.2]}).trials) == 3, "crossattn has no SRR"


def test_a_training_is_named_as_trained() -> None:
    """A scheduler that stops a training or changes its settings makes it another one, named by what it is."""
    grid = {"algorithm.learning_rate": [1e-3]}
    (trial,) = plan_of(algorithm={"epochs": 100}, grid=grid).trials
    same = TrialConfig.of("scale", seed=42, algorithm={"epochs": 100, "learning_rate": 1e-3}, stop={"epochs": 30})
    assert as_trained(trial.config, 30).trial_id == same.trial_id
    assert as_trained(trial.config, 100) is trial.config
