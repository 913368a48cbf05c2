"""What stands in a section, a grid, zip, a search or an override is one thing; a method may have its own."""

from typing import Any

import pytest

from rllib_scale.config.plan import Plan
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.planning import make_plan


def plan_of(methods: list[Any], **data: Any) -> Plan:
    return make_plan(sweep_from({"name": "test", "scenario": "steady-0.7", "methods": methods, **data}, "test"), "test")


def trained(methods: list[Any], path: str, **data: Any) -> list[tuple[str, Any]]:
    return [(t.config.method, t.config.setting(path)) for t in plan_of(methods, **data).trials]


def test_a_method_has_settings_of_its_own_over_the_sweeps_and_below_the_grids() -> None:
    own = [{"scale": {"algorithm": {"passes": 2, "gamma": 0.5}}}, "ppo"]
    assert trained(own, "algorithm.passes", algorithm={"passes": 4}) == [("scale", 2), ("ppo", 4)]
    grid = {"algorithm.gamma": [0.9]}
    assert trained(own, "algorithm.gamma", algorithm={"gamma": 0.8}, grid=grid) == [("scale", 0.9), ("ppo", 0.9)]
    twice = [{"scale": {"algorithm": {"passes": passes}}} for passes in (2, 4)]
    assert trained(twice, "algorithm.passes") == [("scale", 2), ("scale", 4)]


def test_a_problem_of_a_methods_own_is_played_by_rules_too() -> None:
    own = [{"crossattn": {"env": {"workload": {"offered_load": 0.3}}}}, "ppo"]
    plan = plan_of(own, evaluation={"scales": [16], "heuristics": ["fastest-idle"]})
    assert [t.config.env.workload.offered_load for t in plan.trials] == [0.3, 0.7]
    assert {(unit.learned, unit.env.workload.offered_load) for unit in plan.units} == {
        (learned, load) for learned in (True, False) for load in (0.3, 0.7)
    }


def test_srr_acts_on_methods_that_have_it() -> None:
    grid = {"srr.lambda_kl": [0.1, 0.2]}
    assert trained(["scale", "crossattn"], "srr.lambda_kl", grid=grid) == [
        *(("scale", 0.1), ("scale", 0.2)),
        ("crossattn", 0.0),
    ]
    none = {"srr": [{}, {"lambda_kl": 0, "lambda_decorrelation": 0}]}
    assert [method for method, _ in trained(["scale"], "seed", grid=none)] == ["scale", "crossattn"]


def test_a_section_left_empty_changes_nothing() -> None:
    """Of a sweep all sections, and the lists that are empty by default; `tracking` was refused."""
    sections = [name for name, field in SweepConfig.model_fields.items() if not field.is_required()]
    sections = [name for name in sections if name not in ("description", "scenario", "seeds")]
    assert "tracking" in sections
    plain = plan_of(["scale"])
    assert plan_of([{"scale": None}], **dict.fromkeys(sections)).trials == plain.trials
    assert plan_of([{"scale": {"algorithm": None}}], env={"workload": None, "cluster": None}).trials == plain.trials


@pytest.mark.parametrize("path", ["algorithm.initial_policy", "algorithm.problems", "env.workload.trace"])
def test_null_of_one_setting_leaves_its_section(path: str) -> None:
    """`grid: {ppo.initial_policy: [null, zoo:scale]}` trained other gammas."""
    values = {"algorithm.initial_policy": "zoo:scale", "algorithm.problems": "any"}
    other = values.get(path, "rllib_scale/workloads/samples/agents.json")
    shared = {"algorithm": {"gamma": 0.9, "passes": 2}, "env": {"cluster": {"servers": 8}}}
    if path.startswith("env"):
        shared["env"]["workload"] = {"trace": {"file": other}}
    first, second = plan_of(["scale"], **shared, grid={path: [None, other]}).trials
    assert first.config.setting(path) is None
    assert second.config.setting(path) is not None
    algorithms = [trial.config.algorithm for trial in (first, second)]
    assert {(a.gamma, a.passes) for a in algorithms} == {(0.9, 2)}
    assert {trial.config.env.cluster.num_servers for trial in (first, second)} == {8}


def test_an_encoder_is_compared_with_the_methods_own_network_at_one_width() -> None:
    grid = {"network.encoder": [None, "rllib_scale.networks.deep_sets:DeepSets"]}
    found = trained(["crossattn"], "network.embedding_dim", network={"embedding_dim": 32}, grid=grid)
    assert found == [("crossattn", 32), ("crossattn", 32)]


def test_what_zip_names_is_resolved_and_pinned(tmp_path: Any) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("env: {workload: {offered_load: 0.4}}")
    plan = make_plan(
        sweep_from(
            {
                "name": "test",
                "methods": [{"scale": {"algorithm": {"initial_policy": "zoo:scale"}}}],
                "zip": {"scenario": ["paper", str(file)], "algorithm.reward": [None, "textwrap:indent"]},
            },
            "test",
            tmp_path,
        ),
        "test",
    )
    one, other = (trial.config for trial in plan.trials)
    assert other.env.workload.offered_load == 0.4
    assert "#source=" in other.algorithm.reward
    assert one.algorithm.initial_policy.startswith("zoo:scale#sha256=")


def test_points_of_a_search_are_settings_of_a_trial() -> None:
    space = {"algorithm.clip": {"choice": [0.1]}, "algorithm.passes": {"uniform": [2, 2.4]}}
    assert trained(["crossattn"], "algorithm.passes", search={"samples": 3, "space": space}) == [("crossattn", 2)]


def test_who_trains_beside_a_method_does_not_change_its_identity() -> None:
    grid = {"algorithm.gamma": [0.9, 0.99]}
    both = plan_of(["scale", {"dqn": {"algorithm": {"batch_size": 32}}}], grid=grid).trials
    alone = plan_of(["dqn"], algorithm={"batch_size": 32}, grid=grid).trials
    assert both == (*plan_of(["scale"], grid=grid).trials, *alone)
