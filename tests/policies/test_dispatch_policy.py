"""Policies of decima and deeprm: what is saved plays, on any backend; what they cannot do is said in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from safetensors.torch import load, save

from policies.folders import put_tensors
from rllib_scale.cli import main
from rllib_scale.config import EnvConfig, TrialConfig, scenario
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate, play
from rllib_scale.policies.dispatch_policy import DispatchPolicy, build_dispatch_network
from rllib_scale.policies.policy import TENSORS, load_policy, save_policy
from small_moments import SMALL, TWO_FLOWS, moments

METHODS = ("decima", "deeprm")
SHORT = {"horizon_s": 80.0, "arrivals_until_s": 15.0}


def problem(name: str) -> EnvConfig:
    """A scenario, cut short."""
    env = scenario(name)
    return env.model_copy(update={"episode": env.episode.model_copy(update=SHORT)})


ENV = problem("steady-0.7").at_scale(8)


def trial(method: str, env: EnvConfig = ENV, **sections: Any) -> TrialConfig:
    data = {"method": method, "seed": 7, "env": env.model_dump(mode="json")} | sections
    return TrialConfig.of(**data)


def policy(method: str, env: EnvConfig = ENV, decision: str = "argmax") -> DispatchPolicy:
    settings = trial(method, env)
    return DispatchPolicy(build_dispatch_network(settings), settings, 3, decision)  # type: ignore[arg-type]


@pytest.fixture(params=METHODS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A saved policy, in a folder that is named like its method."""
    settings = trial(request.param)
    save_policy(tmp_path / request.param, build_dispatch_network(settings), settings, 3)
    return tmp_path / request.param


deeprm_alone = pytest.mark.parametrize("folder", ["deeprm"], indirect=True)


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.splitlines()
    return line


# ---------------------------------------------------------------------- files


def test_what_is_saved_is_what_plays(folder: Path) -> None:
    for decision in ("argmax", "sample"):
        loaded = load_policy(folder, decision=decision)  # type: ignore[arg-type]
        assert isinstance(loaded, DispatchPolicy)
        own = policy(folder.name, decision=decision)
        assert (loaded.trial, loaded.epochs, loaded.name) == (own.trial, 3, own.trial.name)
        assert loaded.sees == {"decima": "workflows", "deeprm": "tasks"}[folder.name]
        schedules = [play(player, ENV, 1, [0]).schedule() for player in (own, loaded)]
        np.testing.assert_array_equal(*schedules)
        assert len(schedules[0]) > 10
    assert f"{folder.name}: " in loaded._repr_html_()


def test_other_weights_play_otherwise_and_are_refused_where_they_are_none(folder: Path) -> None:
    before = play(load_policy(folder), ENV, 1, [0]).schedule()
    tensors = load((folder / TENSORS).read_bytes())
    put_tensors(folder, save({name: -tensor for name, tensor in tensors.items()}))
    assert before.tolist() != play(load_policy(folder), ENV, 1, [0]).schedule().tolist()
    name = next(iter(tensors))
    put_tensors(folder, save(tensors | {name: tensors[name] * float("nan")}))
    with pytest.raises(UserError, match=f"{name} is not finite"):
        load_policy(folder)
    put_tensors(folder, save({other: tensor for other, tensor in tensors.items() if other != name}))
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


@pytest.mark.parametrize("name", ["spot", "coding-agents-0.7"])
@pytest.mark.parametrize("method", METHODS)
def test_other_problems_are_played(method: str, name: str) -> None:
    """Slots, transfers, delays, servers that leave: what fits and who is there is the snapshot's to say."""
    (row,) = evaluate(policy(method, problem(name)), problem(name), 1, 1)
    assert row["decisions"] > 5
    assert row["invalid_no_fit"] + row["invalid_busy_avoidable"] + row["invalid_busy_unavoidable"] == 0


