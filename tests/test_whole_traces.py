"""A recorded trace is played whole, but where a policy that was trained on it is compared; counted in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

from rllib_scale.cli import main
from rllib_scale.config import EnvConfig, TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate, play
from rllib_scale.loading import env_from, sweep_from
from rllib_scale.networks.build import build_network
from rllib_scale.policies.make import make_policy
from rllib_scale.policies.policy import load_policy, save_policy
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.workloads.sample import sample_workflows
from workloads.trace_samples import write_lines

CALLS, GAP_S, SERVERS = 60, 5.0, 2
LASTS_S = CALLS * GAP_S


def of_replicas(folder: Path) -> dict[str, Any]:
    """Single requests with a common clock, one every GAP_S, that a replica answers at once."""
    lines = [
        {"timestamp": 1000 * GAP_S * k, "input_length": 100, "output_length": 5, "hash_ids": [k]} for k in range(CALLS)
    ]
    file = str(write_lines(folder / "requests.jsonl", *lines))
    service = {"name": "replica", "trace": file, "format": "mooncake", "arrivals_per_s": "recorded", "warm_up_s": 0.0}
    return {
        "cluster": {"tiers": [{"name": "pod", "count": SERVERS, "replica": "2xh100/30b-a3b"}]},
        "service": service,
        "episode": {"horizon_s": LASTS_S, "mask": "feasible"},
        "reward": {"name": "tasks-in-system"},
    }


def of_fixed(folder: Path) -> dict[str, Any]:
    """Workflows of one short task, each a session, one every GAP_S."""
    workflows = [
        {"arrival_s": GAP_S * k, "session": k, "tasks": [task], "edges": []}
        for k in range(CALLS)
        for task in [{"compute_gflop": 1 + k / CALLS, "memory_gb": 1, "output_gb": 0.1}]
    ]
    file = folder / "workflows.json"
    file.write_text(json.dumps({"format": "rllib-scale-workload", "version": 4, "workflows": workflows}))
    return {
        "cluster": {"tiers": [{"name": "a", "count": SERVERS, "compute_gflops": 10, "memory_gb": 8}]},
        "workload": {"trace": {"file": str(file), "arrivals": "recorded"}},
        "episode": {"horizon_s": LASTS_S, "mask": "feasible"},
    }


class Case(NamedTuple):
    """A recorded trace in a folder, the problem that plays it, and a rule for it."""

    folder: Path
    key: str
    rule: str
    content: dict[str, Any]
    scenario: str

    def env(self, **changes: Any) -> EnvConfig:
        return env_from(self.changed(**changes), "test")

    def changed(self, **changes: Any) -> dict[str, Any]:
        """The settings with others of the trace."""
        content: dict[str, Any] = json.loads(json.dumps(self.content))
        section = content
        for name in self.key.split("."):
            section = section[name]
        section |= changes
        return content

    def run(self, command: str, *options: object) -> Any:
        """A command on the problem."""
        size = ["--scales", SERVERS, "--episodes", 1] if command == "evaluate" else ["--servers", SERVERS]
        (self.folder / "problem.yaml").write_text(json.dumps(self.content))
        mine = ["--scenario", self.scenario, "--cluster", self.folder / "problem.yaml", "--json"]
        return CliRunner().invoke(main, [str(each) for each in (command, *options, *size, *mine)])

    def trained(self) -> Path:
        """The folder of a policy that was trained on the trace."""
        trial = TrialConfig.of("crossattn", env=self.env())
        save_policy(self.folder / "policy", build_network(trial), trial, epochs=1)
        return self.folder / "policy"


@pytest.fixture(params=["service", "workload.trace"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    if request.param == "service":
        return Case(tmp_path, "service", "lmetric", of_replicas(tmp_path), "agents-replicas")
    return Case(tmp_path, "workload.trace", "fastest-idle", of_fixed(tmp_path), "paper")


def test_an_evaluation_plays_every_call_of_the_file_at_its_rate(case: Case) -> None:
    def row(env: EnvConfig) -> dict[str, Any]:
        return evaluate(make_policy(case.rule, env), env, 0, 1)[0]

    whole, env = row(case.env()), case.env()
    assert whole["arrived"] == whole["completed"] == CALLS
    played: Any = play(make_policy(case.rule, env), env, 0, [0])
    np.testing.assert_allclose(np.diff(np.sort(played.schedule()["arrival_s"])), GAP_S)
    test, train = row(case.env(part="test")), row(case.env(part="train"))
    assert test["arrived"] + train["arrived"] == CALLS
    assert 0.2 * CALLS < test["arrived"] < 0.8 * CALLS
    done = case.run("evaluate", case.rule)
    assert done.exit_code == 0, (done.output, done.exception)
    assert json.loads(done.stdout)[0]["mean"]["arrived"] == CALLS


def test_what_is_derived_from_a_trace_is_of_what_is_played(tmp_path: Path) -> None:
    """Bounds, and the rate that prices are computed for; of a test nothing is known."""
    case = Case(tmp_path, "workload.trace", "fastest-idle", of_fixed(tmp_path), "paper")
    rates = {part: sample_workflows(case.env(part=part), 10).rate for part in (None, "all", "test", "train")}
    assert rates[None] == rates["all"] == pytest.approx(1 / GAP_S)
    assert rates["test"] == rates["train"] < 0.8 / GAP_S
    (tmp_path / "mine.yaml").write_text(json.dumps({"env": case.content}))
    options = ["--scales", str(SERVERS), "--episodes", "1", "--json"]
    done = CliRunner().invoke(main, ["bounds", str(tmp_path / "mine.yaml"), *options])
    assert done.exit_code == 0, (done.output, done.exception)
    (row,), (bounds,) = json.loads(case.run("evaluate", case.rule).stdout), json.loads(done.stdout)
    for name in ("bound_critical_path_s", "bound_capacity_s"):
        assert bounds[name] == pytest.approx(row["mean"][name])


def test_all_that_is_compared_with_a_policy_plays_sessions_that_it_has_not_seen(case: Case) -> None:
    policy, moved = case.trained(), case.folder / "moved"
    said = f"{case.key}.part all: {policy} was trained on sessions of {case.folder}/"
    valid = f"valid for all that is compared with it: {case.key}.part test"
    for command, who in (("evaluate", [case.rule, policy]), ("simulate", [f"--scheduler={policy}"])):
        done = case.run(command, *who)
        assert (done.exit_code, done.stdout) == (2, ""), "before anything is played"
        assert f"\nError: {said}" in f"\n{done.stderr}"
        assert valid in done.stderr
        test = case.run(command, *who, "--set", f"{case.key}.part=test")
        assert test.exit_code == 0, (test.output, test.exception)
    player = load_policy(policy)
    with pytest.raises(UserError, match=r"split: .* by another split; valid .* train_share 0.5 and seed 0"):
        evaluate(player, case.env(part="test", split={"seed": 1}), 0, 1)
    moved.mkdir()
    again = Case(moved, case.key, case.rule, (of_replicas if case.key == "service" else of_fixed)(moved), "")
    with pytest.raises(UserError, match="was trained on sessions"):
        evaluate(player, again.env(), 0, 1)  # the same content elsewhere


def test_a_given_workload_that_a_policy_was_trained_on_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path, "workload.trace", "fastest-idle", of_fixed(tmp_path), "steady-0.7")
    policy, given = case.trained(), ["--workload", str(tmp_path / "workflows.json")]
    for command in (["evaluate", str(policy), "--scales", "2"], ["tryout", str(policy), "--servers", "2"]):
        done = CliRunner().invoke(main, [*command, *given])
        assert done.exit_code == 2, (done.output, done.exception)
        assert "valid for all that is compared with it: workload.trace.part test" in done.stderr
    assert "--set workload.trace=" in CliRunner().invoke(main, ["evaluate", str(policy), *given]).stderr


def test_a_sweep_plays_the_test_part_where_a_policy_was_trained_on_the_trace(case: Case) -> None:
    def parts(methods: list[str], *heuristics: object, **changes: str) -> set[Any]:
        data: dict[str, Any] = {"name": "x", "scenario": case.scenario, "methods": methods}
        data["env"] = case.changed(**changes)
        data["evaluation"] = {"scales": [SERVERS], "heuristics": [str(each) for each in heuristics]}
        units = make_plan(sweep_from(data, "x.yaml"), "x.yaml").units
        return {unit.env.recording and unit.env.recording.part for unit in units}

    policy = case.trained()
    assert parts([], case.rule) == {None}
    assert parts([], case.rule, part="train") == {"train"}
    assert parts([], case.rule, policy) == parts(["crossattn"], case.rule) == {"test"}
    with pytest.raises(UserError, match=f"evaluation.scenarios {case.scenario}: {case.key}.part all: .* was trained"):
        parts([], case.rule, policy, part="all")
