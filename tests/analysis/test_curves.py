"""Training curves: every seed thin, the median thick, long ones smoothed and thinned out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from rllib_scale_analysis.figures import draw
from rllib_scale_analysis.figures.chart import Marks
from rllib_scale_analysis.figures.training import POINTS, training_curves

from artificial_results import SEEDS, artificial_training, typed_training
from figure_checks import drawn_whole, named


def curve(training: pd.DataFrame, metric: str = "completed", **options: object) -> Marks:
    return named(training_curves(training, [metric], **options).panels[0])["scale"]  # type: ignore[arg-type]


def test_training_curves_show_every_seed_thin_and_the_median_thick() -> None:
    training = typed_training(artificial_training(methods=("scale",), epochs=10))
    panel = training_curves(training).panels[1]
    assert panel.y_label == "completed tasks"
    np.testing.assert_allclose(named(panel)["scale"].y, training.groupby("epoch")["completed"].median())
    (thin,) = [marks for marks in panel.marks if marks.thin]
    by_seed = np.asarray(thin.y).reshape(5, 11)
    assert np.isnan(by_seed[:, -1]).all(), "a gap after each seed"
    np.testing.assert_allclose(np.sort(by_seed[:, :-1].ravel()), np.sort(training["completed"]))


def test_long_curves_are_smoothed_thinned_out_from_first_to_last_and_say_so() -> None:
    training = typed_training(artificial_training(seeds=SEEDS[:1], methods=("scale",), epochs=1000))
    marks = curve(training, "episode_return")
    assert len(marks.x) == POINTS
    assert (marks.x[0], marks.x[-1]) == (1, 1000)
    smooth = training.set_index("epoch")["episode_return"].rolling(20, min_periods=1).mean()
    np.testing.assert_allclose(marks.y, smooth[np.asarray(marks.x)])
    chart = training_curves(training)
    drawn_whole(draw.draw(chart))
    assert len(chart.panels) == 6
    assert "Running mean over 20 epochs" in chart.caption
    raw = training_curves(training.head(100), ["completed"], smoothing=1)
    np.testing.assert_allclose(named(raw.panels[0])["scale"].y, training["completed"].head(100))
    assert "Running mean" not in raw.caption


def test_what_was_not_measured_has_no_panel() -> None:
    assert len(training_curves(typed_training(artificial_training(methods=("ppo",), epochs=5))).panels) == 3
    assert not training_curves(typed_training([])).panels


def test_the_axis_is_epochs_steps_or_seconds() -> None:
    training = typed_training(artificial_training(seeds=SEEDS[:1], methods=("scale",), epochs=10))
    for x in ("epoch", "env_steps", "wall_s"):
        np.testing.assert_allclose(curve(training, x=x).x, training[x].astype(float))
