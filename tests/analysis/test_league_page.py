"""The league in analysis/league: its page says what its rows say."""

import re
from pathlib import Path

import pytest
from rllib_scale_analysis import load
from rllib_scale_analysis.tables.league import league

pytestmark = pytest.mark.slow  # a release checks what is committed

FOLDER = Path(__file__).parents[2] / "analysis" / "league"


def test_the_table_of_the_page_is_that_of_the_rows() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    expected = league(load(FOLDER).episodes).set_index("variant")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if re.search(r" \d\.\d\d \| ", line)]
    assert [name.strip("`") for name, *_ in lines] == list(expected.index)
    for name, rank, worst, where, closed in lines:
        row = expected.loc[name.strip("`")]
        numbers = [float(number) for number in re.findall(r"\d+\.\d+", rank)]
        assert numbers == pytest.approx([row["mean_rank"], row["mean_rank_low"], row["mean_rank_high"]], abs=0.051)
        assert (float(worst), where.strip("`")) == (pytest.approx(row["worst_ratio"], abs=0.0051), row["worst_in"])
        assert float(closed) == pytest.approx(row["gap_closed_percent"], abs=0.51)
