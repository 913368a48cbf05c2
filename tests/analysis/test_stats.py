"""Statistics of frames against hand-computed values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis.stats import intervals
from rllib_scale_analysis.stats.families import TESTED, adjust, question
from rllib_scale_analysis.stats.scores import Scores, scores_by
from rllib_scale_analysis.stats.summaries import Difference, Summary, differences
from rllib_scale_analysis.stats.summaries import summary as summary_of

from artificial_results import changed, episode_row, typed_episodes
from rllib_scale.errors import UserError

METRIC = "response_mean_s"
ONE = Difference(-1.0, -2.0, -0.5, 0.01, 0.01, 0.9, 5, 9)


def frame(method: str, values: dict[int | None, list[float]], servers: int = 16) -> pd.DataFrame:
    """Rows of one method: seed -> response of episode 0, 1, ..."""
    return typed_episodes(
        episode_row(method, seed, servers, episode, response_mean_s=value)
        for seed, of_seed in values.items()
        for episode, value in enumerate(of_seed)
    )


def scores_of(rows: pd.DataFrame) -> Scores:
    ((_, scores),) = scores_by(rows, ("variant",), [METRIC])
    return scores


def difference_of(first: pd.DataFrame, second: pd.DataFrame) -> Difference:
    return differences(scores_of(first), scores_of(second), [METRIC])[METRIC]


def summarise(rows: pd.DataFrame) -> Summary:
    return summary_of(scores_of(rows), METRIC)


# ---------------------------------------------------------------------- summaries


def test_summary_of_two_seeds_and_of_a_rule() -> None:
    summary = summarise(frame("scale", {1: [1.0, 3.0], 2: [5.0, 9.0, 13.0]}))
    assert summary.mean == pytest.approx((2 + 9) / 2)  # seeds weigh alike, whatever their episodes
    assert summary.sd == pytest.approx(math.sqrt((2 + 16) / 2))
    assert summary.seeds == 2
    assert math.isnan(summary.low)
    assert math.isnan(summary.high)
    summary = summarise(frame("fastest-idle", {None: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}))
    assert (summary.mean, summary.seeds) == (3.5, 0)
    assert math.isnan(summary.low)


def test_summary_leaves_missing_values_out() -> None:
    summary = summarise(frame("scale", {1: [1.0, math.nan], 2: [math.nan, math.nan]}))
    assert (summary.mean, summary.seeds) == (1.0, 1)
    assert math.isnan(summary.sd)
    nothing = summarise(frame("scale", {1: [math.nan]}))
    assert math.isnan(nothing.mean)
    assert nothing.seeds == 0


def test_summary_of_five_seeds_has_its_interval() -> None:
    values = {seed: [mean - 1, mean + 1, mean + 0.3] for seed, mean in enumerate((4.1, 4.9, 4.3, 5.2, 4.6))}
    summary = summarise(frame("scale", values))
    assert intervals.mean_interval(np.array(list(values.values()))) == intervals.Interval(summary.low, summary.high)
    assert 4.0 < summary.low < summary.mean < summary.high < 5.3


# ---------------------------------------------------------------------- differences


def test_pairs_share_their_episode_and_differences_are_averaged_within_seeds_then_over_seeds() -> None:
    first = frame("scale", {1: [1.0, 2.0], 2: [3.0, 4.0]})
    second = frame("crossattn", {1: [2.0, 5.0], 2: [3.0, 3.0]}).iloc[::-1]
    difference = difference_of(first, second)
    assert difference.mean == pytest.approx((-2 + 0.5) / 2)
    assert difference.seeds == 2
    assert difference.better == (2.5 + 3) / 8  # each seed of the first meets each of the second; a tie is a half


def test_a_rule_is_paired_with_every_seed() -> None:
    learned = frame("scale", {seed: [seed + 1.0, seed + 3.0, seed + 2.0] for seed in range(5)})
    rule = frame("fastest-idle", {None: [18.0, 20.0, 22.0]})
    difference = difference_of(learned, rule)
    assert difference.mean == pytest.approx(4.0 - 20.0)
    assert (difference.seeds, difference.verdict) == (5, "lower")
    assert difference_of(rule, learned).verdict == "higher"


def test_two_rules_differ_without_a_verdict() -> None:
    rules = (("fastest-idle", 1.0), ("large-only", 4.0))
    many = [frame(name, {None: [level + e % 3 + 0.1 * e for e in range(9)]}) for name, level in rules]
    difference = difference_of(*many)
    assert (difference.mean, difference.seeds, difference.better) == (pytest.approx(-3.0), 0, 1.0)
    assert (difference.verdict, math.isnan(difference.p)) == ("no interval (rules)", True)


@pytest.mark.parametrize(
    ("offsets", "verdict"),
    [
        ([-5.0] * 4, "no interval (4 seeds)"),
        ([-5.0], "no interval (1 seed)"),
        ([-5.0, -4.0, -6.0, -5.5, -4.5], "lower"),
        ([5.0, 4.0, 6.0, 5.5, 4.5], "higher"),
        ([5.0, -4.0, 6.0, -5.5, 4.5], "undecided"),
        ([0.0] * 5, "equal"),
        ([-5.0] * 5, "no interval (no spread)"),
    ],
)
def test_verdict_needs_five_seeds_and_an_interval_without_zero(offsets: list[float], verdict: str) -> None:
    first = frame("scale", {seed: [8 + offset, 9 + offset, 8.5 + offset] for seed, offset in enumerate(offsets)})
    second = frame("crossattn", {seed: [8.0, 9.0, 8.5] for seed in range(len(offsets))})
    assert difference_of(first, second).verdict == verdict


def test_fewer_than_three_episodes_decide_nothing() -> None:
    levels = [-5.0, -4.0, -6.0, -5.5, -4.5]
    for count, verdict in ((1, "no interval (1 episode)"), (2, "no interval (2 episodes)"), (3, "lower")):
        first = frame("scale", {seed: [8 + level + e for e in range(count)] for seed, level in enumerate(levels)})
        second = frame("crossattn", {seed: [8.0 + e for e in range(count)] for seed in range(5)})
        assert difference_of(first, second).verdict == verdict


def test_pairs_without_a_value_are_left_out() -> None:
    difference = difference_of(frame("scale", {1: [1.0, math.nan, 3.0]}), frame("crossattn", {1: [2.0, 2.0, math.nan]}))
    assert difference.mean == -1.0


def test_seeds_and_episodes_of_one_side_alone_are_left_out() -> None:
    first = frame("scale", {1: [1.0, 2.0, 90.0], 2: [3.0, 4.0, 90.0], 9: [90.0, 90.0, 90.0]})
    second = frame("crossattn", {1: [2.0, 5.0], 2: [4.0, 5.0], 8: [70.0, 70.0]})
    difference = difference_of(first, second)
    assert (difference.mean, difference.seeds) == (pytest.approx((-2.0 - 1.0) / 2), 2)
    assert difference_of(second, first).mean == -difference.mean
    ragged = second[(second["train_seed"] != 2) | (second["episode"] != 1)]
    assert difference_of(first, ragged).mean == pytest.approx((-2.0 - 1.0) / 2), "of seed 2 its only pair counts"
    rule = difference_of(first, frame("fastest-idle", {None: [0.0, 1.0]}))
    assert (rule.mean, rule.seeds) == (pytest.approx((1.0 + 3.0 + 89.5) / 3), 3)


def test_an_episode_that_a_group_holds_twice_is_refused_and_named() -> None:
    one = frame("scale", {1: [1.0]})
    with pytest.raises(
        UserError, match=rf"more than one row, of {one['scheduler'][0]}, other, holds train_seed 1, prob"
    ):
        summarise(pd.concat([one, one.assign(scheduler="other")]))


# ---------------------------------------------------------------------- families


def family(*differences: Difference) -> list[Difference]:
    """As comparisons of one question in the primary endpoint, with the p-values of their family."""
    other = replace(differences[0], p=math.nan, low=0.0, high=0.0, mean=0.0)
    compared = [dict.fromkeys(TESTED, other) | {"completed": difference} for difference in differences]
    return [found["completed"] for found in adjust(compared, ["learned"] * len(compared), "completed")]


def test_a_verdict_of_a_family_needs_its_adjusted_p() -> None:
    assert ONE.verdict == "lower"
    among_many = family(ONE, *[replace(ONE, p=1.0)] * 100)[0]
    assert among_many.p_adjusted == 1.0
    assert among_many.verdict == "undecided"
    assert (among_many.low, among_many.high, among_many.p) == (ONE.low, ONE.high, ONE.p)


def test_what_cannot_differ_is_equal_and_in_no_family() -> None:
    second = frame("crossattn", {seed: [8.0, 9.0] for seed in range(5)})
    equal = difference_of(second, second.assign(variant="other"))
    assert (equal.verdict, math.isnan(equal.p)) == ("equal", True)
    adjusted = family(ONE, *[equal] * 100)
    assert adjusted[0].p_adjusted == ONE.p
    assert adjusted[1].verdict == "equal"


def test_an_outcome_with_the_differences_of_another_is_tested_once() -> None:
    other = replace(ONE, mean=-3.0, p=0.02, p_adjusted=0.02)
    third = replace(ONE, mean=2.0, p=0.04, p_adjusted=0.04)
    twice = {"completed": third, "response_mean_s": ONE, "response_censored_s": ONE}
    apart = {"completed": third, "response_mean_s": other, "response_censored_s": ONE}
    for primary, found in (("response_censored_s", twice), ("completed", twice)):
        (adjusted,) = adjust([found], ["SRR"], primary)
        assert adjusted["response_mean_s"].p_adjusted == adjusted["response_censored_s"].p_adjusted == 0.01
        assert adjusted["completed"].p_adjusted == 0.04
    (adjusted,) = adjust([apart], ["SRR"], "completed")
    assert (adjusted["response_censored_s"].p_adjusted, adjusted["response_mean_s"].p_adjusted) == (0.02, 0.02)


def test_each_question_and_the_primary_endpoint_are_families_of_their_own() -> None:
    found = {metric: replace(ONE, mean=-k - 1.0, p=0.01 + 0.001 * k) for k, metric in enumerate(TESTED)}
    adjusted = adjust([found, found, found], ["SRR", "rule", "rule"], "completed")
    assert [row["completed"].p_adjusted for row in adjusted] == pytest.approx([0.01, 0.02, 0.02])
    assert adjusted[0]["response_mean_s"].p_adjusted == pytest.approx(0.022)
    assert adjusted[1]["response_mean_s"].p_adjusted == pytest.approx(0.044)


def test_questions_of_pairs() -> None:
    """Trainings that are equal but for SRR answer whether it helps; any other setting makes it another question."""
    rows = [
        episode_row(name, 1, 16, 0) for name in ("scale", "crossattn", "ppo", "ppo-srr", "deepsets", "deepsets-srr")
    ]
    rows += [changed(row, {"algorithm.gamma": 0.9}) for row in rows[:2]]
    rows += [episode_row(name, None, 16, 0) for name in ("fastest-idle", "heft")]
    first = typed_episodes(rows).set_index("variant").to_dict("index")
    half, tenth = " (algorithm.gamma=0.5)", " (algorithm.gamma=0.9)"
    for one, other, asked in (
        (f"scale{half}", f"crossattn{half}", "SRR"),
        (f"scale{tenth}", f"crossattn{tenth}", "SRR"),
        (f"scale{half}", f"crossattn{tenth}", "learned"),
        ("ppo-srr", "ppo", "SRR"),
        ("deepsets", "deepsets-srr", "SRR"),
        (f"scale{half}", "ppo", "learned"),
        ("ppo-srr", f"crossattn{half}", "learned"),
        (f"scale{half}", "fastest-idle", "rule"),
        ("heft", "fastest-idle", "rules"),
    ):
        assert question(first[one], first[other]) == question(first[other], first[one]) == asked
