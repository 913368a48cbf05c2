"""Intervals and tests against literal values, scipy, and simulated truths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rllib_scale_analysis.stats import resampling
from rllib_scale_analysis.stats.coverage import EFFECTS, PAIRS, SINGLE, false_rates, simulate, single_rates
from rllib_scale_analysis.stats.resampling import (
    Interval,
    holm,
    iqm,
    iqm_interval,
    mean_interval,
    mean_test,
    probability_greater,
)
from scipy import stats as scipy_stats

DRAWS = 400
FALSE_WINS = (4, 38)
"""Of 400 tests at 5 %: what Binomial(400, 0.05) leaves with probability below 1e-4 on either side, rounded outwards."""


def scores(rng: np.random.Generator, effects: str, seeds: int = 8) -> np.ndarray:
    return simulate(rng, effects, seeds)[0]


def is_win(scored: np.ndarray) -> bool:
    test = mean_test(scored)
    return test.p < 0.05 and not test.interval.low <= 0 <= test.interval.high


def test_the_tolerance_is_the_binomials() -> None:
    law = scipy_stats.binom(DRAWS, 0.05)
    assert law.cdf(FALSE_WINS[0] - 1) < 1e-4
    assert law.sf(FALSE_WINS[1]) < 1e-4


@pytest.mark.parametrize("effects", EFFECTS)
def test_a_null_gives_about_five_per_cent_false_wins(effects: str) -> None:
    rng = np.random.default_rng(1)
    false_wins = sum(is_win(scores(rng, effects)) for _ in range(DRAWS))
    assert FALSE_WINS[0] <= false_wins <= FALSE_WINS[1]


def test_percentile_intervals_over_seeds_alone_would_give_many_more() -> None:
    """Why the comparison is studentised and draws episodes as well."""
    rng, drawn = np.random.default_rng(1), resampling.counts(8, "seeds")
    false_wins = 0
    for _ in range(DRAWS):
        low, high = np.quantile(drawn @ scores(rng, "episodes differ").mean(axis=1) / 8, (0.025, 0.975))
        false_wins += low > 0 or high < 0
    assert false_wins > 3 * FALSE_WINS[1]


def test_false_rates_are_those_of_the_tests() -> None:
    rates = dict(zip(PAIRS, false_rates("both differ", 5, False, 50), strict=True))
    assert rates["verdict"] <= min(rates["interval"], rates["p-value"]) <= 0.2
    assert rates["percentile over seeds"] > rates["interval"]
    assert (false_rates("both differ", 5, False, 50) == list(rates.values())).all()


@pytest.mark.parametrize("seeds", [5, 8])
@pytest.mark.parametrize("effects", EFFECTS)
def test_a_known_shift_is_found_and_covered(effects: str, seeds: int) -> None:
    rng = np.random.default_rng(2)
    tests = [mean_test(scores(rng, effects, seeds) - 4.0) for _ in range(50)]
    found = sum(test.interval.high < 0 and test.p < 0.05 for test in tests)
    assert found == 50 if seeds == 8 else found >= 45
    assert sum(test.interval.low <= -4.0 <= test.interval.high for test in tests) >= 40


def test_with_five_seeds_a_clear_shift_survives_a_correction_for_a_hundred_tests() -> None:
    rng = np.random.default_rng(3)
    assert mean_test(scores(rng, "seeds differ", seeds=5) - 30.0).p < 0.05 / 100


def test_one_episode_a_seed_is_students_test_of_the_seeds() -> None:
    values = np.array([[0.3], [1.2], [-0.4], [2.0], [0.9], [1.1]])
    test = mean_test(values)
    assert test.mean == pytest.approx(values.mean())
    assert test.p == pytest.approx(scipy_stats.ttest_1samp(values[:, 0], 0).pvalue)
    low, high = test.interval.low, test.interval.high
    assert (low + high) / 2 == pytest.approx(test.mean)


def test_rows_without_seeds_are_tested_over_their_episodes() -> None:
    values = np.array([[0.3, 1.2, -0.4, 2.0, 0.9, 1.1, 0.7]])
    assert mean_test(values, "episodes").p == pytest.approx(scipy_stats.ttest_1samp(values[0], 0).pvalue)
    assert math.isnan(mean_test(values).p)
    assert math.isnan(mean_test(values[:, :4], "episodes").p)


def test_the_error_is_that_of_crossed_effects() -> None:
    """Of a sum of a seed's and an episode's effect the variance of the mean is the sum of the variances of the two."""
    of_seed, of_episode = np.array([1.0, 2.0, 4.0, 7.0, 1.0, 3.0]), np.array([0.0, 5.0, 1.0, 2.0])
    test = mean_test(of_seed[:, None] + of_episode)
    a, b = of_seed.var(ddof=1) / 6, of_episode.var(ddof=1) / 4
    freedom = (a + b) ** 2 / (a**2 / 5 + b**2 / 3)
    assert test.p == pytest.approx(2 * scipy_stats.t.sf(test.mean / math.sqrt(a + b), freedom))


def test_four_seeds_and_no_value_claim_nothing() -> None:
    test = mean_test(np.full((4, 30), 3.0))
    assert (test.mean, math.isnan(test.p), math.isnan(test.interval.low)) == (3.0, True, True)
    assert math.isnan(mean_test(np.full((6, 3), np.nan)).mean)
    assert math.isnan(mean_interval(np.ones((4, 3))).low)
    assert math.isnan(iqm_interval(np.ones((4, 3))).low)


def test_no_spread_is_a_point() -> None:
    for value in (2.5, 0.0):
        test = mean_test(np.full((5, 3), value))
        assert test.interval == Interval(value, value)
        assert math.isnan(test.p) if value == 0 else test.p == 0.0
        assert mean_interval(np.full((5, 3), value)) == iqm_interval(np.full((5, 3), value)) == Interval(value, value)


def test_one_seed_that_differs_leaves_a_finite_interval() -> None:
    values = np.full((8, 6), -3.0)
    values[0] += 0.5
    test = mean_test(values)
    assert -4 < test.interval.low < test.interval.high < -2
    assert test.p < 0.001


def test_noise_that_cancels_in_every_seed_claims_nothing() -> None:
    values = 1.0 + np.array([[2.0, -2.0, 0.0], [-2.0, 0.0, 2.0], [0.0, 2.0, -2.0]] * 2)
    test = mean_test(values)
    assert (test.mean, math.isnan(test.p), math.isnan(test.interval.low)) == (1.0, True, True)


def test_minus_the_scores_mirror_the_test() -> None:
    values = scores(np.random.default_rng(5), "both differ") + 0.4
    test, mirrored = mean_test(values), mean_test(-values)
    assert mirrored.p == pytest.approx(test.p)
    assert (mirrored.interval.low, mirrored.interval.high) == pytest.approx((-test.interval.high, -test.interval.low))


def test_missing_scores_are_left_out_of_the_mean_and_hardly_move_the_error() -> None:
    values = scores(np.random.default_rng(6), "both differ") + 1.0
    holed = values.copy()
    holed[2, 3] = holed[5, 3] = holed[7, 29] = np.nan
    test, whole = mean_test(holed), mean_test(values)
    assert test.mean == pytest.approx(np.nanmean(holed, axis=1).mean())
    assert test.interval.high - test.interval.low == pytest.approx(whole.interval.high - whole.interval.low, rel=0.1)
    empty_row = np.vstack([values, np.full((1, 30), np.nan)])
    assert mean_test(empty_row) == whole


def test_mean_interval_is_students_over_seed_means() -> None:
    means = np.array([4.1, 4.9, 4.3, 5.2, 4.6])
    expected = scipy_stats.t.interval(0.95, 4, loc=means.mean(), scale=means.std(ddof=1) / math.sqrt(5))
    found = mean_interval(means[:, None] + np.array([-1.0, 0.0, 1.0]))
    assert (found.low, found.high) == pytest.approx(expected)


def test_the_interval_of_one_method_covers_what_it_says_and_the_bootstraps_do_not() -> None:
    """Of 400 draws with 5 % outside, more than 38 or fewer than 4 have a probability below 1e-4."""
    rates = dict(zip(SINGLE, DRAWS * single_rates("both differ", 5, False, DRAWS), strict=True))
    assert FALSE_WINS[0] <= rates["Student's t"] <= FALSE_WINS[1]
    assert rates["BCa bootstrap"] > 1.4 * FALSE_WINS[1]
    assert rates["t of the IQM"] < 1.4 * FALSE_WINS[1]


def test_iqm_of_literal_scores() -> None:
    assert iqm(np.array([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0]])) == 3.5
    assert iqm(np.array([[9.0, 1.0], [5.0, -100.0], [np.nan, 3.0]])) == pytest.approx(3.0)  # 5 scores lose one each end
    assert math.isnan(iqm(np.array([[np.nan]])))


def test_iqm_interval_is_students_with_the_error_of_the_jackknife() -> None:
    values = scores(np.random.default_rng(7), "seeds differ", seeds=6)[:, :5]
    values[1, 2] = np.nan
    left_out = [iqm(np.delete(values, seed, axis=0)) for seed in range(6)]
    error = math.sqrt(5 / 6 * sum((value - np.mean(left_out)) ** 2 for value in left_out))
    found = iqm_interval(values)
    assert (found.low, found.high) == pytest.approx(scipy_stats.t.interval(0.95, 5, loc=iqm(values), scale=error))


def test_an_outlying_episode_moves_the_mean_and_not_the_iqm() -> None:
    values = scores(np.random.default_rng(8), "seeds differ")
    spoilt = values.copy()
    spoilt[0, 0] = 1e6
    assert abs(iqm(spoilt) - iqm(values)) < 0.1
    assert mean_interval(spoilt).high > 1e3


def test_probability_of_improvement_of_literal_scores() -> None:
    values = np.array([[1.0, 2.0], [3.0, 0.0]])
    assert probability_greater(values, values, False)[0] == 0.5
    assert probability_greater(values + 10, values, False)[0] == 1.0
    assert probability_greater(values - 10, values, False)[0] == 0.0
    # First episode 2 against 1 and 3: one won of two; second 1 against 1 and 0: a tie and a win.
    assert probability_greater(np.array([[2.0, 1.0]]), np.array([[1.0, 1.0], [3.0, 0.0]]), False)[0] == 2.5 / 4
    assert probability_greater(np.array([[2.0, np.nan]]), np.array([[1.0, 0.0]]), False)[0] == 1.0


def test_probability_of_improvement_has_an_interval_over_seeds_and_episodes() -> None:
    rng = np.random.default_rng(9)
    first, second = scores(rng, "seeds differ"), scores(rng, "seeds differ")
    probability, ends = probability_greater(first, second)
    back, back_ends = probability_greater(second, first)
    assert 0 < ends.low < probability < ends.high < 1
    assert back == pytest.approx(1 - probability)
    assert back_ends.low == pytest.approx(1 - ends.high, abs=0.05)
    assert probability_greater(first + 100, second) == (1.0, Interval(1.0, 1.0))
    assert math.isnan(probability_greater(first, second, False)[1].low)


def test_holm_of_a_literal_family() -> None:
    adjusted = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    np.testing.assert_allclose(adjusted, [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.5, np.nan, 0.9])), [1.0, np.nan, 1.0])
    assert holm(np.array([0.03])).tolist() == [0.03]
    assert len(holm(np.array([]))) == 0


def test_holm_keeps_the_error_of_a_family() -> None:
    rng, families = np.random.default_rng(4), 100
    false = sum(
        bool((holm(np.array([mean_test(scores(rng, "both differ")).p for _ in range(10)])) < 0.05).any())
        for _ in range(families)
    )
    assert false <= scipy_stats.binom(families, 0.05).ppf(1 - 1e-4)