@pytest.mark.parametrize("on_busy", ["step", "reserve"])
def test_decima_plays_what_is_revealed_and_estimated_on_any_number_of_servers(on_busy: str) -> None:
    content = ENV.model_dump(mode="json")
    content["information"] |= {"workflows": "revealed", "estimate_error": 0.5}
    content["decision"]["on_busy"] = on_busy
    for servers in (4, 13):
        (row,) = evaluate(policy("decima"), EnvConfig.model_validate(content).at_scale(servers), 1, 1)
        assert row["unfinished"] == 0


def test_it_is_evaluated_by_its_folder(folder: Path, tmp_path: Path) -> None:
    cut = [f"--set=episode.{name}={value}" for name, value in SHORT.items()]
    rows = ["--scenario=steady-0.7", "--scales=8", "--episodes=2", f"--output={tmp_path / 'rows.csv'}"]
    done = CliRunner().invoke(main, ["evaluate", str(folder), *cut, *rows])
    assert done.exit_code == 0, done.output
    expected = [row["response_mean_s"] for row in evaluate(load_policy(folder), ENV, 1000, 2)]
    assert pd.read_csv(tmp_path / "rows.csv")["response_mean_s"].tolist() == pytest.approx(expected, nan_ok=True)


# ---------------------------------------------------------------------- what cannot be


@deeprm_alone
def test_the_image_is_of_one_number_of_servers(folder: Path) -> None:
    from rllib_scale.live.requests import RouterSettings
    from rllib_scale.live.routing import policy_of

    line = refused("evaluate", folder, "--scenario", "steady-0.7", "--scales", "16")
    assert "was trained at 8 servers and knows no other number (got 16)" in line
    with pytest.raises(UserError, match="was trained at 8 servers and knows no other number"):
        policy_of(RouterSettings(scheduler=str(folder)))


def test_the_paper_s_mode_and_onnx_are_refused_with_the_reason(folder: Path, tmp_path: Path) -> None:
    line = refused("evaluate", folder, "--scenario", "paper", "--scales", "8")
    for part in (folder.name, "decides for all waiting tasks", "mask none", "valid: mask feasible"):
        assert part in line
    with pytest.raises(ValueError, match=rf"env.episode.mask none: {folder.name} decides for all waiting tasks"):
        TrialConfig.of(folder.name)
    line = refused("export", folder, "--onnx", tmp_path / "policy.onnx")
    assert f"a policy of method {folder.name} decides from whole states" in line


def test_nobody_can_imitate_it_or_begin_with_it(folder: Path) -> None:
    from rllib_scale.rl.imitation.demonstrations import expert_of

    env = ENV.model_dump(mode="json")
    learner = TrialConfig.of(env=env, algorithm={"name": "imitation", "expert": str(folder)})
    with pytest.raises(UserError, match=f"a policy of method {folder.name} cannot be asked about one task; valid"):
        expert_of(learner, learner.env)


@pytest.mark.parametrize(
    ("method", "sections", "parts"),
    [
        ("decima", {"network": {"embedding_dim": 0}}, ["network.embedding_dim", "greater than or equal to 1", "0"]),
        ("deeprm", {"network": {"queue": 1024}}, ["network.queue", "less than or equal to 256", "1024"]),
        ("deeprm", {"algorithm": {"problems": {"servers": [8, 16]}}}, ["algorithm.problems.servers", "fixed to one"]),
        (
            "decima",
            {"algorithm": {"instances": 1, "problems": {"servers": [8, 16]}}},
            ["algorithm.instances 1", "at least 2", "algorithm.problems.servers"],
        ),
        ("decima", {"stop": {"env_steps": 100}}, ["stop.env_steps 100", "valid: stop.epochs"]),
        ("deeprm", {"algorithm": {"gae_lambda": 1}}, ["algorithm.gae_lambda", "valid: with algorithm.name ppo"]),
        ("deeprm", {"algorithm": {"reward": "a.b:c"}}, ["algorithm.reward", "valid: with algorithm.name ppo, dqn"]),
    ],
)
def test_bad_settings_are_one_line(method: str, sections: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ValueError, match=parts[0]) as caught:
        trial(method, **sections)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
