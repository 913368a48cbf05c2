"""A sweep's YAML and what it expands to."""

import json
import re
import shutil
from pathlib import Path

import pytest

from rllib_scale.config.plan import Plan, SweepConfig, telling
from rllib_scale.errors import UserError
from rllib_scale.loading import load_sweep, sweep_from
from rllib_scale.sweeps.planning import make_plan
from workloads.made_trace import made_trace

KEYS = {"schedulers": "scheduler", "problems": "problem", "protocols": "protocol"}
CONFIGS = sorted(Path("tune_configs").glob("*.yaml"))


def sweep(**data: object) -> SweepConfig:
    return sweep_from({"name": "test", "methods": ["scale"], **data}, "test")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_expands(path: Path) -> None:
    config = load_sweep(path)
    assert config.name == path.stem
    plan = make_plan(config, str(path))
    assert bool(plan.trials) == bool(config.methods)
    assert plan.units
    stored = json.loads(json.dumps(plan.to_json(), sort_keys=True))
    read = Plan.from_json(config, stored, "manifest.json")
    assert read == plan
    assert [trial.name for trial in read.trials] == [trial.name for trial in plan.trials]
    named = {table: {row[key] for row in plan.dimensions[table]} for table, key in KEYS.items()}
    named["schedulers"] |= {trial.scheduler for trial in plan.trials}
    for table, key in KEYS.items():
        assert {unit.columns[key] for unit in plan.units} == named[table], f"{table}: a row for each id, and no other"
    assert [unit.key for unit in read.units] == [unit["key"] for unit in stored["evaluations"]]


def test_a_stored_plan_of_another_format_or_with_less_is_refused() -> None:
    config = sweep()
    stored = make_plan(config, "test").to_json()
    for change, message in (
        ({"format": 0}, "format 0; this program reads 3"),
        ({"problems": []}, "plan: not readable"),
    ):
        with pytest.raises(UserError, match=message):
            Plan.from_json(config, stored | change, "manifest.json")


def test_smoke_expands_to_these_names_and_keys() -> None:
    """By these names and keys a results folder is read again: what is finished in it would be done anew."""
    config = load_sweep(Path("tune_configs/smoke.yaml"))
    trials = make_plan(config, "smoke").trials
    trained = ["scale-s1-82c3c8da9891", "scale-s2-4114266dccb9", "ppo-s1-3d74c8157dc8", "ppo-s2-2f8d1829f322"]
    assert [trial.config.name for trial in trials] == trained
    assert [(unit.name, unit.env.cluster.num_servers, unit.key) for unit in make_plan(config, "test").units] == [
        ("random-feasible", 16, "3524f7b1d900"),
        ("random-feasible", 32, "14446d6f3361"),
        ("fastest-idle", 16, "b09ac5677c31"),
        ("fastest-idle", 32, "1e21d951bba5"),
        (trained[0], 16, "7ca0b8fc9d34"),
        (trained[0], 32, "c8a4cf99eb11"),
        (trained[1], 16, "6419ebca1c74"),
        (trained[1], 32, "85fedebeab72"),
        (trained[2], 16, "8cdc21928e67"),
        (trained[3], 16, "e8d15634589f"),
    ]


def test_grid_is_the_product_and_methods_without_srr_stand_once() -> None:
    """Without both weights `scale` is `crossattn`."""
    config = sweep(
        methods=["scale", "crossattn"],
        seeds=[1, 2],
        grid={"srr.lambda_decorrelation": [0.0, 0.1], "srr.lambda_kl": [0.0, 0.01, 0.1]},
    )
    trials = make_plan(config, "test").trials
    assert len([trial for trial in trials if trial.config.method == "scale"]) == 2 * (2 * 3 - 1)
    assert len([trial for trial in trials if trial.config.method == "crossattn"]) == 2
    assert len({trial.config.trial_id for trial in trials}) == len(trials)


def test_any_config_path_can_be_a_grid_axis() -> None:
    trials = make_plan(sweep(grid={"env.episode.clock_step_s": [0.1, 0.2], "algorithm.gamma": [0.9]}), "test").trials
    assert [trial.config.env.episode.clock_step_s for trial in trials] == [0.1, 0.2]
    differing = telling([trial.config for trial in trials])
    assert differing == [{"env.episode.clock_step_s": 0.1}, {"env.episode.clock_step_s": 0.2}]


def test_a_section_can_be_a_grid_axis() -> None:
    weights = [{"lambda_kl": 0.1}, {"lambda_kl": 0.2, "reduction": "mean"}]
    trials = make_plan(sweep(methods=["scale", "crossattn"], grid={"srr": weights}), "test").trials
    differing = telling([trial.config for trial in trials])
    assert differing == [
        {"srr.lambda_kl": 0.1, "srr.reduction": "sum"},
        {"srr.lambda_kl": 0.2, "srr.reduction": "mean"},
        {},
    ]


