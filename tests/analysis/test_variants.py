"""What is compared: the newest rows of each variant, one world in a setting, and a rule for every variant."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rllib_scale_analysis.rows import Setting, select, settings
from rllib_scale_analysis.shown import MOST_SHOWN
from rllib_scale_analysis.tables.comparisons import paired_table
from rllib_scale_analysis.variants import labelled

from artificial_results import artificial_episodes, identified, typed_episodes
from rllib_scale.results.columns import EPISODE_COLUMNS, FEATURE_COLUMNS, TRAINING_COLUMNS
from rllib_scale.results.tables import typed


def read(rows: list[dict[str, Any]]) -> tuple[pd.DataFrame, list[str]]:
    """The rows as the analysis has them, and its notes."""
    notes: list[str] = []
    others = (typed(pd.DataFrame(), columns) for columns in (TRAINING_COLUMNS, FEATURE_COLUMNS))
    return labelled(typed(pd.DataFrame(identified(rows)), EPISODE_COLUMNS), *others, notes)[0], notes


def test_of_a_variant_the_newest_format_counts_and_pooled_seeds_are_said() -> None:
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale", "fastest-idle"), episodes=2)
    older = [row | {"format": 3, "trial_id": "older", "completed": 0} for row in rows if row["method"] == "scale"]
    frame, notes = read([*older, *rows])
    assert (len(frame), (frame["completed"] == 0).sum()) == (4, 0)
    assert notes == ["Rows of an earlier format are left out where there are newer ones: scale."]
    frame, notes = read([*rows, *(row | {"eval_seed": 2} for row in rows)])
    assert (len(frame), notes) == (8, ["paper: episodes of the evaluation seeds 1 and 2 are pooled."])


def test_worlds_that_differ_are_settings_that_differ_also_under_one_name() -> None:
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale", "fastest-idle"), episodes=2)
    load = [row | {"changes": "workload.offered_load=1.2", "trial_id": f"{row['trial_id']}-x"} for row in rows]
    assert len(settings(typed_episodes([*rows, *load]))) == 2
    renamed = typed_episodes([*rows, *(row | {"problem": "other"} for row in rows)])
    assert settings(renamed) == [
        Setting("paper", "none", "argmax", "problem=other"),
        Setting("paper", "none", "argmax", "problem=paper--16"),
    ]
    for setting in settings(renamed):
        assert len(select(renamed, *setting)) == 4


def test_every_variant_is_compared_with_the_rule_however_many_there_are() -> None:
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("fastest-idle",), episodes=2)
    rows += [row | {"protocol": "own", "asked": "reward.name=own"} for row in rows]
    for number in range(MOST_SHOWN + 1):
        grid = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=2)
        rows += [row | {"overrides": f"x={number}", "trial_id": f"scale-{number}"} for row in grid]
    table = paired_table(typed_episodes(rows))
    assert (table["second"] == "fastest-idle").sum() == MOST_SHOWN + 1
