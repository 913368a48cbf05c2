"""Table 5, the drift figure, and their place in a report."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis import load, select
from rllib_scale_analysis.figures import draw
from rllib_scale_analysis.figures.training import drift
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.tables import features, render

from artificial_results import (
    SCALES,
    SEEDS,
    artificial_episodes,
    artificial_features,
    as_in_the_paper,
    changed,
    write_folder,
)
from figure_checks import drawn_whole, named
from rllib_scale.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scale and crossattn at four scales, ppo at 16; five seeds."""
    methods = ("scale", "crossattn", "ppo", "fastest-idle")
    rows = artificial_episodes(methods=methods, episodes=2)
    tables = [as_in_the_paper(rows), [], as_in_the_paper(artificial_features())]
    return write_folder(tmp_path_factory.mktemp("features") / "r", *tables)


@pytest.fixture(scope="module")
def rows(folder: Path) -> pd.DataFrame:
    return load(folder).features


def test_a_cell_is_named_as_in_the_episodes(tmp_path: Path) -> None:
    grid = [changed(r, {"srr.lambda_kl": 0.1}) for r in artificial_episodes(methods=("scale",))]
    episodes = artificial_episodes(methods=("scale",)) + grid
    some = artificial_features(methods=("scale",), scales=(16,))  # of the plain trials alone
    assert set(load(write_folder(tmp_path / "r", episodes, [], some)).features["variant"]) == {"scale (λ2=0.001)"}


def test_table5_holds_means_over_seeds_with_intervals_beside_the_papers_numbers(rows: pd.DataFrame) -> None:
    table = features.table5(rows)
    assert [*zip(table["test_servers"], table["variant"], strict=True)] == [
        *((16, "scale"), (16, "crossattn"), (16, "ppo")),
        *((n, method) for n in SCALES[1:] for method in ("scale", "crossattn")),
    ]
    record = table[(table["variant"] == "crossattn") & (table["test_servers"] == 48)].iloc[0]
    own = rows[(rows["variant"] == "crossattn") & (rows["test_servers"] == 48)]
    assert record["feature_kl"] == pytest.approx(own["feature_kl"].mean())
    for metric in ("feature_covariance", "drift_wasserstein", "drift_mmd2"):
        assert record[metric] == pytest.approx(own[metric].mean())
        assert record[f"{metric}_low"] <= record[metric] <= record[f"{metric}_high"]
    assert record["drift_mmd2_low"] < own["drift_mmd2"].median() < record["drift_mmd2_high"]
    assert record["seeds"] == 5
    stated = table.set_index(["variant", "test_servers"])[["paper_feature_covariance", "paper_feature_kl"]]
    assert stated.loc[("scale", 16)].tolist() == [0.037, 0.516]
    assert stated.loc[("scale", 32)].tolist() == [0.036, 0.637]
    assert stated.loc[("scale", 48)].tolist() == [0.044, 0.623]
    assert stated.loc[("crossattn", 16)].tolist() == [0.274, 0.378]
    assert stated.loc[("crossattn", 32)].tolist() == [0.103, 0.498]
    assert stated.loc[("crossattn", 48)].tolist() == [0.090, 0.484]
    assert stated.loc[[("scale", 128), ("crossattn", 128), ("ppo", 16)]].isna().all(axis=None)


def test_the_papers_numbers_stand_beside_its_own_setting_and_lambdas_alone(rows: pd.DataFrame) -> None:
    masked = features.table5(rows.assign(mask="feasible"))
    assert not [column for column in masked if column.startswith("paper_")]
    other = features.table5(rows.assign(of_paper=False))
    assert other["paper_feature_covariance"].isna().all()


def test_two_seeds_claim_no_interval_and_a_network_of_fixed_size_has_no_drift(rows: pd.DataFrame) -> None:
    table = features.table5(rows[rows["train_seed"].isin(SEEDS[:2])])
    assert table["seeds_note"].eq("no interval").all()
    assert table.filter(regex="_low$|_high$").isna().all(axis=None)
    assert table["feature_covariance"].notna().all()
    record = table.query("variant == 'ppo'").iloc[0]
    assert record[["drift_wasserstein", "drift_wasserstein_relative", "drift_mmd2"]].isna().all()


def test_mixed_settings_are_refused_and_the_order_of_the_rows_does_not_matter(rows: pd.DataFrame) -> None:
    for make in (features.table5, drift):
        with pytest.raises(UserError, match="mixes masks"):
            make(pd.concat([rows, rows.assign(mask="other")]))
    pd.testing.assert_frame_equal(features.table5(rows.sample(frac=1, random_state=1)), features.table5(rows))


# ---------------------------------------------------------------------- figure and report


def test_the_figure_shows_every_seed_thin_and_the_mean_thick(rows: pd.DataFrame) -> None:
    chart = drift(rows)
    for panel, metric in zip(chart.panels, ("drift_wasserstein_relative", "drift_mmd2"), strict=True):
        assert sum(marks.thin and len(marks.x) == len(SCALES) for marks in panel.marks) == 2 * len(SEEDS)
        shown = named(panel)
        for name in ("scale", "crossattn"):
            own = rows[rows["variant"] == name]
            np.testing.assert_allclose(shown[name].y, own.groupby("test_servers")[metric].mean())
        assert "ppo" not in shown
    assert "training scale, N = 16" in chart.caption
    assert "each of 5 seeds" in chart.caption
    for some in (rows, rows.assign(test_servers=rows["test_servers"] * 8), rows.iloc[:1]):
        drawn_whole(draw.draw(drift(some)))
    assert drift(rows.iloc[:0]).panels == ()


def test_the_report_holds_table5_and_the_drift(folder: Path, tmp_path: Path) -> None:
    page = write_report(folder, tmp_path / "report")
    assert (page.parent / "figures" / "drift-paper-none-argmax.svg").is_file()
    table = features.table5(select(load(folder).features, "paper", "none", "argmax"))
    assert render.to_html(table) in page.read_text()


def test_a_report_without_features_or_without_a_second_scale(tmp_path: Path) -> None:
    episodes = artificial_episodes(methods=("scale",), scales=(16,), episodes=1)
    folder = write_folder(tmp_path / "r", episodes, [], artificial_features(methods=("scale",), scales=(16,)))
    text = write_report(folder).read_text()
    assert "Table 5" in text
    assert "drift-paper" not in text
    shutil.rmtree(folder / "features")
    assert "variant" in load(folder).features
    assert "Table 5" not in write_report(folder).read_text()
