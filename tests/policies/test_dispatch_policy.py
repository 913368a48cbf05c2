"""Policies of decima and deeprm: what is saved plays, on any backend; what they cannot do is said in one line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load, save

from live.virtual import VirtualBackend
from marks import slow
from rllib_scale.cli import main
from rllib_scale.config import EnvConfig, TrialConfig, scenario
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate, play, run
from rllib_scale.policies.dispatch_policy import DispatchPolicy, build_dispatch_network
from rllib_scale.policies.policy import DESCRIPTION, TENSORS, load_policy, save_policy
from rllib_scale.simulator.backend import SimulatedBackend
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from small_moments import SMALL, TWO_FLOWS, moments

METHODS = ("decima", "deeprm")
STEADY = scenario("steady-0.7").at_scale(8)
ENV = STEADY.model_copy(
    update={"episode": STEADY.episode.model_copy(update={"horizon_s": 80.0, "arrivals_until_s": 15.0})}
)


def trial(method: str, env: EnvConfig = ENV, **sections: Any) -> TrialConfig:
    data = {"method": method, "seed": 7, "env": env.model_dump(mode="json")} | sections
    return build_model(TrialConfig, data, "test")


def policy(method: str, env: EnvConfig = ENV, decision: str = "argmax") -> DispatchPolicy:
    settings = trial(method, env)
    return DispatchPolicy(build_dispatch_network(settings), settings, 3, decision)  # type: ignore[arg-type]


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A saved policy of the method that the test is for."""
    settings = trial(request.param)
    save_policy(tmp_path / request.param, build_dispatch_network(settings), settings, 3)
    return tmp_path / request.param


both = pytest.mark.parametrize("folder", METHODS, indirect=True)


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.splitlines()
    return line


# ---------------------------------------------------------------------- files


@both
@pytest.mark.parametrize("decision", ["argmax", "sample"])
def test_what_is_saved_is_what_plays(folder: Path, decision: Any) -> None:
    loaded = load_policy(folder, decision=decision)
    assert isinstance(loaded, DispatchPolicy)
    own = policy(folder.name, decision=decision)
    assert (loaded.trial, loaded.epochs, loaded.name) == (own.trial, 3, own.trial.name)
    assert loaded.sees == {"decima": "workflows", "deeprm": "tasks"}[folder.name]
    schedules = [play(player, ENV, 1, [0]).schedule() for player in (own, loaded)]
    np.testing.assert_array_equal(*schedules)
    assert len(schedules[0]) > 10
    assert f"{folder.name}: " in loaded._repr_html_()


@both
def test_other_weights_play_otherwise_and_are_refused_where_they_are_none(folder: Path) -> None:
    def put(**tensors: torch.Tensor) -> None:
        content = save(tensors)
        (folder / TENSORS).write_bytes(content)
        description = json.loads((folder / DESCRIPTION).read_text())
        (folder / DESCRIPTION).write_text(json.dumps(description | {"sha256": hashlib.sha256(content).hexdigest()}))

    before = play(load_policy(folder), ENV, 1, [0]).schedule()
    tensors = load((folder / TENSORS).read_bytes())
    put(**{name: -tensor for name, tensor in tensors.items()})
    assert before.tolist() != play(load_policy(folder), ENV, 1, [0]).schedule().tolist()
    name = next(iter(tensors))
    put(**tensors | {name: tensors[name] * float("nan")})
    with pytest.raises(UserError, match=f"{name} is not finite"):
        load_policy(folder)
    put(**{other: tensor for other, tensor in tensors.items() if other != name})
    with pytest.raises(UserError, match=f"does not hold the weights of a {folder.name} network"):
        load_policy(folder)


# ---------------------------------------------------------------------- playing


@pytest.mark.parametrize("method", METHODS)
def test_a_draw_depends_on_seed_and_episode_alone(method: str) -> None:
    together = play(policy(method, decision="sample"), ENV, 1, [0, 1])
    alone = play(policy(method, decision="sample"), ENV, 1, [1])
    np.testing.assert_array_equal(together.schedule(1), alone.schedule(0))
    best = play(policy(method), ENV, 1, [1])
    assert best.schedule().tolist() != alone.schedule().tolist()


def test_decima_leaves_no_row_idle_that_a_task_could_start_on() -> None:
    now = policy("decima", SMALL).decide(moments(TWO_FLOWS)[:1])[0]
    assert not now.can_start.any()
    assert len(now.started) >= 2


