"""Tables 3 and 4, and every setting side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pandas as pd
import pytest
from rllib_scale_analysis import select, settings
from rllib_scale_analysis.report.replays import typical_episode
from rllib_scale_analysis.stats.scores import scores_by
from rllib_scale_analysis.stats.summaries import summary
from rllib_scale_analysis.tables.comparisons import paired_table
from rllib_scale_analysis.tables.methods import (
    behaviour_table,
    side_by_side,
    table3,
    table4,
    training_scales,
    workflows_table,
)
from rllib_scale_analysis.tables.relative import against_base
from rllib_scale_analysis.tables.render import stems, to_csv, to_html

from artificial_results import HEURISTICS, artificial_episodes, as_in_the_paper, changed, episode_row, typed_episodes
from rllib_scale.errors import UserError


@pytest.fixture(scope="module")
def episodes() -> pd.DataFrame:
    return typed_episodes(as_in_the_paper(artificial_episodes()))


def cell(table: pd.DataFrame, column: str, **where: object) -> object:
    """The one value of a column in the row that the conditions pick."""
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table[column].iloc[0]


def test_table3_holds_the_training_scale_of_every_method(episodes: pd.DataFrame) -> None:
    table = table3(episodes)
    assert list(table["variant"][:4]) == ["scale", "crossattn", "ppo", "fastest-idle"]
    rows = episodes[(episodes["variant"] == "scale") & (episodes["test_servers"] == 16)]
    metrics = ("completed", "unfinished", "response_censored_s")
    for metric in metrics:
        ((_, scores),) = scores_by(rows, ("variant",), metrics)
        expected = summary(scores, metric)
        assert cell(table, metric, variant="scale") == expected.mean
        assert cell(table, f"{metric}_high", variant="scale") == expected.high
    assert cell(table, "seeds", variant="scale") == 5
    assert cell(table, "episodes", variant="scale") == 6
    assert pd.isna(cell(table, "seeds_note", variant="scale"))


def test_table3_of_literal_rows() -> None:
    metrics = {"arrived": 10, "decisions": 4, "invalid_no_fit": 1, "episode_return": 0.5, "response_censored_s": 9.0}
    table = table3(
        typed_episodes(
            episode_row("scale", 42, 16, e, completed=c, unfinished=10 - c, response_mean_s=r, **metrics)
            for e, (c, r) in enumerate([(4, 3.0), (8, 5.0)])
        )
    )
    row = table.iloc[0]
    assert (row["completed"], row["unfinished"], row["response_mean_s"]) == (6.0, 4.0, 4.0)
    assert row["completed_sd"] == pytest.approx(math.sqrt(8))
    assert (row["response_censored_s"], row["episode_return"], row["invalid_share"]) == (9.0, 0.5, 0.25)
    assert (row["seeds"], row["seeds_note"]) == (1, "no interval")
    assert math.isnan(row["completed_low"])


def test_the_papers_numbers_stand_beside_ours(episodes: pd.DataFrame) -> None:
    table = table3(episodes)
    assert cell(table, "paper_completed", variant="scale") == 8.37
    assert cell(table, "paper_response_mean_s_sd", variant="ppo") == 0.73
    assert pd.isna(cell(table, "paper_completed", variant="fastest-idle"))
    against = table4(episodes)
    assert cell(against, "paper_response_mean_s", variant="crossattn", test_servers=48) == 6.83
    assert pd.isna(cell(against, "paper_response_mean_s", variant="crossattn", test_servers=128))


def test_the_papers_numbers_stand_beside_its_own_setting_and_lambdas_alone(episodes: pd.DataFrame) -> None:
    for other in ({"mask": "feasible"}, {"scenario": "steady-0.7"}, {"decision": "sample"}):
        rows_of = episodes.assign(**other)
        assert "paper_completed" not in table3(rows_of)
        assert "paper_response_mean_s" not in table4(rows_of)
    rows = as_in_the_paper(artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=2))
    grid = rows + [changed(row, {"srr.lambda_kl": 0.1}) for row in rows]
    table = table3(typed_episodes(grid))
    assert list(table["variant"]) == ["scale (λ2=0.001)", "scale (λ2=0.1)"]
    assert list(table["paper_completed"].isna()) == [False, True]


def test_table3_at_several_training_scales_wants_one(episodes: pd.DataFrame) -> None:
    large = episodes[(episodes["method"] == "scale") & (episodes["test_servers"] == 32)]
    both = pd.concat(
        [episodes, large.assign(train_servers=32, scheduler=large["scheduler"] + "x", variant="scale (32)")]
    )
    assert training_scales(both) == [16, 32]
    with pytest.raises(UserError, match="trained at N = 16, 32"):
        table3(both)
    assert list(table3(both, 32)["variant"]) == ["scale (32)", *table4(episodes)["variant"][3:9]]


def test_table3_of_rules_alone_and_of_methods_not_evaluated_where_they_were_trained(episodes: pd.DataFrame) -> None:
    rules = episodes[episodes["kind"] == "heuristic"]
    assert training_scales(rules) == [16]
    assert set(table3(rules)["variant"]) == set(HEURISTICS)
    elsewhere = episodes[episodes["test_servers"] != 16]
    assert training_scales(elsewhere) == []
    assert table3(elsewhere).empty


def test_means_stand_beside_each_other_on_the_episodes_that_all_have_and_say_so() -> None:
    """A method that was played on the first, easy episodes alone looked better than one that played all."""
    values = (1.0, 2.0, 9.0, 20.0)
    rows = [episode_row("scale", 1, 16, e, response_censored_s=v) for e, v in enumerate(values)]
    rows += [episode_row("ppo", 1, 16, e, response_censored_s=v + 1) for e, v in enumerate(values[:2])]
    for table in (table3(typed_episodes(rows)), table4(typed_episodes(rows))):
        columns = ["variant", "response_censored_s", "episodes", "episodes_note"]
        assert table[columns].fillna("").to_numpy().tolist() == [["scale", 1.5, 2, "of 4"], ["ppo", 2.5, 2, ""]]
        assert "2, of 4" in to_html(table)
    apart = [*rows[2:4], *rows[4:]]
    assert table4(typed_episodes(apart))["response_censored_s"].tolist() == [14.5, 2.5], "none is shared"


def test_table4_has_a_row_per_scale_and_variant(episodes: pd.DataFrame) -> None:
    table = table4(episodes)
    assert len(table) == 9 + 3 * 8
    assert list(table["test_servers"].unique()) == [16, 32, 48, 128]
    assert cell(table, "trained", variant="scale", test_servers=16) == "here"
    assert cell(table, "trained", variant="scale", test_servers=48) == "zero-shot"
    assert cell(table, "trained", variant="large-only", test_servers=48) == "fixed"
    columns = list(table.columns)
    assert {"completed", "unfinished", "response_censored_s"} < set(columns)


def test_episodes_in_which_no_task_completed_are_counted() -> None:
    rows = [episode_row("scale", 1, 16, e, response_mean_s=math.nan if e else 4.0) for e in range(3)]
    row = table3(typed_episodes(rows)).iloc[0]
    assert (row["response_mean_s"], row["without_response"]) == (4.0, 2)


def test_columns_of_what_may_go_wrong_are_printed_where_something_did() -> None:
    rows = pd.DataFrame({"variant": ["a", "b"], "unfinished": [0.0, 0.0], "invalid_share": [0.0, 0.25]})
    assert stems(rows) == ["variant", "invalid_share"]
    assert stems(rows.assign(unfinished=[0.0, 2.0])) == ["variant", "unfinished", "invalid_share"]
    assert "unfinished" in to_csv(rows)


def test_side_by_side_names_the_setting_in_each_row(episodes: pd.DataFrame) -> None:
    few = episodes[episodes["method"].isin(["scale", "large-only"])]
    both = pd.concat([few.assign(scenario="steady-0.7", mask="feasible", completed=5), few])
    table = side_by_side({setting: table4(select(both, *setting)) for setting in settings(both)})
    assert list(table.columns[:5]) == ["scenario", "mask", "decision", "test_servers", "variant"]
    assert list(table["scenario"].unique()) == ["paper", "steady-0.7"]
    assert len(table) == 2 * 4 * 2
    where = {"scenario": "steady-0.7", "test_servers": 32, "variant": "scale"}
    assert (cell(table, "mask", **where), cell(table, "completed", **where)) == ("feasible", 5.0)
    own = table[table["scenario"] == "paper"].drop(columns=["scenario", "mask", "decision"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(own, table4(few), check_dtype=False)
    assert pd.isna(cell(table, "paper_response_mean_s", **where))
    assert side_by_side({}).empty


def test_percent_above_the_lower_bound_is_averaged_over_episodes_and_seeds() -> None:
    rows = [
        episode_row("scale", seed, 16, e, response_censored_s=response, bound_capacity_s=bound)
        for seed, level in ((1, 1.0), (2, 2.0))
        for e, (response, bound) in enumerate([(6.0 * level, 4.0), (5.0 * level, 5.0)])
    ]
    for table in (table3(typed_episodes(rows)), table4(typed_episodes(rows))):
        assert table["above_bound_percent"].iloc[0] == pytest.approx((25.0 + 150.0) / 2)
    for bound in (math.nan, 0.0):
        rows = [episode_row("scale", 1, 16, e, response_censored_s=6.0, bound_capacity_s=bound) for e in range(2)]
        assert table4(typed_episodes(rows))["above_bound_percent"].isna().all()


def test_whole_workflows_of_literal_rows() -> None:
    tail = {"jct_median_s": 1.0, "jct_p95_s": 4.0, "jct_p99_s": 9.0, "moved_share": 0.5}
    rows = [
        episode_row("large-only", None, 16, e, jct_mean_s=m, slo_share=share, **tail)
        for e, (m, share) in enumerate([(2.0, 1.0), (4.0, 0.5)])
    ]
    table = workflows_table(typed_episodes([*rows, episode_row("fastest-idle", None, 16, 0)]))
    assert table["variant"].tolist() == ["large-only"], "the other's rows are of a version that did not measure it"
    row = table.iloc[0]
    assert (row["jct_mean_s"], row["jct_p99_s"]) == (3.0, 9.0)
    assert (row["slo_share"], row["moved_share"]) == (0.75, 0.5)


# ---------------------------------------------------------------------- of every table


@pytest.mark.parametrize("make", [table3, table4, paired_table])
def test_the_order_of_the_rows_does_not_matter_and_no_rows_make_a_table_of_none(
    episodes: pd.DataFrame, make: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    pd.testing.assert_frame_equal(make(episodes.sample(frac=1, random_state=1)), make(episodes))
    table = make(episodes.iloc[:0])
    assert table.empty
    assert {"completed", "unfinished", "response_mean_s", "response_censored_s"} <= set(table.columns)


@pytest.mark.parametrize("other", [{"mask": "feasible"}, {"scenario": "steady-0.7"}, {"decision": "sample"}])
def test_mixed_settings_are_refused(episodes: pd.DataFrame, other: dict[str, str]) -> None:
    mixed = pd.concat([episodes, episodes.assign(**other)])
    at_16 = (partial(make, servers=16) for make in (behaviour_table, typical_episode))
    for make in (table3, table4, paired_table, against_base, *at_16):
        with pytest.raises(UserError, match=f"the frame mixes {next(iter(other))}s: .*; a table or figure takes one"):
            make(mixed)
