"""Configs: presets, numbers of the paper, hashes, and clear errors for bad input."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_scale.config import (
    SCENARIOS,
    ClusterConfig,
    EnvConfig,
    NormalConfig,
    ProblemsConfig,
    SRRConfig,
    TierConfig,
    TrialConfig,
    WorkloadConfig,
    scale_counts,
)
from rllib_scale.config.yaml_files import load_model, parse_yaml
from rllib_scale.errors import UserError


def counts(cluster: ClusterConfig) -> tuple[int, ...]:
    return tuple(tier.count for tier in cluster.tiers)


@pytest.mark.parametrize(
    ("name", "expected"), [("paper-16", (4, 10, 2)), ("paper-32", (8, 20, 4)), ("paper-48", (12, 30, 6))]
)
def test_presets_have_the_counts_of_the_paper(name: str, expected: tuple[int, ...]) -> None:
    assert counts(ClusterConfig.model_validate(name)) == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(5, 5000))
def test_scaling_keeps_total_ratio_and_every_tier(ratio: list[int], total: int) -> None:
    scaled = scale_counts(tuple(ratio), total)
    assert sum(scaled) == total
    assert min(scaled) >= 1
    shares = [total * r / sum(ratio) for r in ratio]
    if min(shares) >= 1:
        assert max(abs(a - b) for a, b in zip(scaled, shares, strict=True)) < 1


def test_arrival_rates_of_the_paper() -> None:
    rates = [EnvConfig().at_scale(n).arrival_rate for n in (16, 32, 48)]
    assert rates == pytest.approx([1.0, 2.0, 3.0])


def test_offered_load_sets_the_arrival_rate() -> None:
    steady = SCENARIOS["steady-0.7"][0]
    work = steady.arrival_rate * steady.workload.mean_workflow_gflop
    assert work == pytest.approx(0.7 * steady.cluster.total_gflops)


@pytest.mark.parametrize(
    "dist",
    [
        NormalConfig(mean=10, std=3, low=1, bound="truncate"),
        NormalConfig(mean=4, std=3, low=3, high=6, bound="truncate"),
        NormalConfig(mean=4, std=3, low=3, high=6),
        NormalConfig(mean=2, std=0, low=3),
    ],
)
def test_mean_compute_is_that_of_the_bounded_distribution(dist: NormalConfig) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(dist.mean, dist.std, 1_000_000)
    high = np.inf if dist.high is None else dist.high
    x = x[(x >= dist.low) & (x <= high)] if dist.bound == "truncate" else np.clip(x, dist.low, high)
    workload = WorkloadConfig(compute_gflop=dist, min_tasks=1, max_tasks=1)
    assert workload.mean_workflow_gflop == pytest.approx(x.mean(), abs=0.01)


def test_cell_hash_sees_what_decides_the_weights_and_nothing_else() -> None:
    trial = TrialConfig()
    assert TrialConfig(seed=43).cell != trial.cell
    assert TrialConfig(srr=SRRConfig(lambda_kl=0.5)).cell != trial.cell
    assert TrialConfig.model_validate({"resources": {"cpus": 2}}).cell == trial.cell
    assert TrialConfig.model_validate({"resources": {"env_runners": 2}}).cell != trial.cell
    assert TrialConfig.model_validate_json(trial.model_dump_json()).cell == trial.cell


@pytest.mark.parametrize(
    ("settings", "cell"),
    [
        ({}, "8dbe94c0d36d"),
        ({"method": "dqn", "seed": 7, "dqn": {"batch_size": 32}, "sac": {"batch_size": 128}}, "59f63d61b415"),
        (
            {"method": "ppo", "srr": {"lambda_kl": 0.5}, "resources": {"env_runners": 2, "cpus": 3}},
            "adeaa9b6ae5c",
        ),
        (
            {
                "env": {"cluster": {"servers": 32}},
                "network": {"num_blocks": 1},
                "training": {"epochs": 60},
                "stop": {"epochs": 5},
                "population": "abc",
            },
            "c68ec99b4dd5",
        ),
    ],
)
def test_cell_hash_stays_what_it_is(settings: dict[str, object], cell: str) -> None:
    """By it finished trainings are found again: one that changes trains everything anew."""
    assert TrialConfig.model_validate(settings).cell == cell


def test_method_without_srr_has_no_lambdas() -> None:
    weighted = TrialConfig(method="crossattn", srr=SRRConfig(lambda_kl=0.5))
    assert weighted.srr.lambda_kl == weighted.srr.lambda_decorrelation == 0
    assert weighted.cell == TrialConfig(method="crossattn").cell


def test_numbers_with_an_exponent_are_numbers() -> None:
    assert parse_yaml("[3e-4, 1E5, -2e+3, 1.5e3]", "x") == [3e-4, 1e5, -2e3, 1.5e3]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("trainin: {}", ["unknown key 'trainin'", "did you mean 'training'?"]),
        ("training: {lerning_rate: 3e-4}", ["'training.lerning_rate'", "did you mean 'learning_rate'?"]),
        ("training: {learning_rate: fast}", ["training.learning_rate", "valid number", "'fast'"]),
        ("training: {learning_rate: -1}", ["training.learning_rate", "greater than 0", "-1"]),
        ("training: {minibatch_size: 100}", ["1024", "multiple", "100"]),
        ("env: {cluster: paper-17}", ["env.cluster", "'paper-17'", "paper-16, paper-32, paper-48"]),
        ("env: {cluster: {servers: 3}}", ["env.cluster.servers", "4", "3"]),
        ("env: {workload: {topology: ring}}", ["env.workload.topology", "'ring'", "chain"]),
        ("env: {workload: {min_tasks: 9}}", ["max_tasks 8", "min_tasks 9"]),
        ("method: scael", ["unknown method 'scael'", "did you mean 'scale'?", "valid: scale"]),
        ("network: {num_heads: 3}", ["network", "16", "3"]),
        ("stop: {epochs: 1, env_steps: 2}", ["stop", "not both"]),
        ("training: {problems: {offered_load: [2, 1]}}", ["training.problems", "low 2.0", "high 1.0"]),
        ("method: ppo\ntraining: {problems: {servers: [8]}}", ["training.problems.servers", "ppo", "fixed"]),
        ("seed: 1\nseed: 2", ["line 2", "'seed' stands twice"]),
        ("seed: [1", ["not valid YAML", "line"]),
        ("- 1", ["mapping", "list"]),
    ],
)
def test_bad_config_gives_one_clear_line(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_model(TrialConfig, path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_cluster_into_which_no_task_fits_is_refused() -> None:
    tiny = TierConfig(name="tiny", count=4, compute_gflops=1, memory_gb=0.5)
    with pytest.raises(ValueError, match=r"at most 0\.5"):
        EnvConfig(cluster=ClusterConfig(tiers=(tiny,)))


def test_problems_of_a_training_are_drawn_in_their_ranges() -> None:
    env = SCENARIOS["steady-0.7"][0]
    problems = ProblemsConfig(servers=(8, 16, 32), offered_load=(0.4, 1.2))
    drawn = [problems.draw(env, u, v) for u, v in ((0.0, 0.0), (0.34, 0.5), (0.99, 0.75))]
    assert [problem.cluster.num_servers for problem in drawn] == [8, 16, 32]
    np.testing.assert_allclose([problem.workload.offered_load or 0 for problem in drawn], [0.4, 0.8, 1.0])
    assert all(problem.episode == env.episode for problem in drawn)
    assert ProblemsConfig().draw(env, 0.5, 0.5) == env
    default, ranged = (TrialConfig(env=env, training={"problems": p}) for p in (None, problems))  # type: ignore[arg-type]
    assert default.cell == TrialConfig(env=env).cell != ranged.cell