@pytest.mark.parametrize("name", ["spot", *map(slow, ("coding-agents-0.7", "preemption", "overload-1.1", "deep"))])
@pytest.mark.parametrize("method", METHODS)
def test_other_problems_are_played_to_their_end(method: str, name: str) -> None:
    """Slots, transfers, delays, servers that leave, estimates: what fits and who is there is the snapshot's to say."""
    env = scenario(name)
    env = env.model_copy(
        update={"episode": env.episode.model_copy(update={"horizon_s": 40.0, "arrivals_until_s": 10.0})}
    )
    (row,) = evaluate(policy(method, env), env, 1, 1)
    assert row["decisions"] > 5
    assert row["invalid_no_fit"] + row["invalid_busy_avoidable"] + row["invalid_busy_unavoidable"] == 0


@pytest.mark.parametrize("told", [{"workflows": "revealed"}, {"estimate_error": 0.5}])
@pytest.mark.parametrize("on_busy", ["step", "reserve"])
def test_revealed_workflows_and_rounds_are_played(told: dict[str, Any], on_busy: str) -> None:
    content = ENV.model_dump(mode="json")
    content["information"] |= told
    content["decision"]["on_busy"] = on_busy
    (row,) = evaluate(policy("decima"), EnvConfig.model_validate(content), 1, 1)
    assert row["unfinished"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_other_backends_are_told_the_same(method: str) -> None:
    """In the simulator, and in the books of a live cluster in virtual time, by what snapshots say."""
    given = generate(ENV, 3, 0)
    own = play(policy(method), ENV, 3, [0], given).schedule()
    for backend in (SimulatedBackend(ENV, workload=given), VirtualBackend(ENV, given)):
        player = policy(method)
        player.reset([(3, 0)])
        if isinstance(backend, SimulatedBackend):
            run(player, backend)
            found = backend.engine.schedule()
            np.testing.assert_array_equal(own, found)
            continue
        starts = []
        while (snapshot := backend.wait()) is not None:
            for workflow, task, row in player.dispatch(snapshot).tolist():
                starts.append((workflow, task, row))
                assert backend.apply((workflow, task, row)) == "started"  # type: ignore[arg-type]
        assert starts == list(zip(*(own[name].tolist() for name in ("workflow", "task", "server")), strict=True))


@both
def test_it_is_evaluated_and_simulated_by_its_folder(folder: Path, tmp_path: Path) -> None:
    short = ["--set", "episode.horizon_s=40", "--set", "episode.arrivals_until_s=10"]
    common = ["--scenario", "steady-0.7", *short]
    rows = ["--scales", "8", "--episodes", "2", "--output", str(tmp_path / "rows.csv")]
    done = CliRunner().invoke(main, ["evaluate", str(folder), *common, *rows])
    assert done.exit_code == 0, done.output
    env = ENV.model_copy(
        update={"episode": ENV.episode.model_copy(update={"horizon_s": 40.0, "arrivals_until_s": 10.0})}
    )
    expected = [row["response_mean_s"] for row in evaluate(load_policy(folder), env, 1000, 2)]
    assert pd.read_csv(tmp_path / "rows.csv")["response_mean_s"].tolist() == pytest.approx(expected, nan_ok=True)
    schedule = tmp_path / "schedule.csv"
    places = ["--servers", "8", "--seed", "1000", "--schedule", str(schedule)]
    shown = CliRunner().invoke(main, ["simulate", "--scheduler", str(folder), *common, *places])
    assert shown.exit_code == 0, shown.output
    assert len(schedule.read_text().splitlines()) == 1 + len(play(load_policy(folder), env, 1000, [0]).schedule())


# ---------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize("folder", ["deeprm"], indirect=True)
def test_the_image_is_of_one_number_of_servers(folder: Path) -> None:
    line = refused("evaluate", folder, "--scenario", "steady-0.7", "--scales", "16")
    for part in ("fixed to 8 server slots", "cannot be of 16", "decima"):
        assert part in line
    assert "fixed to 8" in refused("simulate", "--scheduler", folder, "--scenario", "steady-0.7", "--servers", "9")


@pytest.mark.parametrize("folder", ["decima"], indirect=True)
def test_the_graph_is_of_any_number_of_servers(folder: Path) -> None:
    for servers in (4, 13, 40):
        (row,) = evaluate(load_policy(folder), ENV.at_scale(servers), 1, 1)
        assert row["unfinished"] == 0


@both
def test_the_paper_s_mode_onnx_and_prices_are_refused_with_the_reason(folder: Path, tmp_path: Path) -> None:
    line = refused("evaluate", folder, "--scales", "8")
    for part in (folder.name, "idle servers alone", "mask none", "valid: mask feasible"):
        assert part in line
    line = refused("export", folder, "--onnx", tmp_path / "policy.onnx")
    assert f"a policy of method {folder.name} decides from whole moments" in line
    line = refused("simulate", "--scheduler", folder, "--scenario", "steady-0.7", "--prices", tmp_path / "p.png")
    assert "valid: a policy of the method context-price" in line


@both
def test_nobody_can_imitate_it_or_begin_with_it(folder: Path, tmp_path: Path) -> None:
    from rllib_scale.rl.imitation.demonstrations import expert_of

    env = ENV.model_dump(mode="json")
    learner = build_model(TrialConfig, {"env": env, "imitation": {"expert": str(folder)}}, "test")
    with pytest.raises(UserError, match=f"a policy of method {folder.name} cannot be asked about one task; valid"):
        expert_of(learner, learner.env)
    for section in ({"training": {"initial_policy": str(folder)}}, {"imitation": {"expert": "fastest-idle"}}):
        with pytest.raises(UserError, match=f"method {folder.name} is not one of PPO's"):
            trial(folder.name, **section)


@pytest.mark.parametrize("folder", ["deeprm"], indirect=True)
def test_replicas_that_come_and_go_need_any_number(folder: Path) -> None:
    from rllib_scale.live.routing import RouterSettings, player_of

    with pytest.raises(UserError, match="was trained at 8 server slots and knows no other number"):
        player_of(RouterSettings(scheduler=str(folder)))


@pytest.mark.parametrize(
    ("method", "sections", "parts"),
    [
        ("decima", {"decima": {"embedding_dim": 0}}, ["decima.embedding_dim", "greater than or equal to 1", "0"]),
        ("decima", {"decima": {"hiden": [4]}}, ["decima", "hiden", "hidden"]),
        ("deeprm", {"deeprm": {"time_steps": 2000}}, ["deeprm.time_steps", "less than or equal to 1024", "2000"]),
        ("deeprm", {"deeprm": {"step_s": 0}}, ["deeprm.step_s", "greater than 0"]),
        ("deeprm", {"deeprm": {"queue": 1024, "time_steps": 1024, "hidden": 4096}}, ["deeprm", "at most 100,000,000"]),
        ("deeprm", {"training": {"problems": {"servers": [8, 16]}}}, ["training.problems.servers", "fixed to one"]),
        ("decima", {"reinforce": {"episodes": 1}}, ["reinforce.episodes", "greater than or equal to 2"]),
        ("decima", {"reinforce": {"learning_rate": -1}}, ["reinforce.learning_rate", "greater than 0", "-1"]),
        (
            "decima",
            {"reinforce": {"instances": 1}, "training": {"problems": {"servers": [8, 16]}}},
            ["reinforce.instances 1", "at least 2", "training.problems.servers"],
        ),
        ("decima", {"stop": {"env_steps": 100}}, ["stop.env_steps", "counts epochs", "valid: stop.epochs"]),
        ("deeprm", {"training": {"time_unit_s": 1}}, ["training.time_unit_s", "deeprm"]),
        ("decima", {"network": {"encoder": "a.b:C"}}, ["network.encoder"]),
    ],
)
def test_bad_settings_are_one_line(method: str, sections: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        trial(method, **sections)
    line = str(caught.value)
    assert "\n" not in line
    for part in parts:
        assert part in line


def test_the_paper_s_mode_is_refused_to_train_on() -> None:
    with pytest.raises(UserError, match=r"env.episode.mask none: decima starts tasks on idle servers alone.*feasible"):
        build_model(TrialConfig, {"method": "decima"}, "test")


def test_a_cell_is_known_by_its_own_settings_alone() -> None:
    assert trial("decima").cell == trial("decima", deeprm={"queue": 3}).cell
    assert trial("decima").cell != trial("decima", decima={"embedding_dim": 4}).cell
    assert trial("deeprm").cell != trial("deeprm", reinforce={"epochs": 7}).cell
    other = {"method": "scale", "env": ENV.model_dump(mode="json")}
    sections = {"reinforce": {"epochs": 7}, "decima": {"embedding_dim": 4}, "deeprm": {"queue": 3}}
    assert build_model(TrialConfig, other, "test").cell == build_model(TrialConfig, other | sections, "test").cell


def test_a_given_workload_is_played(tmp_path: Path) -> None:
    TWO_FLOWS.save(tmp_path / "two.json")
    given = Workload.load(tmp_path / "two.json")
    engine = play(policy("decima", SMALL), SMALL, 0, [0], given)
    assert engine.metrics()["workflows_completed"] == 2
