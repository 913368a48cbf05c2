"""An episode that is played again is the one that was evaluated, and every decision of it can be looked into."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.observations import random_network
from rllib_scale.config import TrialConfig, scenario
from rllib_scale.errors import UserError
from rllib_scale.experiments.evaluate import evaluate
from rllib_scale.experiments.results import open_folder
from rllib_scale.inspect_policy import (
    AVOIDABLE,
    NO_FIT,
    STARTED,
    UNAVOIDABLE,
    DecisionView,
    EpisodeKey,
    Replay,
    look,
    problem,
    replay,
)
from rllib_scale.policy import load_policy, save_policy
from rllib_scale.schedulers.heuristics import make_scheduler

METHODS = ("scale", "attention-model", "set-transformer", "ppo")
CAUSES = {"invalid_no_fit": NO_FIT, "invalid_busy_avoidable": AVOIDABLE, "invalid_busy_unavoidable": UNAVOIDABLE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random policies of four methods, as a sweep would leave them."""
    home = tmp_path_factory.mktemp("results")
    env = {"episode": {"horizon_s": 6.0}}
    open_folder(home, "tiny", {"name": "tiny", "env": scenario("paper").model_dump(mode="json") | env}, "0")
    for method in METHODS:
        trial = TrialConfig(method=method)
        save_policy(home / "policies" / trial.name, random_network(method=method), trial, epochs=1)
    return home


def key(method: str, **values: object) -> EpisodeKey:
    trial = TrialConfig(method=method) if method in METHODS else None
    plain = EpisodeKey(
        cell=trial.cell if trial else method,
        method=method,
        kind="learned" if trial else "heuristic",
        train_seed=42 if trial else None,
        overrides="",
        scenario="paper",
        test_servers=16,
        mask="none",
        decision="argmax",
        eval_seed=1000,
        episode=2,
    )
    return replace(plain, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("scale", {}),
        ("scale", {"test_servers": 32, "mask": "feasible"}),
        ("scale", {"decision": "sample"}),
        ("attention-model", {}),
        ("set-transformer", {"mask": "feasible"}),
        ("ppo", {}),
    ],
)
def test_replay_of_a_policy_is_the_evaluated_episode(folder: Path, method: str, values: dict[str, object]) -> None:
    asked = key(method, **values)
    policy = load_policy(folder / "policies" / TrialConfig(method=method).name, asked.mask, asked.decision)
    env = scenario("paper").at_scale(asked.test_servers).with_mask(asked.mask)
    row = evaluate(policy, env, asked.eval_seed, 3)[asked.episode]
    played = replay(folder, asked)
    assert {name: row[name] for name in played.metrics} == pytest.approx(played.metrics, nan_ok=True)
    check_decisions(played)
    for k in range(0, len(played.decisions), 7):
        view = look(played, k)
        assert isinstance(view, DecisionView)
        assert view.probabilities.sum() == pytest.approx(1)
        if asked.decision == "argmax":
            best = view.probabilities.max()
            assert view.probabilities[played.decisions["server"][k]] == pytest.approx(best, rel=1e-4)
        has_attention = method in ("scale", "attention-model")
        assert (view.attention is not None) == has_attention
        if view.attention is not None:
            assert view.attention.shape == (2, 4, asked.test_servers)
            assert view.attention.sum(-1) == pytest.approx(np.ones((2, 4)))


@pytest.mark.parametrize("method", ["fastest-idle", "earliest-finish", "heft"])
def test_replay_of_a_heuristic_is_the_evaluated_episode(folder: Path, method: str) -> None:
    env = scenario("paper").at_scale(16)
    row = evaluate(make_scheduler(method, env.observation), env, 1000, 3)[2]
    played = replay(folder, key(method))
    assert {name: row[name] for name in played.metrics} == pytest.approx(played.metrics, nan_ok=True)
    check_decisions(played)
    assert look(played, 0) is None


def check_decisions(played: Replay) -> None:
    """Those that started a task are the schedule, the others are the invalid ones that the engine counts."""
    decisions, schedule = played.decisions, played.schedule
    assert len(decisions) == played.metrics["decisions"]
    started = decisions[decisions["outcome"] == STARTED]
    assert len(started) == len(schedule) > 0
    for name in ("workflow", "task", "server"):
        assert started[name].tolist() == schedule[name].tolist()
    assert started["clock_s"].tolist() == schedule["start_s"].tolist()
    for metric, cause in CAUSES.items():
        assert (decisions["outcome"] == cause).sum() == played.metrics[metric]
    for workflow, task in zip(schedule["workflow"], schedule["task"], strict=True):
        assert task < np.diff(played.workload.task_offsets)[workflow]


def test_heuristic_on_the_training_problem_plays_the_one_of_its_overrides(folder: Path) -> None:
    asked = key("fastest-idle", scenario="train", overrides="env.episode.clock_step_s=0.25; env.episode.mask=feasible")
    env = problem(folder, asked)
    assert (env.episode.horizon_s, env.episode.clock_step_s) == (6.0, 0.25)
    assert env.episode.mask == "none"  # the row's own column says what it was evaluated with


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"cell": "0123"}, "no such policy folder"),
        ({"scenario": "marsh"}, "scenario 'marsh': unknown"),
    ],
)
def test_what_cannot_be_played_again_says_why(folder: Path, values: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        replay(folder, key("scale", **values))
