"""The page of the reproduction: what it says of argmax and sampling is what its rows say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rllib_scale_analysis import load

pytestmark = pytest.mark.slow  # a release checks what is committed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "analysis" / "reproduction"
COLUMNS = [
    (method, decision, metric)
    for metric in ("completed", "response_mean_s")
    for method in ("scale", "crossattn")
    for decision in ("argmax", "sample")
]


def test_the_table_of_argmax_and_sampling_is_that_of_the_rows() -> None:
    rows = load(FOLDER / "decisions").episodes
    means = rows[rows["mask"] == "none"].groupby(["test_servers", "method", "decision"])[
        ["completed", "response_mean_s"]
    ]
    found = means.mean()
    page = (FOLDER / "README.md").read_text(encoding="utf-8").split("## By argmax and by sampling")[1].split("\n## ")[0]
    lines = [line for line in page.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(line.split("|")[1]) for line in lines] == [16, 32, 48, 96, 128]
    for line in lines:
        servers, *said = (float(cell) for cell in line.strip("| ").split("|"))
        expected = [found.loc[(servers, method, decision), metric] for method, decision, metric in COLUMNS]
        assert said[:4] == pytest.approx(expected[:4], abs=0.051), line
        assert said[4:] == pytest.approx(expected[4:], abs=0.0051), line
