"""Random sweep files: a value means the same wherever it stands, and a plan is what its settings are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from rllib_scale.config import digest
from rllib_scale.config.plan import Plan
from rllib_scale.config.sweep import layers
from rllib_scale.errors import UserError
from rllib_scale.loading import load_sweep, overridden, sweep_from
from rllib_scale.results.tables import open_folder
from rllib_scale.sweeps.planning import make_plan
from seeds import examples

METHODS = ["scale", "crossattn", "ppo-srr", "deepsets", "dqn", "scale-any", "context-price"]
VALUES: dict[str, list[Any]] = {
    "scenario": ["steady-0.7", "steady-0.9", "shift", "coding-agents-0.7"],
    "env": [None, {}, {"episode": {"horizon_s": 30.0, "arrivals_until_s": None}}, {"cluster": None, "reward": {}}],
    "env.cluster": [{"servers": 16}, "paper-32", None],
    "env.cluster.servers": [8, 24],
    "env.workload": [{"max_tasks": 8}, {"max_tasks": 6}, None],
    "env.workload.min_tasks": [3, 2],
    "env.workload.trace": [None],
    "env.episode.mask": ["none", "feasible"],
    "env.episode.arrivals_until_s": [None, 20.0, 1e6],
    "env.observation.feature_set": ["paper", "rounds"],
    "algorithm": [{"epochs": 20}, {"epochs": 20, "problems": None}, {"name": "ppo", "gamma": 0.9}, {}, None],
    "algorithm.epochs": [10, 1000, None],
    "algorithm.problems": [None, "any", {"offered_load": [0.5, 0.9]}],
    "algorithm.initial_policy": [None, "zoo:scale"],
    "algorithm.gamma": [0.9, 0.99],
    "network": [{"standardise": "none"}, {"name": "mlp"}, None],
    "network.embedding_dim": [16, 32],
    "network.encoder": [None],
    "srr": [{"lambda_kl": 0.1}, {"lambda_kl": 0, "lambda_decorrelation": 0}, {}, None],
    "srr.lambda_kl": [0, 0.1],
    "srr.lambda_decorrelation": [0, 0.01],
    "stop": [{"epochs": 5}, None],
    "stop.epochs": [5, None],
    "resources": [{"learners": 2}, {"cpus": 2}, None],
    "resources.env_runners": [0, 2],
}
PATHS = st.sampled_from(sorted(VALUES))
POINTS = PATHS.flatmap(lambda path: st.tuples(st.just(path), st.sampled_from(VALUES[path])))
"""A config path and a value."""
LISTS = PATHS.flatmap(
    lambda path: st.tuples(
        st.just(path), st.lists(st.sampled_from(VALUES[path]), min_size=1, max_size=3, unique_by=json.dumps)
    )
)


@st.composite
def sweeps(draw: st.DrawFn, varied: bool = True) -> dict[str, Any]:
    """A sweep file with sections; where it varies, with settings of methods alone, a grid and zip, too."""
    data: dict[str, Any] = {"name": "test", "scenario": "steady-0.7", "evaluation": {"scales": [16], "heuristics": []}}
    data["methods"] = draw(st.lists(st.sampled_from(METHODS), min_size=1, max_size=2, unique=True))
    for path, value in draw(st.lists(POINTS, max_size=2)):
        overridden(data, [f"{path}={json.dumps(value)}"])
    if varied:
        data["methods"] = [draw(st.one_of(st.just(name), own_of(name))) for name in data["methods"]]
        data["seeds"] = draw(st.sampled_from([[1], [1, 2]]))
        data["grid"] = dict(draw(st.lists(LISTS, max_size=2)))
        path, values = draw(LISTS)
        zipped = {path: values} | {key: (VALUES[key] * 3)[: len(values)] for key in draw(st.sets(PATHS, max_size=1))}
        data["zip"] = {key: own for key, own in zipped.items() if key not in data["grid"]}
    return data


def own_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """A method with a setting of its own."""
    own = POINTS.filter(lambda point: point[0] != "scenario")
    return own.map(lambda point: {name: next(layers((point,)))})


def plan_of(data: dict[str, Any]) -> Plan | None:
    """The plan of a sweep file; None if it is refused."""
    try:
        return make_plan(sweep_from(json.loads(json.dumps(data)), "test"), "test")
    except UserError:
        return None


@examples(12)
@given(sweeps(varied=False), POINTS)
def test_a_value_means_the_same_wherever_it_stands(data: dict[str, Any], point: tuple[str, Any]) -> None:
    path, value = point
    head = path.split(".")[0]
    beside = {key: own for key, own in data.items() if key != head or head == "scenario"}
    forms = {
        "section": beside | (next(layers((point,))) if path != "scenario" else {path: value}),
        "grid": beside | {"grid": {path: [value]}},
        "zip": beside | {"zip": [{path: [value]}]},
        "search": beside | {"search": {"space": {path: {"choice": [value]}}, "samples": 1}},
        "--set": overridden(dict(beside), [f"{path}={json.dumps(value)}"]),
    }
    plans = {form: plan_of(content) for form, content in forms.items()}
    trials = {form: plan and plan.trials for form, plan in plans.items()}
    for form, found in trials.items():
        assert found == trials["grid"], (form, found, trials["grid"])


@examples(12)
@given(sweeps(varied=False), POINTS)
def test_a_grid_and_an_override_lie_over_a_section_in_the_same_way(
    data: dict[str, Any], point: tuple[str, Any]
) -> None:
    path, value = point
    in_grid = plan_of(data | {"grid": {path: [value]}})
    overrides = plan_of(overridden(json.loads(json.dumps(data)), [f"{path}={json.dumps(value)}"]))
    assert (in_grid and in_grid.trials) == (overrides and overrides.trials)


@examples(12)
@given(sweeps())
def test_equal_settings_are_one_training_and_expanding_twice_is_the_same_plan(data: dict[str, Any]) -> None:
    plan = plan_of(data)
    if plan is None:
        reject()
    assert plan == plan_of(data)
    deciding = [json.dumps(trial.config.deciding(defaults=True), sort_keys=True) for trial in plan.trials]
    assert len({trial.name for trial in plan.trials}) == len(plan.trials) == len(set(deciding))
    assert len({trial.planned_id for trial in plan.trials}) == len(plan.trials)
    for trial in plan.trials:
        again = type(trial.config).model_validate(trial.config.model_dump(mode="json", exclude_defaults=True))
        assert again == trial.config
    assert Plan.from_json(plan.sweep, json.loads(json.dumps(plan.to_json())), "test").trials == plan.trials


@examples(12)
@given(data=sweeps())
def test_a_manifest_makes_the_same_plan(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> None:
    plan = plan_of(data)
    if plan is None:
        reject()
    folder: Path = tmp_path_factory.mktemp("results")
    content = plan.sweep.written()
    open_folder(folder, plan.sweep.name, content, digest(content), plan.to_json())
    again = make_plan(load_sweep(folder / "manifest.json"), "manifest")
    assert (again.trials, again.units) == (plan.trials, plan.units)


def test_members_of_two_populations_are_apart() -> None:
    space = {"algorithm.learning_rate": {"choice": [1e-3]}}
    base = {"name": "test", "methods": ["scale"], "algorithm": {"epochs": 200}, "evaluation": {"heuristics": []}}
    found = []
    for samples in (2, 3):
        plan = plan_of(base | {"search": {"scheduler": "pbt", "space": space, "samples": samples}})
        assert plan is not None
        found.append({trial.planned_id for trial in plan.trials})
    assert [len(ids) for ids in found] == [2, 3]
    assert found[0].isdisjoint(found[1])
