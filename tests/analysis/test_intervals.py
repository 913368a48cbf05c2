"""Intervals and tests against literal values, scipy, and simulated truths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rllib_scale_analysis.stats.intervals import Interval, holm, mean_interval, mean_test, probability_greater
from scipy import stats as scipy_stats

from benchmarks.verdicts import EFFECTS, EPISODES, excludes, heavy_tails, seeds_err, simulate, with_failures

DRAWS = 400
LAW = scipy_stats.binom(DRAWS, 0.05)
FEWEST, MOST = LAW.ppf(1e-4), LAW.isf(1e-4)
"""False wins of 400 tests at 5 % that chance explains."""


@pytest.mark.parametrize("episodes", [3, 5, pytest.param(10, marks=pytest.mark.slow), 30])
@pytest.mark.parametrize("effects", EFFECTS)
def test_a_null_gives_about_five_per_cent_false_wins_and_a_shift_is_found(effects: str, episodes: int) -> None:
    rng = np.random.default_rng(1)
    for seeds in (5, 8):
        scores = [simulate(rng, effects, seeds, episodes=episodes)[0] for _ in range(DRAWS)]
        false = sum(mean_test(one).p < 0.05 for one in scores)
        assert (FEWEST if episodes == EPISODES else 0) <= false <= MOST
    if episodes < EPISODES:
        return
    shifted = [mean_test(one - 4.0) for one in scores[:50]]
    assert all(test.interval.high < 0 and test.p < 0.05 for test in shifted)
    assert sum(test.interval.low <= -4.0 <= test.interval.high for test in shifted) >= 40


def test_no_seed_shows_the_failure_of_one_training_of_five_and_no_rule_its_tail() -> None:
    """What docs/statistics.md says of verdicts that no test over seeds or episodes can hold at their level."""
    rng = np.random.default_rng(7)
    alone, both = (
        np.mean([mean_test(with_failures(rng, 5, fails)).p < 0.05 for _ in range(DRAWS)]) for fails in (False, True)
    )
    assert both < 0.08
    assert 0.2 < alone < 0.45
    tails = [mean_test(np.subtract(*heavy_tails(rng, False)), "episodes").interval for _ in range(DRAWS)]
    assert np.mean([excludes(interval, 0.0) for interval in tails]) > 0.1


def test_episodes_that_do_not_differ_leave_students_test_of_the_seeds_and_fewer_than_three_no_test() -> None:
    values = np.array([[0.3], [1.2], [-0.4], [2.0], [0.9], [1.1]])
    expected = scipy_stats.ttest_1samp(values[:, 0], 0)
    test = mean_test(values.repeat(3, axis=1))
    assert (test.mean, test.p) == pytest.approx((values.mean(), expected.pvalue))
    assert (test.interval.low, test.interval.high) == pytest.approx(expected.confidence_interval())
    assert all(math.isnan(mean_test(values.repeat(count, axis=1)).p) for count in (1, 2))


def test_rows_without_seeds_are_tested_over_their_episodes() -> None:
    values = np.array([[0.3, 1.2, -0.4, 2.0, 0.9, 1.1, 0.7]])
    assert mean_test(values, "episodes").p == pytest.approx(scipy_stats.ttest_1samp(values[0], 0).pvalue)
    assert math.isnan(mean_test(values).p)
    assert math.isnan(mean_test(values[:, :4], "episodes").p)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_error_is_that_of_crossed_effects(sign: int) -> None:
    """Of a sum of a seed's and an episode's effect the variance of the mean is the sum of the variances of the two."""
    of_seed, of_episode = np.array([1.0, 2.0, 4.0, 7.0, 1.0, 3.0]), np.array([0.0, 5.0, 1.0, 2.0])
    test = mean_test(sign * (of_seed[:, None] + of_episode))
    a, b = of_seed.var(ddof=1) / 6, of_episode.var(ddof=1) / 4
    freedom = (a + b) ** 2 / (a**2 / 5 + b**2 / 3)
    law = scipy_stats.t(freedom, scale=math.sqrt(a + b))
    assert (test.mean, test.p) == pytest.approx((sign * 5.0, 2 * law.sf(5.0)))
    assert (test.interval.low, test.interval.high) == pytest.approx(
        (test.mean - law.ppf(0.975), test.mean + law.ppf(0.975))
    )


def test_the_rest_counts_once() -> None:
    """With a rest of r, episodes add their variance less r's share of it; worked out from the analysis of variance."""
    scores = np.array([[3.0, 1.0, 5.0], [2.0, 4.0, 9.0], [1.0, 0.0, 4.0], [6.0, 2.0, 8.0], [4.0, 3.0, 3.0]])
    seeds, episodes = scores.mean(axis=1), scores.mean(axis=0)
    rest = ((scores - seeds[:, None] - episodes + scores.mean()) ** 2).sum() / (4 * 2) / (5 * 3)
    a, b = seeds.var(ddof=1) / 5, episodes.var(ddof=1) / 3
    variance = a + b - rest
    freedom = variance**2 / (a**2 / 4 + b**2 / 2 + rest**2 / 8)
    assert b > rest > 0
    assert mean_test(scores).p == pytest.approx(2 * scipy_stats.t.sf(scores.mean() / math.sqrt(variance), freedom))


