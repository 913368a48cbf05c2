"""What policies lose elsewhere beside their feature's drift: of literal rows."""

from __future__ import annotations

import math
from pathlib import Path
from runpy import run_path
from typing import Any

import pandas as pd
import pytest
from rllib_scale_analysis.figures.style import looks
from rllib_scale_analysis.load import load
from rllib_scale_analysis.rows import variants

from artificial_results import WORDS, artificial_training, episode_row, write_folder
from rllib_scale.results.columns import FEATURE_COLUMNS

STUDY = run_path(str(Path(__file__).parents[2] / "analysis" / "studies" / "transfer" / "study.py"))
AGAINST, DRIFTS, LOST = (STUDY[name] for name in ("AGAINST", "DRIFTS", "LOST"))
agreement, transfer, transfer_table = (STUDY[name] for name in ("agreement", "transfer", "transfer_table"))
ELSEWHERE = ("deep", "wide", "burst")
SEEDS = range(1, 7)


def content(worse: float = 1.0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Six policies, 10 % behind the rule at home; elsewhere the k-th drifts k times as far and is `worse` k % more."""
    episodes, features = [], []
    for scenario in ("steady-0.7", *ELSEWHERE):
        for episode, base in enumerate((8.0, 12.0)):
            row = {"scenario": scenario, "mask": "feasible", "response_censored_s": base}
            episodes.append(episode_row("fastest-idle", None, 16, episode, **row))
            for seed in SEEDS:
                behind = 1.10 if scenario == "steady-0.7" else 1.10 + 0.01 * worse * seed
                row |= {"response_censored_s": base * behind}
                episodes.append(episode_row("scale", seed, 16, episode, **row))
        for seed in SEEDS:
            kept = episode_row("scale", seed, 16, 0, scenario=scenario, mask="feasible")
            kept = {name: value for name, value in kept.items() if name in (*WORDS, *FEATURE_COLUMNS)}
            from_training = 0.01 if scenario == "steady-0.7" else 0.1 * seed
            kept |= {"drift_mmd2": 0.01, "drift_training_mmd2": from_training}
            features.append(kept | {"drift_training_wasserstein": 2 * from_training, "feature_rows": 10})
    return episodes, features


def rows_of(tmp_path: Path, worse: float = 1.0) -> pd.DataFrame:
    episodes, features = content(worse)
    found = load(write_folder(tmp_path, episodes, artificial_training(seeds=SEEDS, epochs=2), features))
    return transfer(found.episodes, found.features)


def test_what_is_lost_is_what_the_policy_is_further_behind_than_at_home(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    assert set(rows["scenario"]) == set(ELSEWHERE)
    assert len(rows) == len(ELSEWHERE) * len(SEEDS)
    by_drift = rows.groupby("drift_training_mmd2")[[AGAINST, LOST]].mean()
    assert by_drift[AGAINST].tolist() == pytest.approx([11, 12, 13, 14, 15, 16])
    assert by_drift[LOST].tolist() == pytest.approx([1, 2, 3, 4, 5, 6])
    table = transfer_table(rows).iloc[0]
    assert (table["seeds"], table[LOST], table[DRIFTS[0]]) == (6, pytest.approx(3.5), pytest.approx(0.7))
    assert table[f"{LOST}_low"] < 3.5 < table[f"{LOST}_high"]


def test_ranks_of_drift_and_loss_agree_or_are_turned_round(tmp_path: Path) -> None:
    for worse in (1.0, -1.0):
        found = agreement(rows_of(tmp_path / str(worse), worse))
        assert found["between_policies"].tolist() == pytest.approx([worse] * 2)
        assert found["between_policies_low"].tolist() == pytest.approx([worse] * 2)
        assert found[["policies", "problems"]].to_numpy().tolist() == [[6, 3]] * 2


def test_a_policy_without_its_home_or_without_the_base_says_nothing(tmp_path: Path) -> None:
    episodes, features = content()
    cases = (
        ([row for row in episodes if row["scenario"] != "steady-0.7"], features),
        ([row for row in episodes if row["method"] != "fastest-idle"], features),
        (episodes, [row for row in features if row["scenario"] != "burst"]),
        (episodes, [row | {"drift_training_mmd2": math.nan} for row in features]),
    )
    for number, (kept, measured) in enumerate(cases):
        found = load(write_folder(tmp_path / str(number), kept, artificial_training(seeds=SEEDS, epochs=2), measured))
        assert transfer(found.episodes, found.features).empty, number


def test_the_figure_has_a_point_for_each_problem(tmp_path: Path) -> None:
    episodes, features = content()
    found = load(write_folder(tmp_path / "new", episodes, artificial_training(seeds=SEEDS, epochs=2), features))
    rows = transfer(found.episodes, found.features)
    chart = STUDY["lost_by_drift"](rows, agreement(rows), looks(found.episodes, variants(rows)))
    assert [len(panel.marks[0].x) for panel in chart.panels] == [3, 3]
    assert "1.00 [1.00, 1.00]" in chart.caption
