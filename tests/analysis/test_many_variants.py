"""A grid of many settings: each is compared with its like alone, pages show the best ones, files hold all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rllib_scale_analysis.figures.training import training_curves
from rllib_scale_analysis.load import load
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.shown import MOST_SHOWN
from rllib_scale_analysis.tables.comparisons import default_pairs

from artificial_results import artificial_training, episode_row, write_folder
from parsed_html import Parsed

SETTINGS = range(20)


def test_of_many_variants_the_best_are_shown_and_each_is_compared_with_its_like(tmp_path: Path) -> None:
    episodes, training = [], []
    curve = artificial_training(seeds=(42,), methods=("scale",), epochs=3)
    for method in ("scale", "crossattn"):
        for k in SETTINGS:
            identity = {"trial_id": f"{method}-{k}", "overrides": f"training.learning_rate={k}"}
            completed = 100 + 2 * k + (method == "scale")  # the higher the setting, the better
            episodes += [episode_row(method, 42, 16, e, **identity, completed=completed + e) for e in range(2)]
            training += [row | identity | {"method": method, "episode_return": completed} for row in curve]
    episodes += [episode_row("fastest-idle", None, 16, e, completed=90 + e) for e in range(2)]
    found = load(write_folder(tmp_path / "results", episodes, training))

    pairs = default_pairs(found.episodes)
    assert len(pairs) == 20 + 40
    assert {(a.split("=")[1], b.split("=")[1]) for a, b in pairs if b != "fastest-idle"} == {
        (f"{k})", f"{k})") for k in SETTINGS
    }
    page = write_report(tmp_path / "results")
    best = {f"{method} (training.learning_rate={k})" for method in ("scale", "crossattn") for k in range(14, 20)}
    assert len(best) == MOST_SHOWN
    shown = [text for text in Parsed(page.read_text(encoding="utf-8")).within("td") if "learning_rate" in text]
    assert set(shown) == best
    assert "Shown are the 12 best of 40 learned variants by mean rank." in page.read_text(encoding="utf-8")
    (table3,) = page.parent.glob("tables/table3-*.csv")
    assert len(pd.read_csv(table3)) == 41
    chart = training_curves(found.training, ["episode_return"])
    assert {marks.name for marks in chart.panels[0].marks if marks.name} == best
