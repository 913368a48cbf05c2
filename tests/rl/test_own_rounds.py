"""Trainings in reserving rounds: the problems that are drawn for them, and what their policies play."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from envs.problems import reserving
from rllib_scale.config import SCENARIOS, EnvConfig, ProblemsConfig, TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate
from rllib_scale.networks.build import build_network
from rllib_scale.policies.policy import load_policy, save_policy
from rllib_scale.rl.drawn_problems import draw_problem
from rllib_scale.rl.vector_env import TrainingVectorEnv
from rllib_scale.workloads.generators import generate

PROBLEMS = ProblemsConfig(servers=(4, 6, 12), offered_load=(0.4, 1.2))


def steady(until_s: float = 10.0, servers: int = 8) -> EnvConfig:
    env = SCENARIOS["steady-0.9"][0].at_scale(servers)
    episode = env.episode.model_copy(update={"arrivals_until_s": until_s})
    return env.model_copy(update={"episode": episode})


def test_a_problem_is_decided_by_seed_and_episode() -> None:
    keys = list(itertools.product((0, 1, 2**32, 2**63 - 1), (0, 1, 2, 2**32)))
    drawn = [draw_problem(PROBLEMS, steady(), *key) for key in keys]
    assert drawn == [draw_problem(PROBLEMS, steady(), *key) for key in keys]
    assert len({problem.workload.offered_load for problem in drawn}) == len(keys), "no two have a draw in common"
    assert {problem.cluster.num_rows for problem in drawn} == {12}, "smaller ones have empty rows"
    many = [draw_problem(PROBLEMS, steady(), 5, episode) for episode in range(300)]
    sizes, counts = np.unique([problem.cluster.num_servers for problem in many], return_counts=True)
    assert sizes.tolist() == [4, 6, 12]
    assert counts.min() > 70
    loads = [problem.workload.offered_load or 0 for problem in many]
    assert 0.4 <= min(loads) < max(loads) <= 1.2
    np.testing.assert_allclose(np.mean(loads), 0.8, atol=0.04)


def test_neighbouring_episodes_share_no_draws() -> None:
    env = steady(until_s=150.0)
    workloads = [generate(env, seed, episode) for seed in (1000, 1001, 1002) for episode in (0, 1, 2)]
    for name in ("compute_gflop", "output_gb", "arrival_s"):
        drawn = [getattr(workload, name) for workload in workloads]
        drawn = [np.diff(values) for values in drawn] if name == "arrival_s" else drawn
        ends = min(map(min, drawn)), max(map(max, drawn))  # at which draws are cut
        values = [set(values.tolist()) - set(ends) for values in drawn]
        assert all(len(one) > 50 for one in values) or name == "arrival_s"
        assert not any(one & other for one, other in itertools.combinations(values, 2)), name


def played(env: TrainingVectorEnv, steps: int) -> list[np.ndarray]:
    """What is shown in so many steps, in which the first row that the mask leaves open is named."""
    shown, rows = [], env._rows
    for _ in range(steps):
        rows, reward, terminated, truncated, _ = env.step(rows[:, -env.config.cluster.num_rows :].argmax(1))
        shown.append(np.column_stack([rows, reward, terminated, truncated, env._engine.elapsed]))
    return shown


def test_episodes_of_drawn_problems_go_on_exactly_where_they_were() -> None:
    env, other = (TrainingVectorEnv(3, reserving(steady()), 42, PROBLEMS, reward_unit=2.0) for _ in range(2))
    env.reset(seed=[7, 8, 9])
    first = played(env, 400)
    assert sum(row[:, -3].sum() for row in first) >= 3, "episodes end, others of other problems begin"
    state = env.get_state()
    rest = played(env, 200)
    other.reset(seed=[1, 2, 3])
    other.set_state(state)
    np.testing.assert_array_equal(played(other, 200), rest)


def test_rewards_are_learned_from_by_server() -> None:
    config = reserving(steady(until_s=150.0))  # no episode ends so soon
    plain, scaled = (TrainingVectorEnv(2, config, 42, PROBLEMS, unit) for unit in (None, 5.0))
    servers = [draw_problem(PROBLEMS, config, seed, 0).cluster.num_servers for seed in (3, 4)]
    for env in (plain, scaled):
        env.reset(seed=[3, 4])
    rewards = [np.array([row[:, -4] for row in played(env, 15)]) for env in (plain, scaled)]
    assert (rewards[0] < 0).any()
    np.testing.assert_allclose(rewards[1], rewards[0] / (5.0 * np.array(servers)), rtol=1e-6)


def test_a_policy_for_rounds_plays_any_scenario_in_its_own(tmp_path: Path) -> None:
    own = TrialConfig.of("crossattn", env=reserving(EnvConfig()))
    save_policy(tmp_path, build_network(own), own, epochs=0)
    for servers, rules in ((8, {"mask": "feasible"}), (24, {})):
        env = steady(servers=servers)
        played = evaluate(load_policy(tmp_path, **rules), env, seed=1, episodes=3)
        assert sum(row["waits"] for row in played) > 0
        assert all(row["unfinished"] == row["invalid_busy_avoidable"] == row["invalid_no_fit"] == 0 for row in played)
        arrived = [generate(env, 1, episode).num_workflows for episode in range(3)]
        assert [row["workflows_completed"] for row in played] == arrived, "the workloads are those of every method"
    with pytest.raises(UserError, match=f"{own.name} decides for all waiting tasks .*valid: mask feasible, or"):
        evaluate(load_policy(tmp_path), EnvConfig(), seed=1, episodes=1)
