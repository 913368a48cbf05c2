"""Training curves: every seed thin, the median thick, long ones smoothed and thinned out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rllib_scale_analysis.figures import evaluation as figures
from rllib_scale_analysis.figures import training as curves

from artificial_results import SEEDS, artificial_training, typed_training
from figure_checks import caption, drawn_whole


@pytest.mark.parametrize(
    ("rows", "panels"),
    [
        (artificial_training(epochs=120), 6),
        (artificial_training(seeds=SEEDS[:1], epochs=1), 6),
        (artificial_training(methods=("ppo",), epochs=5), 3),
        ([], 1),
    ],
)
def test_training_curves_are_drawn_whole(rows: list[dict[str, object]], panels: int) -> None:
    figure = curves.training_curves(typed_training(rows))
    drawn_whole(figure)
    assert sum(axes.axison and bool(axes.get_lines()) for axes in figure.axes) == (panels if rows else 0)


def test_training_curves_show_every_seed_thin_and_the_median_thick() -> None:
    training = typed_training(artificial_training(methods=("scale",), epochs=10))
    axes = curves.training_curves(training).axes[1]
    assert axes.get_ylabel() == "completed tasks"
    thick = [line for line in axes.get_lines() if line.get_linewidth() > 2]
    thin = [line for line in axes.get_lines() if line.get_linewidth() < 1]
    assert (len(thick), len(thin)) == (1, 5)
    np.testing.assert_allclose(thick[0].get_ydata(), training.groupby("epoch")["completed"].median())


def test_long_training_curves_are_smoothed_and_say_so() -> None:
    training = typed_training(artificial_training(seeds=SEEDS[:1], methods=("scale",), epochs=100))
    figure = curves.training_curves(training)
    assert "Running mean over 2 epochs" in caption(figure)
    raw = training["completed"].to_numpy()
    np.testing.assert_allclose(figure.axes[1].get_lines()[0].get_ydata()[1:], (raw[1:] + raw[:-1]) / 2)


def test_very_long_curves_are_drawn_by_so_many_epochs_from_first_to_last() -> None:
    training = typed_training(artificial_training(seeds=SEEDS[:1], methods=("scale",), epochs=1000))
    line = curves.training_curves(training).axes[0].get_lines()[0]
    assert len(line.get_xdata()) == curves.SHOWN_EPOCHS
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (1, 1000)
    smooth = training.set_index("epoch")["episode_return"].rolling(20, min_periods=1).mean()
    np.testing.assert_allclose(line.get_ydata(), smooth[np.asarray(line.get_xdata())])


def test_many_thin_lines_are_pixels_in_an_svg(tmp_path: Path) -> None:
    for seeds, pixels in ((curves.VECTOR_LINES, False), (curves.VECTOR_LINES + 1, True)):
        rows = artificial_training(seeds=range(seeds), methods=("ppo",), epochs=3)
        figures.save(curves.training_curves(typed_training(rows)), tmp_path / "f.svg")
        assert ("<image" in (tmp_path / "f.svg").read_text()) == pixels
