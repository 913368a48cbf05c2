"""Behaviour cloning: what an expert shows, and what is learned from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.algorithms.algorithm import Algorithm

from local_ray import LOCAL_RAY
from rl.learned import train
from rllib_scale.config import EnvConfig, TrialConfig, TrialResources
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.loading import sweep_from
from rllib_scale.networks.build import build_network, input_spec
from rllib_scale.observation.answers import CLOSED, OPEN, TAKEN
from rllib_scale.policies.policy import TrainedPolicy, save_policy, save_weights
from rllib_scale.rl.imitation.cloning import DemonstrationTensors, cross_entropy
from rllib_scale.rl.imitation.demonstrations import (
    Demonstrations,
    alike,
    collect,
    demonstrate,
    demonstration_seed,
    joined,
)
from rllib_scale.schedulers.rules import make_scheduler

pytestmark = LOCAL_RAY
SHORT = {"epochs": 4, "steps_per_epoch": 4096, "minibatch_size": 256, "learning_rate": 3e-3}
ROUNDS = EnvConfig.model_validate(
    {
        "cluster": {"servers": 8},
        "workload": {"offered_load": 0.9},
        "episode": {"horizon_s": 60},
        "decision": {"on_busy": "reserve"},
        "observation": {"feature_set": "rounds"},
    }
)


def trial_of(
    expert: str, env: EnvConfig | None = None, imitation: dict[str, Any] | None = None, **settings: Any
) -> TrialConfig:
    cloning = SHORT | {"name": "imitation", "expert": expert, "episodes": 12, "holdout_episodes": 6} | (imitation or {})
    return TrialConfig.of(**{"method": "crossattn", "env": env or EnvConfig(), "algorithm": cloning} | settings)


def assert_same(one: Demonstrations, other: Demonstrations) -> None:
    assert one.passed == other.passed
    for name in ("rows", "chosen", "alike", "choosable"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def response(engine: Any, episodes: int) -> float:
    return float(np.mean([engine.metrics(b)["response_mean_s"] for b in range(episodes)]))


# ---------------------------------------------------------------------- demonstrations


@pytest.mark.parametrize("expert", ["fastest-idle", "large-only", "sticky"])
def test_a_rule_shows_every_decision_of_its_episodes(expert: str) -> None:
    trial = trial_of(expert)
    shown = demonstrate(trial, [0, 1, 2])
    scheduler = make_scheduler(expert, trial.env.observation)
    engine = play(scheduler, trial.env, demonstration_seed(trial.seed), [0, 1, 2])
    assert [len(shown.chosen), shown.passed] == [sum(engine.metrics(b)["decisions"] for b in range(3)), 0]
    # Whatever features the expert reads, the learner is shown its own.
    assert shown.rows.shape == (len(shown.chosen), 5 + 5 * 16)
    assert shown.choosable.all()
    assert shown.alike[np.arange(len(shown.chosen)), shown.chosen].all()


def test_ray_tasks_show_what_one_process_does() -> None:
    alone = trial_of("fastest-idle", imitation={"episodes": 20})
    spread = alone.model_copy(update={"resources": TrialResources(env_runners=2)})
    for here, there in zip(collect(alone), collect(spread), strict=True):
        assert_same(here, there)
    assert alone.trial_id == spread.trial_id
    assert alone.trial_id != trial_of("earliest-finish", imitation={"episodes": 20}).trial_id


@pytest.mark.parametrize("expert", ["non-blocking", "reserve", "price", "hungarian"])
def test_dispatchers_show_rows_to_start_on_and_to_wait_for(expert: str) -> None:
    trial = trial_of(expert, ROUNDS)
    shown = demonstrate(trial, [0, 1])
    _, mask = input_spec(trial).split_mask(shown.rows, masked=True)
    assert mask is not None
    assert len(shown.chosen) > 30
    at = np.arange(len(shown.chosen))
    assert mask[at, shown.chosen].all()
    remaining = input_spec(trial).split_mask(shown.rows, masked=True)[0][:, 13:].reshape(len(at), 8, -1)[..., 2]
    waits = remaining[at, shown.chosen] > 0
    assert waits.any() == (expert != "non-blocking")
    assert (~waits).any()


def test_as_good_an_answer_looks_the_same_or_lets_a_task_wait_as_long() -> None:
    trial = trial_of("fastest-idle")
    servers = np.zeros((2, 4, 5), dtype=np.float32)
    servers[:, :, 0] = [1, 1, 1, 0.5]
    servers[:, :, 2] = [0, 0, 3, 4]
    rows = np.concatenate([np.ones((2, 5), np.float32), servers.reshape(2, -1)], axis=1)
    fit = np.array([[OPEN, OPEN, TAKEN, CLOSED]] * 2)
    spec, chosen = input_spec(trial), np.array([1, 2])
    same = alike(spec, rows, fit, chosen, trial.env)
    assert same.tolist() == [[True, True, False, False], [False, False, True, True]]
    # In rounds of reservations who waits waits for one server.
    rounds = EnvConfig.model_validate({"decision": {"on_busy": "reserve"}})  # whose rows end in a mask
    same = alike(spec, np.concatenate([rows, np.ones((2, 4), np.float32)], axis=1), fit, chosen, rounds)
    assert same.tolist() == [[True, True, False, False], [False, False, True, False]]


def test_where_nothing_can_be_learned_one_line_says_so() -> None:
    env = EnvConfig.model_validate({"episode": {"horizon_s": 0.001}})
    with pytest.raises(UserError, match=r"algorithm\.episodes: in none of 0 decisions does fastest-idle name a server"):
        collect(trial_of("fastest-idle", env))


def test_an_expert_plays_the_problems_that_are_drawn() -> None:
    problems = {"servers": [4, 8], "offered_load": [0.4, 1.1]}
    trial = trial_of("reserve", ROUNDS, imitation={"problems": problems})
    shown = demonstrate(trial, range(6))
    assert_same(shown, joined([demonstrate(trial, [k]) for k in range(6)]))
    spec = input_spec(trial)
    observations, _ = spec.split_mask(shown.rows, masked=True)
    there = (observations[:, spec.task_dim :].reshape(len(observations), 8, -1)[:, :, 0] > 0).sum(axis=1)
    assert set(there) == {4, 8}
    assert (shown.chosen[there == 4] < 4).all()


def test_a_network_is_an_expert_for_another(tmp_path: Path) -> None:
    teacher = TrialConfig.of("crossattn", env=ROUNDS)
    network = build_network(teacher)
    save_policy(tmp_path / "teacher", network, teacher, epochs=1)
    trial = trial_of(f"{tmp_path}/teacher", ROUNDS, method="scale", seed=5)
    shown = demonstrate(trial, [0, 1])
    assert len(shown.chosen) > 30
    assert shown.passed == 0
    observations, mask = input_spec(trial).split_mask(shown.rows, masked=True)
    chosen = TrainedPolicy(network, teacher, epochs=1)(observations, np.where(mask, OPEN, CLOSED)[:, None])
    assert shown.alike[np.arange(len(chosen)), chosen].all()
    with pytest.raises(UserError, match="decides in rounds of its own"):
        demonstrate(trial_of(f"{tmp_path}/teacher", EnvConfig().with_mask("feasible")), [0])


def test_a_price_policy_is_an_expert(tmp_path: Path) -> None:
    weights = np.zeros((8, 13))
    weights[:, 0] = [4.4, -0.9, 0.035, 2.0, 2.7, 0.2, 6.6, 2.8]
    weights[:, 1:] = 0.2 * np.random.default_rng(1).normal(size=(8, 12))
    teacher = TrialConfig.of(**{"method": "context-price", "env": ROUNDS.model_dump(mode="json")})
    tensors = {"weights": weights, "speeds": np.array([1.0, 2.0, 4.0])}
    save_weights(tmp_path / "prices", tensors, teacher, epochs=1)
    shown = demonstrate(trial_of(f"{tmp_path}/prices", ROUNDS), [0, 1])
    assert len(shown.chosen) > 30
    assert shown.passed == 0
    assert len(np.unique(shown.chosen)) > 4


# ---------------------------------------------------------------------- learning


def test_cross_entropy_is_of_the_probability_of_all_that_is_as_good() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.7, 0.2]])) + 3
    good = torch.tensor([[False, True, True], [False, True, False]])
    assert cross_entropy(logits, good).item() == pytest.approx(-np.mean(np.log([0.5, 0.7])))
    logits.requires_grad_()
    cross_entropy(logits, torch.tensor([[True, True, True], [False, False, True]])).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([[0.0, 0.0, 0.0], [0.05, 0.35, -0.4]]))


def test_every_row_is_learned_from_once_a_pass() -> None:
    trial = trial_of("fastest-idle", imitation={"steps_per_epoch": 512})
    shown = demonstrate(trial, range(20))
    lessons, rows = DemonstrationTensors(trial, shown, 512), len(shown.chosen)
    assert 512 < rows < 2048
    order = torch.cat([lessons.of_epoch(epoch) for epoch in range(-(-2 * rows // 512))])
    for k in (0, 1):
        assert sorted(order[k * rows : (k + 1) * rows].tolist()) == list(range(rows))
    assert order[:rows].tolist() != order[rows : 2 * rows].tolist()


def test_a_clone_of_the_fastest_idle_server_decides_as_it_does(
    algorithm_of: Callable[[TrialConfig], Algorithm],
) -> None:
    trial = trial_of("fastest-idle", imitation={"episodes": 48})
    algorithm = algorithm_of(trial)
    rows = train(algorithm, 4)
    assert rows[-1]["agreement"] > 0.95
    assert rows[-1]["imitation_loss"] < 0.5 * rows[0]["imitation_loss"]
    assert rows[-1]["learning_rate"] < rows[0]["learning_rate"] == 3e-3
    assert np.isnan(rows[-1]["value_loss"])
    # The agreement is that of the policy as it is exported, on episodes that it has not learned from.
    policy = TrainedPolicy(algorithm.get_module().network, trial, epochs=4)
    held_out = demonstrate(trial, range(48, 54))
    chosen = policy(held_out.rows, np.full((len(held_out.rows), 1, 16), OPEN))
    assert held_out.alike[np.arange(len(chosen)), chosen].mean() == pytest.approx(rows[-1]["agreement"], abs=0.01)
    expert = make_scheduler("fastest-idle", trial.env.observation)
    cloned, shown = (response(play(player, trial.env, 5, list(range(8))), 8) for player in (policy, expert))
    assert cloned == pytest.approx(shown, rel=0.05)


@pytest.mark.slow
def test_a_network_learns_for_which_server_to_wait(algorithm_of: Callable[[TrialConfig], Algorithm]) -> None:
    rows = train(algorithm_of(trial_of("reserve", ROUNDS, method="scale")), 4)
    assert rows[-1]["agreement"] > rows[0]["agreement"] > 0.2
    assert rows[-1]["imitation_loss"] < rows[0]["imitation_loss"]
    assert rows[-1]["srr_kl"] > 0


@pytest.mark.parametrize(
    ("expert", "parts"),
    [
        ("reserve", ["algorithm.expert reserve", "env.decision.on_busy reserve"]),
        ("heft", ["algorithm.expert heft", "plans ahead", "valid: random-feasible, "]),
    ],
    ids=str,
)
def test_what_cannot_be_imitated_is_refused(expert: str, parts: list[str]) -> None:
    with pytest.raises(ValueError, match=parts[0]) as refused:
        TrialConfig.of(algorithm={"name": "imitation", "expert": expert})
    assert all(part in str(refused.value) for part in parts), refused.value


@pytest.mark.parametrize(
    ("expert", "message"), [("fastest", "'fastest'.*fastest-idle"), ("no/where", "no/where/policy")]
)
def test_an_expert_that_is_not_there_is_refused_as_the_sweep_is_read(expert: str, message: str) -> None:
    imitation = {"name": "imitation", "expert": expert}
    with pytest.raises(UserError, match=f"algorithm.expert: .*{message}"):
        sweep_from({"name": "x", "methods": ["crossattn"], "algorithm": imitation}, "x.yaml")
