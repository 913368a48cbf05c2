"""One number, one text: page, CSV, Markdown, LaTeX, terminal, dashboard; for random and for really played results."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rllib_scale_analysis import load
from rllib_scale_analysis import settings as settings_of
from rllib_scale_analysis.dashboard import selection
from rllib_scale_analysis.dashboard.selection import Filters
from rllib_scale_analysis.dashboard.store import Store
from rllib_scale_analysis.load import Results, select
from rllib_scale_analysis.report.sections import NamedTable, sections
from rllib_scale_analysis.report.terminal import TABLE3_SHOWN, by_servers, print_report
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.tables import methods as tables
from rllib_scale_analysis.tables import render

from artificial_results import artificial_episodes, artificial_features, write_folder
from parsed_html import Parsed
from played_results import play_folder

FORMS = ("page", "markdown", "latex", "terminal")
SHOWN = ("completed", "unfinished", "response_mean_s", "response_censored_s", "above_bound_percent")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-\d+)?(?![\w.])")


def numbers(text: str) -> list[str]:
    return sorted(NUMBER.findall(text))


def bodies(named: NamedTable) -> dict[str, str]:
    """The rows of a table, without its headings, in each form it is shown in."""
    console = Console(width=100_000, file=io.StringIO(), color_system=None)
    terminal, left_out = render.to_terminal(named.table, "title", render.stems(named.table), console.width)
    assert left_out == []
    console.print(terminal)
    latex = render.to_latex(named.table).replace("$-$", "-")
    return {
        "page": " ".join(Parsed(render.to_html(named.table)).within("td")),
        "markdown": render.to_markdown(named.table).split("\n", 2)[2],
        "latex": latex.split(r"\midrule")[1],
        "terminal": re.split("─{3,}", console.file.getvalue())[-1],
    }


def csv_cells(table: pd.DataFrame) -> str:
    """What a CSV holds of the cells that are shown: it also has p-values, IQMs and the ends of P's interval."""
    shown = []
    for row in csv.DictReader(io.StringIO(render.to_csv(table))):
        for column, value in row.items():
            metric = re.sub(r"_(verdict|p_adjusted|better|low|high|sd)$", "", column)
            unclaimed = not row.get(f"{metric}_low", "-") and column.endswith(("_verdict", "_p_adjusted", "_better"))
            hidden = re.search(r"_(p|iqm|iqm_low|iqm_high|better_low|better_high)$", column)
            if not hidden and not unclaimed:
                shown.append(value)
    return " ".join(shown)


def check_tables(found: Results) -> None:
    named_tables = [named for section in sections(found) for named in section.tables]
    assert {named.name.split("-")[0] for named in named_tables} >= {"table4"}
    for named in named_tables:
        expected = numbers(csv_cells(named.table))
        assert {form: numbers(text) for form, text in bodies(named).items()} == dict.fromkeys(FORMS, expected)


def check_terminal(found: Results, report: Path) -> None:
    """The report on a terminal holds numbers of report.md and of the tables alone, and all of the tables it shows."""
    console = Console(width=1000, file=io.StringIO(), color_system=None)
    print_report(found, console)
    said = set(numbers(console.file.getvalue()))
    files = [report, *report.parent.glob("tables/*.csv")]
    counts = re.search(r"All tables \((\d+)\) and figures \((\d+)\)", console.file.getvalue())
    assert counts is not None
    everywhere = {number for path in files for number in numbers(path.read_text().replace(",", " "))}
    assert said <= everywhere | set(counts.groups()) | {"95", "4"}  # of the sentence on intervals, and "Table 4"
    rows = select(found.episodes, *settings_of(found.episodes)[0])
    for servers in tables.training_scales(rows)[:1]:
        table3 = tables.table3(rows, servers)
        shown = [f"{c}{end}" for c in TABLE3_SHOWN for end in ("", *render.SUFFIXES) if f"{c}{end}" in table3]
        assert set(numbers(csv_cells(table3[shown]))) <= said
    if rows["test_servers"].nunique() > 1:
        for metric in ("completed", "response_mean_s"):
            assert set(numbers(render.to_csv(by_servers(tables.table4(rows), metric)).replace(",", " "))) <= said


def check_dashboard(found: Results) -> None:
    """Its cells are those of Table 4, and so are the ones of a single method."""
    units = Store(found.folder).snapshot().units
    for setting in settings_of(found.episodes):
        theirs = tables.table4(select(found.episodes, *setting))
        ours = selection.table(selection.apply(units, Filters(setting)), SHOWN)
        columns = [name for name in ours if name in theirs]
        assert {f"{name}{end}" for name in SHOWN for end in ("", "_sd", "_low", "_high")} <= set(columns)
        assert render.to_html(ours[columns]) == render.to_html(theirs[columns])
        method = str(units["method"].iloc[0])
        one = selection.table(selection.apply(units, Filters(setting, methods=(method,))), SHOWN)
        of_method = theirs[theirs["variant"].isin(one["variant"])]
        assert render.to_csv(one[columns]) == render.to_csv(of_method[columns])


def check_agreement(folder: Path) -> None:
    found = load(folder)
    check_tables(found)
    check_terminal(found, write_report(folder))
    check_dashboard(found)


def test_on_results_that_were_really_played(tmp_path: Path) -> None:
    evaluation = {"scales": [16, 32], "episodes": 3, "masks": ["none", "feasible"], "heuristics": ["fastest-idle"]}
    play_folder(tmp_path / "r", methods=["scale", "crossattn"], seeds=[1, 2, 3, 4, 5], evaluation=evaluation)
    check_agreement(tmp_path / "r")


def test_on_results_in_which_something_is_decided(results_folder: Path, tmp_path: Path) -> None:
    found = load(results_folder)
    check_tables(found)
    check_terminal(found, write_report(results_folder, tmp_path / "report"))
    check_dashboard(found)


metric = st.floats(0, 1e4) | st.just(math.nan)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seeds=st.integers(1, 6),
    scales=st.sampled_from([(16,), (16, 48), (32, 128)]),
    methods=st.sampled_from([("scale", "crossattn", "fastest-idle"), ("scale",), ("large-only",), ("ppo", "scale")]),
    values=st.lists(st.tuples(metric, metric, metric), min_size=1, max_size=7),
)
def test_on_random_results(
    seeds: int,
    scales: tuple[int, ...],
    methods: tuple[str, ...],
    values: list[tuple[float, float, float]],
    home: Path,
) -> None:
    rows = artificial_episodes(seeds=range(seeds), scales=scales, methods=methods, episodes=2)
    for number, row in enumerate(rows):
        completed, response, censored = values[number % len(values)]
        row |= {"completed": None if math.isnan(completed) else int(completed)}
        row |= {"response_mean_s": response, "response_censored_s": censored, "bound_capacity_s": censored / 2}
    features = artificial_features(seeds=range(seeds), scales=scales, methods=[m for m in methods if m != "large-only"])
    folder = write_folder(home / "r", rows, [], features)
    found = load(folder)
    check_tables(found)
    check_dashboard(found)