def test_four_seeds_and_no_value_claim_nothing() -> None:
    test = mean_test(np.full((4, 30), 3.0))
    assert (test.mean, math.isnan(test.p), math.isnan(test.interval.low)) == (3.0, True, True)
    assert math.isnan(mean_test(np.full((6, 3), np.nan)).mean)
    assert math.isnan(mean_interval(np.ones((4, 3))).low)


def test_without_spread_nothing_is_claimed_but_that_all_is_equal() -> None:
    """Trainings that cannot differ had p = 0 however few their episodes."""
    for value in (2.5, 0.0):
        test = mean_test(np.full((5, 3), value))
        assert (test.mean, math.isnan(test.p)) == (value, True)
        assert math.isnan(mean_interval(np.full((5, 3), value)).low)
        assert test.interval == Interval(0.0, 0.0) if value == 0 else math.isnan(test.interval.low)


def test_noise_that_cancels_in_every_seed_claims_nothing() -> None:
    values = 1.0 + np.array([[2.0, -2.0, 0.0], [-2.0, 0.0, 2.0], [0.0, 2.0, -2.0]] * 2)
    test = mean_test(values)
    assert (test.mean, math.isnan(test.p), math.isnan(test.interval.low)) == (1.0, True, True)


def test_missing_scores_are_left_out_of_the_mean_and_hardly_move_the_error() -> None:
    values = simulate(np.random.default_rng(6), "both differ", 8)[0] + 1.0
    holed = values.copy()
    holed[2, 3] = holed[5, 3] = holed[7, 29] = np.nan
    test, whole = mean_test(holed), mean_test(values)
    assert test.mean == pytest.approx(np.nanmean(holed, axis=1).mean())
    assert test.interval.high - test.interval.low == pytest.approx(whole.interval.high - whole.interval.low, rel=0.1)
    assert mean_test(np.vstack([values, np.full((1, 30), np.nan)])) == whole


def test_mean_interval_is_students_over_seed_means_and_covers_what_it_says() -> None:
    means = np.array([4.1, 4.9, 4.3, 5.2, 4.6])
    expected = scipy_stats.t.interval(0.95, 4, loc=means.mean(), scale=means.std(ddof=1) / math.sqrt(5))
    found = mean_interval(means[:, None] + np.array([-1.0, 0.0, 1.0]))
    assert (found.low, found.high) == pytest.approx(expected)
    for share in seeds_err("both differ", 5, False, DRAWS):
        assert FEWEST <= float(share) / 100 * DRAWS <= MOST


def test_probability_of_improvement_of_literal_scores() -> None:
    values = np.array([[1.0, 2.0], [3.0, 0.0]])
    assert probability_greater(values, values) == 0.5
    # First episode 2 against 1 and 3: one won of two; second 1 against 1 and 0: a tie and a win.
    assert probability_greater(np.array([[2.0, 1.0]]), np.array([[1.0, 1.0], [3.0, 0.0]])) == 2.5 / 4
    assert probability_greater(np.array([[2.0, np.nan]]), np.array([[1.0, 0.0]])) == 1.0


def test_holm_of_a_literal_family() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.5, np.nan, 0.9])), [1.0, np.nan, 1.0])
    assert len(holm(np.array([]))) == 0
