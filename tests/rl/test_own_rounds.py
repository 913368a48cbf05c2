"""Methods that decide in reserving rounds: what they train on, small real trainings, and what they export."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import same, weights_of
from rllib_scale.config import SCENARIOS, EnvConfig, ProblemsConfig, TrialConfig
from rllib_scale.config.rounds import in_rounds
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.workloads.generators import generate

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.algorithms.algorithm import Algorithm  # noqa: E402

from rllib_scale.evaluation.play import evaluate  # noqa: E402
from rllib_scale.policies.policy import load_policy, save_policy  # noqa: E402
from rllib_scale.rl.drawn_problems import draw_problem  # noqa: E402
from rllib_scale.rl.environment import TrainingVectorEnv  # noqa: E402
from rllib_scale.rl.methods import training_row  # noqa: E402

EPOCH = 128
PROBLEMS = ProblemsConfig(servers=(4, 6, 12), offered_load=(0.4, 1.2))


def steady(until_s: float = 10.0, servers: int = 8) -> EnvConfig:
    env = SCENARIOS["steady-0.9"][0].at_scale(servers)
    episode = env.episode.model_copy(update={"arrivals_until_s": until_s})
    return env.model_copy(update={"episode": episode})


def trial(method: str = "crossattn-r", **training: Any) -> TrialConfig:
    settings = {
        "epochs": 2,
        "steps_per_epoch": EPOCH,
        "minibatch_size": 32,
        "passes": 2,
        "problems": PROBLEMS,
    }
    data = {"method": method, "env": steady(), "training": settings | training, "srr": {"ramp_start_epoch": 0}}
    return build_model(TrialConfig, data, "trial")


# ---------------------------------------------------------------------- problems


def test_a_problem_is_decided_by_seed_and_episode() -> None:
    keys = list(itertools.product((0, 1, 2**32, 2**63 - 1), (0, 1, 2, 2**32)))
    drawn = [draw_problem(PROBLEMS, steady(), *key) for key in keys]
    assert drawn == [draw_problem(PROBLEMS, steady(), *key) for key in keys]
    loads = [problem.workload.offered_load for problem in drawn]
    assert len(set(loads)) == len(keys), "no two have a draw in common"
    assert all(0.4 <= load <= 1.2 for load in loads if load is not None)
    assert {problem.cluster.num_servers for problem in drawn} == {4, 6, 12}
    assert {problem.cluster.num_slots for problem in drawn} == {12}, "smaller ones have empty slots"
    many = [draw_problem(PROBLEMS, steady(), 5, episode) for episode in range(300)]
    counts = np.unique([problem.cluster.num_servers for problem in many], return_counts=True)[1]
    assert counts.min() > 70
    np.testing.assert_allclose(np.mean([problem.workload.offered_load or 0 for problem in many]), 0.8, atol=0.04)


def test_neighbouring_episodes_share_no_draws() -> None:
    env = steady(until_s=150.0)
    workloads = [generate(env, seed, episode) for seed in (1000, 1001, 1002) for episode in (0, 1, 2)]
    for name in ("compute_gflop", "output_gb"):
        drawn = [getattr(workload, name) for workload in workloads]
        ends = min(map(min, drawn)), max(map(max, drawn))  # at which draws are cut
        values = [set(values.tolist()) - set(ends) for values in drawn]
        assert all(len(one) > 50 for one in values)
        assert not any(one & other for one, other in itertools.combinations(values, 2)), name
    gaps = [set(np.diff(workload.arrival_s).tolist()) for workload in workloads]
    assert not any(one & other for one, other in itertools.combinations(gaps, 2))


def played(env: TrainingVectorEnv, steps: int) -> list[np.ndarray]:
    """What is shown in so many steps, in which the first row that the mask leaves open is named."""
    shown, rows = [], env._rows
    for _ in range(steps):
        rows, reward, terminated, truncated, infos = env.step(rows[:, -env.config.cluster.num_slots :].argmax(1))
        shown.append(np.column_stack([rows, reward, terminated, truncated, infos["elapsed_s"]]))
    return shown


def test_episodes_of_drawn_problems_go_on_exactly_where_they_were() -> None:
    config = trial().env
    env = TrainingVectorEnv(3, config, 42, PROBLEMS, reward_unit=2.0)
    env.reset(seed=[7, 8, 9])
    first = played(env, 400)
    assert sum(row[:, -3].sum() for row in first) >= 3, "episodes end, others of other problems begin"
    state = env.get_state()
    rest = played(env, 200)
    other = TrainingVectorEnv(3, config, 42, PROBLEMS, reward_unit=2.0)
    other.reset(seed=[1, 2, 3])
    other.set_state(state)
    np.testing.assert_array_equal(played(other, 200), rest)


def test_rewards_are_learned_from_by_server() -> None:
    config = in_rounds(steady(until_s=150.0))  # no episode ends so soon
    plain, scaled = (TrainingVectorEnv(2, config, 42, PROBLEMS, unit) for unit in (None, 5.0))
    servers = [draw_problem(PROBLEMS, config, seed, 0).cluster.num_servers for seed in (3, 4)]
    for env in (plain, scaled):
        env.reset(seed=[3, 4])
    rewards = [np.array([row[:, -4] for row in played(env, 15)]) for env in (plain, scaled)]
    assert (rewards[0] < 0).any()
    np.testing.assert_allclose(rewards[1], rewards[0] / (5.0 * np.array(servers)), rtol=1e-6)


# ---------------------------------------------------------------------- trainings


@pytest.mark.parametrize("method", ["scale-r", slow("crossattn-r")])
def test_a_method_for_rounds_learns_and_its_policy_plays_any_scenario(
    algorithm_of: Callable[[TrialConfig], Algorithm], tmp_path: Path, method: str
) -> None:
    own = trial(method)
    algorithm = algorithm_of(own)
    before = weights_of(algorithm)
    rows = [training_row(algorithm.train(), epoch, EPOCH) for epoch in (1, 2)]
    for row in rows:
        assert all(np.isfinite([row["policy_loss"], row["value_loss"], row["gradient_norm"]]))
        assert row["value_loss"] < 10, "returns are about 1"
    assert (rows[1]["srr_lambda_kl"] > 0) == (method == "scale-r")
    after = weights_of(algorithm)
    for name in ("network.skip.bias", "network.skip.weight", "network.pointer_query.weight"):
        assert not np.array_equal(before[name], after[name]), name

    save_policy(tmp_path, algorithm.get_module().network, own, epochs=2)
    for servers in (8, 24):
        env = steady(servers=servers)
        rules = {"mask": "feasible"} if servers == 8 else {}
        played = evaluate(load_policy(tmp_path, **rules), env, seed=1, episodes=3)
        assert sum(row["waits"] for row in played) > 0
        assert all(row["unfinished"] == row["invalid_busy_avoidable"] == row["invalid_no_fit"] == 0 for row in played)
        arrived = [generate(env, 1, episode).num_workflows for episode in range(3)]
        assert [row["workflows_completed"] for row in played] == arrived, "the workloads are those of every method"
    with pytest.raises(UserError, match=f"{own.name} holds rows back .*valid: mask feasible, or") as refused:
        evaluate(load_policy(tmp_path), EnvConfig(), seed=1, episodes=1)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_training_on_drawn_problems_is_resumed_bit_for_bit(
    algorithm_of: Callable[[TrialConfig], Algorithm], tmp_path: Path
) -> None:
    first = algorithm_of(trial())
    first.train()
    first.save_to_path(str(tmp_path / "checkpoint"))
    first.train()
    second = algorithm_of(trial())
    second.restore_from_path(str(tmp_path / "checkpoint"))
    second.train()
    assert same(weights_of(first), weights_of(second))


def test_the_untrained_network_decides_as_the_price_rule(tmp_path: Path) -> None:
    from rllib_scale.networks.build import build_network
    from rllib_scale.schedulers.rules import make_scheduler

    env = SCENARIOS["steady-0.9"][0]
    own = build_model(TrialConfig, {"method": "crossattn-r"}, "trial")
    save_policy(tmp_path, build_network(own), own, epochs=0)
    players = (load_policy(tmp_path), *(make_scheduler(name, env.observation) for name in ("price", "fastest-idle")))
    start, price, base = (np.mean([r["response_mean_s"] for r in evaluate(p, env, 3, 8)]) for p in players)
    assert abs(start - price) < 0.3 * (base - price)
