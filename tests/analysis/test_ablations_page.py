"""The long sweeps in analysis/ablations: their page says what their rows say."""

import re
from pathlib import Path

import pandas as pd
import pytest
from rllib_scale_analysis import load

pytestmark = pytest.mark.slow  # a release checks what is committed

FOLDER = Path(__file__).parents[2] / "analysis" / "ablations"
SCALES = [16, 32, 48, 128]


def tables() -> list[dict[str, list[float]]]:
    """The tables of the page: first cell -> numbers."""
    found: list[dict[str, list[float]]] = []
    for block in (FOLDER / "README.md").read_text(encoding="utf-8").split("\n\n"):
        if block.startswith("|"):
            rows = [line.strip("| ").split(" | ") for line in block.splitlines()[2:]]
            found.append({name: [float(cell) for cell in cells] for name, *cells in rows})
    return found


def means(folder: str, metric: str, **where: str) -> pd.DataFrame:
    rows = load(FOLDER / folder).episodes
    for name, value in where.items():
        rows = rows[rows[name] == value]
    per_seed = rows.groupby(["method", "test_servers", "train_seed"], dropna=False)[metric].mean()
    return per_seed.groupby(["method", "test_servers"]).mean().unstack()[SCALES]


@pytest.mark.parametrize(("number", "mask"), [(0, "none"), (1, "feasible")])
def test_encoders(number: int, mask: str) -> None:
    expected = means("encoders", "completed", mask=mask)
    for name, said in tables()[number].items():
        assert said == pytest.approx(expected.loc[re.findall("`(.*)`", name)[0]].tolist(), abs=0.0051), name


def test_steady() -> None:
    for name, said in tables()[2].items():
        method, scenario = name.replace("`", "").split(", ")
        expected = means("steady", "response_censored_s", scenario=scenario).loc[method]
        assert said == pytest.approx(expected.tolist(), abs=0.0051), name
