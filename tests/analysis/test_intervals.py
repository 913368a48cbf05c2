"""Intervals and tests against literal values, scipy, and simulated truths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rllib_scale_analysis.stats.intervals import (
    Interval,
    holm,
    mean_interval,
    mean_test,
    probability_greater,
)
from scipy import stats as scipy_stats

from benchmarks.verdicts import EFFECTS, excludes, heavy_tails, seeds_err, simulate, with_failures

DRAWS = 400
FALSE_WINS = (4, 38)
"""Of 400 tests at 5 %: what Binomial(400, 0.05) leaves with probability below 1e-4 on either side, rounded outwards."""


def scores(rng: np.random.Generator, effects: str, seeds: int = 8) -> np.ndarray:
    return simulate(rng, effects, seeds)[0]


def test_the_tolerance_is_the_binomials() -> None:
    law = scipy_stats.binom(DRAWS, 0.05)
    assert law.cdf(FALSE_WINS[0] - 1) < 1e-4
    assert law.sf(FALSE_WINS[1]) < 1e-4


@pytest.mark.parametrize("effects", EFFECTS)
def test_a_null_gives_about_five_per_cent_false_wins(effects: str) -> None:
    rng = np.random.default_rng(1)
    false_wins = sum(mean_test(scores(rng, effects)).p < 0.05 for _ in range(DRAWS))
    assert FALSE_WINS[0] <= false_wins <= FALSE_WINS[1]


def test_no_seed_shows_the_failure_of_one_training_of_five_and_no_rule_its_tail() -> None:
    """What docs/statistics.md says of verdicts that no test over seeds or episodes can hold at their level."""
    rng = np.random.default_rng(7)
    alone, both = (
        np.mean([mean_test(with_failures(rng, 5, fails)).p < 0.05 for _ in range(DRAWS)]) for fails in (False, True)
    )
    assert both < 0.08
    assert 0.2 < alone < 0.45
    errors = [
        excludes(mean_test(np.subtract(*heavy_tails(rng, False)), "episodes").interval, 0.0) for _ in range(DRAWS)
    ]
    assert np.mean(errors) > 0.1


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
    assert (low, high) == pytest.approx(scipy_stats.ttest_1samp(values[:, 0], 0).confidence_interval())


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


def test_no_spread_is_a_point() -> None:
    for value in (2.5, 0.0):
        test = mean_test(np.full((5, 3), value))
        assert test.interval == Interval(value, value)
        assert math.isnan(test.p) if value == 0 else test.p == 0.0
        assert mean_interval(np.full((5, 3), value)) == Interval(value, value)


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


def test_the_interval_of_one_method_covers_what_it_says() -> None:
    verdict, single = seeds_err("both differ", 5, False, DRAWS)
    for share in (verdict, single):
        assert FALSE_WINS[0] <= float(share) / 100 * DRAWS <= FALSE_WINS[1]


def test_probability_of_improvement_of_literal_scores() -> None:
    values = np.array([[1.0, 2.0], [3.0, 0.0]])
    assert probability_greater(values, values) == 0.5
    assert probability_greater(values + 10, values) == 1.0
    assert probability_greater(values - 10, values) == 0.0
    # First episode 2 against 1 and 3: one won of two; second 1 against 1 and 0: a tie and a win.
    assert probability_greater(np.array([[2.0, 1.0]]), np.array([[1.0, 1.0], [3.0, 0.0]])) == 2.5 / 4
    assert probability_greater(np.array([[2.0, np.nan]]), np.array([[1.0, 0.0]])) == 1.0


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
