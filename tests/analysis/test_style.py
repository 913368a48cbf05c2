"""The palette: every method and heuristic has a colour and a marker of its own."""

from __future__ import annotations

from rllib_scale_analysis.figures.style import METHOD_STYLES, SPARE_COLOURS

from rllib_scale.config import METHODS


def test_every_method_has_a_colour_that_no_other_has() -> None:
    assert set(METHODS) <= set(METHOD_STYLES)
    colours = [colour for colour, _ in METHOD_STYLES.values()] + list(SPARE_COLOURS)
    assert len(set(colours)) == len(colours)