def test_env_overrides_build_on_the_scenario() -> None:
    config = sweep(scenario="steady-0.5", env={"episode": {"clock_step_s": 0.5}, "cluster": "paper-32"})
    name, env = config.problem_at(())
    assert (name, env.episode.arrivals_until_s, env.episode.clock_step_s) == ("steady-0.5", 150, 0.5)
    assert env.cluster.num_servers == 32


def test_rules_are_evaluated_once_and_a_fixed_network_only_where_it_was_trained() -> None:
    units = {}
    for features in (True, False):
        evaluation = {"scales": [16, 32], "heuristics": ["fastest-idle"], "features": features}
        config = sweep(methods=["scale", "ppo"], seeds=[1, 2], stop={"env_steps": 1025}, evaluation=evaluation)
        units[features] = make_plan(config, "test").units
    at = [(unit.name.split("-s")[0], unit.env.cluster.num_servers, unit.features) for unit in units[True]]
    rules = [("fastest-idle", servers, False) for servers in (16, 32)]
    assert at == [*rules, *[("scale", servers, True) for servers in (16, 32)] * 2, *[("ppo", 16, True)] * 2]
    assert not any(unit.features for unit in units[False])
    assert [unit.key for unit in units[True]] == [unit.key for unit in units[False]]


def test_rules_alone_play_every_problem_of_a_grid_and_say_what_they_are_told() -> None:
    evaluation = {"scales": [16], "heuristics": ["heft", "sticky"], "masks": ["none", "feasible"]}
    grid = {"env.episode.clock_step_s": [0.1, 0.2]}
    units = make_plan(sweep(methods=[], grid=grid, evaluation=evaluation), "test").units
    assert len(units) == 2 * 2 * 2
    assert len({(unit.problem.id, unit.protocol) for unit in units}) == 2 * 2, "the step is how a rule is asked"
    evaluation |= {"heuristics": ["zoo:context-price"]}
    with pytest.raises(UserError, match=r"evaluation.heuristics, scenario paper: zoo:context-price .*valid: mask feas"):
        make_plan(sweep(methods=[], grid=grid, evaluation=evaluation), "test")
    plan = make_plan(sweep(methods=[], grid=grid, evaluation=evaluation | {"masks": ["feasible"]}), "test")
    (row,) = plan.dimensions["schedulers"]
    assert (row["scheduler"], row["kind"], row["name"]) == (plan.units[-1].scheduler, "policy", "zoo:context-price")
    evaluation = {"scales": [16], "decisions": ["argmax", "sample"], "heuristics": []}
    config = sweep(methods=["scale", "context-price"], scenario="steady-0.7", evaluation=evaluation)
    drawn = [(unit.name.split("-s")[0], unit.decision) for unit in make_plan(config, "test").units]
    assert drawn == [("scale", "argmax"), ("scale", "sample"), ("context-price", "argmax")], (
        "prices are no probabilities"
    )


def test_a_sweep_over_a_trace_trains_on_one_part_and_is_evaluated_on_the_other(tmp_path: Path) -> None:
    """The sweep of docs/workloads.md."""
    (block,) = re.findall(r"```yaml\n(.*?)```", Path("docs/workloads.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    made_trace().save(tmp_path / "trace.json")
    (tmp_path / "traced.yaml").write_text(block)
    config = load_sweep(tmp_path / "traced.yaml")
    (trial,) = make_plan(config, "docs").trials
    units = make_plan(config, "test").units
    assert trial.config.env.workload.trace.part == "train"
    assert {unit.env.workload.trace.part for unit in units} == {"test"}


def test_a_schedule_that_names_a_server_beyond_a_scale_is_refused_by_its_own_name() -> None:
    change = {"time_s": 1.0, "event": "fail", "servers": [20]}
    env = {"cluster": {"servers": 32, "changes": {"schedule": [change]}}}
    config = sweep(env=env, evaluation={"scales": [32, 16]})
    with pytest.raises(
        UserError, match=r"evaluation.scales 16: .*changes.schedule.0.servers: no server 20; valid: 0 to 15"
    ):
        make_plan(config, "test")
    with pytest.raises(UserError, match=r"problems.servers 16: .*no server 20"):
        make_plan(sweep(env=env, algorithm={"problems": {"servers": [16]}}), "test")


def test_a_folder_of_a_policy_is_named_as_on_the_command_line_and_no_two_schedulers_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pol", "out/fastest-idle", "fastest-idle"):
        shutil.copytree("rllib_scale/zoo/scale", tmp_path / name)
    data = {"name": "test", "methods": [], "evaluation": {"heuristics": ["pol", "fastest-idle"]}}
    config = sweep_from(data, "test", tmp_path)  # relative to the YAML file
    monkeypatch.chdir(tmp_path)
    assert sweep_from(data, "test") == config
    assert {row["name"] for row in make_plan(config, "test").dimensions["schedulers"]} == {"pol", "fastest-idle"}
    data["evaluation"] = {"heuristics": ["fastest-idle", "out/fastest-idle"]}
    with pytest.raises(UserError, match="two schedulers are named fastest-idle; give folders of policies other names"):
        sweep_from(data, "test")
