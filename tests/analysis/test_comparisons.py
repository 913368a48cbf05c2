"""Paired tables: literal differences, the family of a table, shared seeds, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis.rows import MOST_SHOWN
from rllib_scale_analysis.stats.families import TESTED
from rllib_scale_analysis.stats.intervals import holm
from rllib_scale_analysis.stats.scores import scores_by
from rllib_scale_analysis.stats.summaries import differences
from rllib_scale_analysis.tables.comparisons import default_pairs, paired_table

from artificial_results import artificial_episodes, episode_row, typed_episodes
from rllib_scale.errors import UserError

LEARNED = ("scale", "crossattn")
PAIR = [LEARNED]


@pytest.fixture(scope="module")
def episodes() -> pd.DataFrame:
    return typed_episodes(artificial_episodes())


@pytest.fixture(scope="module")
def table(episodes: pd.DataFrame) -> pd.DataFrame:
    return paired_table(episodes)


def test_paired_table_of_literal_rows() -> None:
    rows = [
        episode_row(method, seed, 16, episode, completed=c + own, unfinished=20 - c - own, response_mean_s=r + own / 10)
        for method, c, r in (("scale", 8, 4.0), ("crossattn", 10, 5.0))
        for seed, own in enumerate((-1, 0, 1, 0, 0) if method == "scale" else (0,) * 5)
        for episode in range(3)
    ]
    row = paired_table(typed_episodes(rows)).iloc[0]
    assert (row["first"], row["second"], row["test_servers"]) == ("scale", "crossattn", 16)
    assert (row["completed"], row["unfinished"]) == (-2.0, 2.0)
    assert row["response_mean_s"] == pytest.approx(-1.0)
    assert row["completed_low"] < -2 < row["completed_high"] < 0
    assert (row["completed_verdict"], row["response_mean_s_verdict"]) == ("lower", "lower")
    assert row["response_censored_s_verdict"] == "equal"
    assert (row["completed_better"], row["response_mean_s_better"], row["response_censored_s_better"]) == (0, 1, 0.5)
    assert (row["seeds"], row["seeds_note"], row["episodes"], row["episodes_note"]) == (5, None, 3, None)


def test_pairs_are_compared_where_both_were_evaluated(table: pd.DataFrame) -> None:
    assert list(table.loc[table["second"] == "ppo", "test_servers"]) == [16]
    assert len(table[(table["first"] == "scale") & (table["second"] == "crossattn")]) == 4


def test_default_pairs_are_learned_methods_against_the_baselines_once_question_by_question(
    episodes: pd.DataFrame,
) -> None:
    assert default_pairs(episodes) == [
        ("scale", "crossattn"),
        ("scale", "fastest-idle"),
        ("crossattn", "fastest-idle"),
        ("ppo", "fastest-idle"),
        ("ppo", "crossattn"),
        ("scale", "ppo"),
    ]
    encoders = typed_episodes(episode_row(name, 1, 16, 0) for name in ("deepsets", "deepsets-srr"))
    assert default_pairs(encoders) == [("deepsets-srr", "deepsets")]


def test_whether_srr_helps_is_asked_of_trainings_that_differ_in_nothing_else_however_many_there_are() -> None:
    """A pair that differed in gamma, too, answered it; of more than 12 variants half were compared with nothing."""
    for count in (2, MOST_SHOWN):
        gammas = [0.5 + 0.01 * k for k in range(count)]
        rows = [
            episode_row(name, 1, 16, 0, settings={"algorithm.gamma": gamma}) for gamma in gammas for name in LEARNED
        ]
        table = paired_table(typed_episodes([*rows, episode_row("fastest-idle", None, 16, 0)]))
        asked = table[table["question"] == "SRR"]
        own = [asked[side].str.partition(" ")[2].tolist() for side in ("first", "second")]
        assert own[0] == own[1]
        assert len(asked) == count
        learned = table[table["question"] != "rule"]
        assert len({*learned["first"], *learned["second"]}) == 2 * count
        assert (table["question"] == "rule").sum() == 2 * count
    fewer = [episode_row("scale", 1, 16, 0, settings={"algorithm.gamma": 0.1, "srr.lambda_kl": k}) for k in range(20)]
    others = [episode_row("crossattn", 1, 16, 0, settings={"algorithm.gamma": gamma}) for gamma in (0.1, 0.2)]
    table = paired_table(typed_episodes([*fewer, *others]))
    assert (table["question"] == "SRR").sum() == 20, "each has a partner where none has its weights"


def p_of(episodes: pd.DataFrame, row: pd.Series, metric: str) -> float:
    at = episodes[episodes["test_servers"] == row["test_servers"]]
    scores = {name: found for (name,), found in scores_by(at, ("variant",), [metric])}
    return differences(scores[row["first"]], scores[row["second"]], [metric])[metric].p


def test_the_family_is_a_question_in_the_primary_endpoint_or_in_the_others(
    episodes: pd.DataFrame, table: pd.DataFrame
) -> None:
    assert table["question"].unique().tolist() == ["SRR", "rule", "learned"]
    for _, rows in table.groupby("question"):
        for metric in ("completed", "response_censored_s"):  # of the response the differences are the same
            p = [p_of(episodes, row, metric) for _, row in rows.iterrows()]
            np.testing.assert_allclose(rows[f"{metric}_p_adjusted"].to_numpy(float), holm(np.array(p)))
        np.testing.assert_allclose(rows["response_mean_s_p_adjusted"], rows["response_censored_s_p_adjusted"])
    assert [name for name in table if name.endswith("_verdict")] == [f"{metric}_verdict" for metric in TESTED]


def test_a_verdict_does_not_depend_on_what_else_is_shown(episodes: pd.DataFrame, table: pd.DataFrame) -> None:
    for first, second in default_pairs(episodes):
        mine = table[(table["first"] == first) & (table["second"] == second)].reset_index(drop=True)
        pd.testing.assert_frame_equal(paired_table(episodes, [(first, second)]), mine)
        turned = paired_table(episodes, [(second, first)])
        for metric in TESTED:
            np.testing.assert_allclose(turned[f"{metric}_p_adjusted"], mine[f"{metric}_p_adjusted"])
            swapped = turned[f"{metric}_verdict"].replace({"lower": "higher", "higher": "lower"})
            assert swapped.tolist() == mine[f"{metric}_verdict"].tolist()


def test_a_verdict_stands_only_where_the_interval_and_the_adjusted_p_agree(table: pd.DataFrame) -> None:
    seen = set()
    for metric in TESTED:
        low, high, p = (table[f"{metric}{suffix}"] for suffix in ("_low", "_high", "_p_adjusted"))
        decided = ((low > 0) | (high < 0)) & (p < 0.05)
        assert (decided == table[f"{metric}_verdict"].isin(["lower", "higher"])).all()
        assert (table.loc[decided, f"{metric}_verdict"] == np.where(low[decided] > 0, "higher", "lower")).all()
        seen |= set(table[f"{metric}_verdict"])
    assert seen == {"lower", "higher", "undecided"}


def test_two_rules_have_a_difference_and_no_verdict(episodes: pd.DataFrame) -> None:
    row = paired_table(episodes, [("large-only", "fastest-idle")]).iloc[0]
    assert (row["seeds"], row["seeds_note"], row["completed_verdict"]) == (0, "rules", "no interval (rules)")


def test_paired_table_names_an_unknown_variant(episodes: pd.DataFrame) -> None:
    with pytest.raises(UserError, match="unknown variant 'scael'; valid: scale, crossattn"):
        paired_table(episodes, [("scael", "crossattn")])


def test_seeds_and_episodes_of_one_method_alone_are_left_out_and_noted(episodes: pd.DataFrame) -> None:
    both = episodes[episodes["method"].isin(["scale", "crossattn"]) & (episodes["test_servers"] == 16)]
    expected = paired_table(both, PAIR)
    more = artificial_episodes(seeds=range(42, 50), scales=(16,), methods=("scale",))
    table = paired_table(typed_episodes([*more, *artificial_episodes(scales=(16,), methods=("crossattn",))]), PAIR)
    assert (table["seeds"].iloc[0], table["seeds_note"].iloc[0]) == (5, "of 8")
    pd.testing.assert_frame_equal(table.drop(columns="seeds_note"), expected.drop(columns="seeds_note"))
    fewer = both[(both["method"] != "scale") | (both["episode"] < 4)]
    table = paired_table(fewer, PAIR)
    assert (table["episodes"].iloc[0], table["episodes_note"].iloc[0]) == (4, "of 6")
    assert table["completed"].iloc[0] == paired_table(both[both["episode"] < 4], PAIR)["completed"].iloc[0]
    apart = both[(both["method"] == "scale") == (both["train_seed"] > 44)]
    assert paired_table(apart, PAIR).empty, "without a common seed nothing is compared"
