"""Distribution and drift of the attention feature: on samples whose values are known, and on a policy's decisions."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats as scipy_stats

from networks.observations import NETWORKS
from rllib_scale.config import EnvConfig, TrialConfig, scenario
from rllib_scale.evaluation import feature_drift as features
from rllib_scale.evaluation.feature_drift import DecisionSample, drift, evaluate_with_features, squared_mmd, statistics
from rllib_scale.evaluation.feature_drift import wasserstein as wasserstein_mean
from rllib_scale.evaluation.play import evaluate, play
from rllib_scale.networks.build import build_network
from rllib_scale.networks.srr import feature_statistics
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.results.columns import FEATURE_COLUMNS
from rllib_scale.simulator.engine import Engine

torch.set_num_threads(1)  # tests run side by side


def normal(rows: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, d))


def policy(method: str = "scale", servers: int = 16) -> TrainedPolicy:
    trial = TrialConfig.of(**{"method": method, "env": {"cluster": {"servers": servers}}})
    torch.manual_seed(0)
    return TrainedPolicy(build_network(trial), trial, epochs=0, mask="feasible")


def problem(servers: int) -> EnvConfig:
    return EnvConfig().at_scale(servers).with_mask("feasible")


# ---------------------------------------------------------------------- statistics


def test_literal_covariance() -> None:
    # Means 3 and 2; variances 4 and 4, covariance 2; eigenvalues 6 and 2.
    found = statistics(np.array([[1.0, 2.0], [3.0, 0.0], [5.0, 4.0]]))
    assert found["feature_covariance"] == pytest.approx(2)
    assert found["feature_correlation"] == pytest.approx(0.5)
    assert found["feature_variance"] == pytest.approx(4)
    assert found["feature_kl"] == pytest.approx((19 - 2 * math.log(4)) / 4)
    assert found["feature_effective_rank"] == pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)))


def test_correlation_and_rank_do_not_see_a_shrunken_feature_that_covariance_and_kl_reward_or_punish() -> None:
    wide = normal(500, 3, seed=2) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])
    found, shrunken = statistics(wide), statistics(0.1 * wide)
    assert shrunken["feature_covariance"] == pytest.approx(found["feature_covariance"] / 100)
    assert shrunken["feature_kl"] > found["feature_kl"] + 1
    for name in ("feature_correlation", "feature_effective_rank"):
        assert shrunken[name] == pytest.approx(found[name])


def test_statistics_are_those_of_the_training_columns() -> None:
    sample = normal(300, 5, seed=3) ** 3
    expected = feature_statistics(torch.from_numpy(sample))._asdict()
    assert statistics(sample) == {f"feature_{name}": float(value) for name, value in expected.items()}


# ---------------------------------------------------------------------- drift


def test_a_sample_has_no_distance_from_itself() -> None:
    sample = normal(400, 3, seed=4)
    found = drift(sample, sample[::-1])
    assert found["drift_wasserstein"] == pytest.approx(0, abs=1e-12)
    # Unbiased: pairs of a row with itself count between the samples alone, hence a little below 0.
    assert -2 / 400 < found["drift_mmd2"] < 0


def test_a_shift_is_found_in_the_unit_of_f_and_in_standard_deviations() -> None:
    reference = 2 * normal(2000, 3, seed=5)
    found = drift(reference + 3.0, reference)
    assert found["drift_wasserstein"] == pytest.approx(3)
    assert found["drift_wasserstein_relative"] == pytest.approx(1.5, rel=0.03)


def test_wasserstein_is_the_mean_over_dimensions() -> None:
    reference = normal(1000, 3, seed=6)
    assert wasserstein_mean(reference + np.array([0.0, 1.0, 5.0]), reference) == pytest.approx(2)
    first, second = normal(300, 2, seed=7), 1.5 * normal(200, 2, seed=8)
    by_dimension = [scipy_stats.wasserstein_distance(first[:, k], second[:, k]) for k in range(2)]
    assert wasserstein_mean(first, second) == pytest.approx(np.mean(by_dimension))


def test_squared_mmd_by_pairs() -> None:
    sample, reference = normal(7, 2, seed=11), normal(5, 2, seed=12) + 0.5
    h = np.median([math.dist(x, y) for i, x in enumerate(reference) for y in reference[:i]])

    def kernel(x: np.ndarray, y: np.ndarray) -> float:
        return math.exp(-(math.dist(x, y) ** 2) / (2 * h**2))

    def within(rows: np.ndarray) -> float:
        n = len(rows)
        return sum(kernel(rows[i], rows[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))

    between = np.mean([kernel(x, y) for x in sample for y in reference])
    assert squared_mmd(sample, reference) == pytest.approx(within(sample) + within(reference) - 2 * between)


def test_too_little_to_compare_gives_missing_values() -> None:
    one, many, constant = normal(1, 3, seed=13), normal(9, 3, seed=14), np.ones((9, 3))
    assert all(math.isnan(value) for value in (*statistics(one).values(), *drift(one, many).values()))
    assert all(math.isnan(value) for value in drift(many, one).values())
    assert math.isnan(drift(many, constant)["drift_mmd2"])
    assert math.isnan(drift(many, constant)["drift_wasserstein_relative"])
    assert drift(many + 2, constant)["drift_wasserstein"] > 0


# ---------------------------------------------------------------------- a policy's decisions


def test_rows_are_those_of_an_evaluation_without_features() -> None:
    rows, found = evaluate_with_features(policy(), problem(24), seed=3, episodes=4)
    pd.testing.assert_frame_equal(pd.DataFrame(rows), pd.DataFrame(evaluate(policy(), problem(24), 3, 4)))
    assert set(found) == {name for name in FEATURE_COLUMNS if name.startswith(("feature_", "drift_"))}
    assert found["feature_rows"] == sum(row["decisions"] for row in rows)
    assert found["feature_dim"] == 16
    assert all(math.isfinite(value) for value in found.values())


def test_features_are_the_networks_at_every_decision_of_every_episode() -> None:
    """One episode played step by step, its observations put through the network one by one."""
    chosen = policy()
    engine = Engine(problem(16))
    engine.reset([3], [2])
    one_by_one = []
    while not engine.done[0]:
        with torch.no_grad():
            one_by_one.append(chosen.network(torch.from_numpy(engine.observation.copy()))[0][0].numpy())
        engine.step(chosen(engine.observation, engine.fit))
    sample = DecisionSample()
    play(chosen, problem(16), 3, [2], watch=sample)
    np.testing.assert_allclose(sample.features(chosen.network), np.stack(one_by_one), atol=1e-6)


def test_a_long_evaluation_is_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DecisionSample()
    chosen = policy()
    engine = play(chosen, problem(16), 3, [0, 1, 2], watch=whole)
    decisions = [int(engine.metrics(b)["decisions"]) for b in range(3)]
    everything = whole.features(chosen.network)
    assert whole.stride == 1
    assert len(everything) == sum(decisions)
    step = np.array([s for s in range(max(decisions)) for b in range(3) if s < decisions[b]])
    for most in (2 * len(everything) // 3, len(everything) // 5, 3):
        monkeypatch.setattr(features, "MAX_ROWS", most)
        thinned = DecisionSample()
        play(chosen, problem(16), 3, [0, 1, 2], watch=thinned)
        kept = step % thinned.stride == 0
        np.testing.assert_allclose(thinned.features(chosen.network), everything[kept], atol=1e-6)
        assert kept.sum() <= most < (step % (thinned.stride // 2) == 0).sum()
    monkeypatch.setattr(features, "MAX_ROWS", 1000)
    monkeypatch.setattr(features, "MAX_BYTES", 10 * 4 * 85)  # ten observations of 16 servers
    wide = DecisionSample()
    play(chosen, problem(16), 3, [0], watch=wide)
    assert 5 < len(wide.features(chosen.network)) <= 10


def test_no_decision_no_feature() -> None:
    """The first workflow arrives after the end."""
    env = EnvConfig.model_validate({"episode": {"horizon_s": 1e-6}})
    _, found = evaluate_with_features(policy(), env, seed=3, episodes=1)
    assert found["feature_rows"] == 0
    assert math.isnan(found["feature_covariance"])
    assert math.isnan(found["drift_mmd2"])


def test_the_references_are_training_scale_and_training_problem_on_the_episodes_that_follow() -> None:
    """Both under the mask of the evaluation; where the problem is that of the training they are the same."""
    chosen = policy(servers=16)

    def features_on(env: EnvConfig, episodes: list[int]) -> np.ndarray:
        sample = DecisionSample()
        play(chosen, env, 3, episodes, watch=sample)
        return sample.features(chosen.network)

    elsewhere = scenario("deep")
    for env, at_training_scale in ((problem(24), problem(16)), (elsewhere.at_scale(24), elsewhere.at_scale(16))):
        _, found = evaluate_with_features(chosen, env, seed=3, episodes=4)
        sample = features_on(env, [0, 1, 2, 3])
        expected = drift(sample, features_on(at_training_scale.with_mask("feasible"), [4, 5, 6, 7]))
        assert {name: found[name] for name in expected} == expected
        from_training = drift(sample, features_on(problem(16), [4, 5, 6, 7]))
        assert found["drift_training_wasserstein"] == from_training["drift_wasserstein_relative"]
        assert found["drift_training_mmd2"] == from_training["drift_mmd2"]
    assert found["drift_training_mmd2"] != found["drift_mmd2"]


@pytest.mark.slow
@pytest.mark.parametrize("method", NETWORKS)
def test_every_method_has_the_features_that_its_network_allows(method: str) -> None:
    trained = policy(method)
    _, found = evaluate_with_features(trained, problem(16), seed=3, episodes=2)
    assert found["feature_dim"] == (16 if trained.trial.any_scale else 256)
    assert ("drift_mmd2" in found) == trained.trial.any_scale
    assert all(math.isfinite(value) for value in found.values())
