"""Transfer in analysis/transfer: its page says what its rows say."""

import re
from pathlib import Path

import pytest
from rllib_scale_analysis import load
from rllib_scale_analysis.tables.transfer import AGAINST, DRIFTS, LOST, agreement, transfer, transfer_table

pytestmark = pytest.mark.slow  # a release checks what is committed

FOLDER = Path(__file__).parents[2] / "analysis" / "transfer"


def test_table_and_correlations_of_the_page_are_those_of_the_rows() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    found = load(FOLDER)
    rows = transfer(found.episodes, found.features)
    expected = transfer_table(rows).set_index("variant")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert [name.strip("`") for name, *_ in lines] == list(expected.index)
    for name, *cells in lines:
        row = expected.loc[name.strip("`")]
        for cell, column in zip(cells, (*DRIFTS, AGAINST, LOST), strict=True):
            said = [float(number) for number in re.findall(r"-?\d+\.\d+", cell)]
            assert said == pytest.approx([row[column], row[f"{column}_low"], row[f"{column}_high"]], abs=0.0051)
    cells = found.episodes.loc[found.episodes["train_seed"] == 45, "cell"].unique()
    every, without = agreement(rows), agreement(rows[~rows["cell"].isin(cells)])
    text = " ".join(page.split())
    for table in (every, without):
        for row in table.to_dict("records"):
            ends = f"[{row['between_policies_low']:.2f}, {row['between_policies_high']:.2f}]"
            assert f"{row['between_policies']:.2f} {ends}" in text
    assert "({:.2f} and {:.2f})".format(*every["between_problems"]) in text
    assert (every[["policies", "problems"]].to_numpy() == (20, 31)).all()
