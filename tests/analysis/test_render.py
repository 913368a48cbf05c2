"""Tables as text: the same digits on the page, on a terminal and in LaTeX; all digits in CSV."""

from __future__ import annotations

import io
import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rllib_scale_analysis.tables.methods import table3, table4
from rllib_scale_analysis.tables.render import format_value, stems, to_csv, to_html, to_latex, to_terminal

from artificial_results import artificial_episodes, episode_row, typed_episodes
from parsed_html import Parsed

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")


def terminal_text(table: pd.DataFrame, width: int) -> tuple[str, list[str]]:
    """What a terminal shows of a table, and the headings of the columns that it leaves out."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    shown, left_out = to_terminal(table, "title", stems(table), width)
    console.print(shown, crop=False)
    return console.file.getvalue(), left_out


def cells(table: pd.DataFrame) -> str:
    """What the page shows of a table, without headings."""
    return " ".join(Parsed(to_html(table)).within("td"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.576, "4.58"),
        (np.float64(-1.005), "-1.00"),
        (-0.004, "0.00"),
        (0.0, "0.00"),
        (30, "30"),
        (np.int64(30), "30"),
        (1234567.891, "1234567.89"),
        (math.nan, "–"),  # noqa: RUF001
        (None, "–"),  # noqa: RUF001
        (pd.NA, "–"),  # noqa: RUF001
        ("lower", "lower"),
    ],
)
def test_one_value_is_printed_one_way(value: object, text: str) -> None:
    assert format_value(value) == text


finite = st.floats(-1e6, 1e6) | st.just(math.nan)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"completed": finite, "completed_sd": finite, "completed_low": finite, "completed_high": finite}
            | {"response_mean_s": finite, "response_mean_s_sd": finite, "episodes": st.integers(0, 10**6)}
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(20, 120),
)
def test_page_terminal_and_latex_agree_to_the_digit(rows: list[dict[str, float]], width: int) -> None:
    table = pd.DataFrame([{"variant": f"m{chr(97 + k)}"} | row for k, row in enumerate(rows)])
    # An interval is printed where its lower end exists; the two always come together.
    alone = table["completed_low"].isna() | table["completed_high"].isna()
    table.loc[alone, ["completed_low", "completed_high"]] = math.nan
    numbers = sorted(NUMBER.findall(cells(table)))
    latex = to_latex(table).split(r"\midrule")[1].replace("$-$", "-")
    assert sorted(NUMBER.findall(latex)) == numbers
    assert sorted(NUMBER.findall(terminal_text(table, 1000)[0])) == numbers
    text, left_out = terminal_text(table, width)
    of_column = {
        "completed tasks": "completed",
        "response of completed tasks (s)": "response_mean_s",
        "episodes": "episodes",
    }
    gone = [of_column[heading] for heading in left_out]
    kept = table[[c for c in table if not any(c == name or c.startswith(f"{name}_") for name in gone)]]
    assert sorted(NUMBER.findall(text)) == sorted(NUMBER.findall(cells(kept))), "a column is there as a whole or not"


settings = st.dictionaries(
    st.sampled_from(["algorithm.learning_rate", "λ2", "network.embedding_dim", "env.workload.offered_load_of_a_day"]),
    st.floats(-1e6, 1e6) | st.integers(0, 10**9) | st.lists(st.floats(0, 1), min_size=1, max_size=3),
    min_size=1,
)


@given(st.lists(settings, min_size=1, max_size=3), st.integers(60, 120))
def test_a_long_name_wraps_in_no_number(names: list[dict[str, object]], width: int) -> None:
    """`learning_rate=0.0003` became `0.00` and `03`."""
    variants = [f"scale ({', '.join(f'{path}={value}' for path, value in own.items())})" for own in names]
    text, left_out = terminal_text(pd.DataFrame({"variant": variants, "completed": 8.37}), width)
    assert not left_out
    told = [number for one in variants for number in NUMBER.findall(one)]
    shown = NUMBER.findall(re.sub(r" +8\.37$", "", text, flags=re.MULTILINE))
    assert shown == told
    assert "".join(text.replace("8.37", "").split()).endswith("".join("".join(variants).split()))


def test_a_csv_loses_no_digit() -> None:
    table = pd.DataFrame({"variant": ["scale"], "kl": [0.004949], "completed": [1 / 3], "seeds_note": [None]})
    assert to_csv(table) == f"variant,kl,completed,seeds_note\nscale,0.004949,{1 / 3!r},\n"


def test_the_cell_of_a_statistic() -> None:
    row = {"variant": "scale", "seeds": 5, "seeds_note": None, "completed": 8.367, "completed_sd": 2.154}
    bounds = {"completed_low": 7.9, "completed_high": 8.844, "completed_verdict": "higher"}
    plain = row | {"completed_low": math.nan, "completed_high": math.nan, "seeds_note": "no interval"}
    assert " ".join(cells(pd.DataFrame([row | bounds])).split()) == "scale 5 8.37 ± 2.15 [7.90, 8.84] higher"
    assert cells(pd.DataFrame([plain])) == "scale 5, no interval 8.37 ± 2.15"
    feature = pd.DataFrame([{"variant": "scale", "feature_covariance": 0.0374, "drift_mmd2": -0.0001}])
    assert cells(feature) == "scale 0.037 0.000", "with the paper's three decimals"


def test_the_tables_of_a_real_layout_fit_a_hundred_columns() -> None:
    episodes = typed_episodes(artificial_episodes())
    for table in (table3(episodes), table4(episodes)):
        lines = terminal_text(table, 100)[0].splitlines()
        assert max(map(len, lines)) <= 100


def test_a_column_of_missing_responses_is_still_printed() -> None:
    table = table3(typed_episodes([episode_row("scale", 1, 16, 0, response_mean_s=math.nan)]))
    assert "response_mean_s" in stems(table)
