"""The report of a results folder: its page and its files."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from rllib_scale_analysis.load import NEVER_MISSING, load
from rllib_scale_analysis.report.terminal import print_report
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.rows import select
from rllib_scale_analysis.tables import comparisons, methods

from artificial_results import SEEDS, artificial_episodes, artificial_training, changed, part_of, write_folder
from parsed_html import Parsed
from rllib_scale.errors import UserError
from rllib_scale.results.columns import METRIC_COLUMNS

NASTY = "<b>&\"'</b>"


@pytest.fixture(scope="module")
def report(results_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(results_folder, tmp_path_factory.mktemp("out") / "report")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two methods at one scale."""
    rows = artificial_episodes(seeds=SEEDS[:2], scales=(16,), methods=("scale", "crossattn"), episodes=3)
    return write_folder(tmp_path_factory.mktemp("small") / "r", rows, artificial_training((1,), ("scale",), 3))


def page_of(report: Path) -> Parsed:
    return Parsed(report.read_text(encoding="utf-8"))


def write(folder: Path, episodes: list[dict[str, object]]) -> Parsed:
    return page_of(write_report(write_folder(folder, episodes, [])))


def files_of(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}


def test_it_is_one_page_and_a_csv_of_each_table_and_an_svg_of_each_figure(report: Path) -> None:
    files = files_of(report.parent)
    tables, drawn = ({Path(name).stem for name in files if name.startswith(kind)} for kind in ("tables/", "figures/"))
    assert files == {
        "report.html",
        "written-by-rllib-scale.txt",
        *(f"tables/{t}.csv" for t in tables),
        *(f"figures/{f}.svg" for f in drawn),
    }
    assert {name.split("-")[0] for name in tables} == {"against", "decisions", "paired", "table3", "table4"}
    assert {name.split("-")[0] for name in drawn} == {"methods", "servers", "training", "verdicts"}
    page = page_of(report)
    ids = [str(attributes["id"]) for _, attributes in page.attributes if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(ids) >= tables | drawn
    links = {str(a["href"]) for tag, a in page.attributes if tag == "a"}
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert sum(tag == "img" for tag, _ in page.attributes) == len(drawn)
    for name in drawn:
        assert len(list(ElementTree.parse(report.parent / "figures" / f"{name}.svg").iter())) > 50


def test_a_csv_holds_every_digit_of_its_table_and_the_page_names_it(report: Path, results_folder: Path) -> None:
    rows = select(load(results_folder).episodes, "paper", "none", "argmax")
    expected = methods.table3(rows)
    path = report.parent / "tables" / "table3-paper-none-argmax-n16.csv"
    assert (expected["response_mean_s"] != expected["response_mean_s"].round(2)).any()
    found = pd.read_csv(path)
    for column in ("completed", "response_mean_s", "response_mean_s_sd", "response_mean_s_low"):
        assert found[column].tolist() == pytest.approx(expected[column].tolist(), rel=1e-15, nan_ok=True)
    assert f"All digits: tables/{path.name}" in page_of(report).text


def test_it_opens_with_pictures_and_five_lines_that_are_counted_from_the_tables(
    report: Path, results_folder: Path
) -> None:
    page = page_of(report)
    pictures = [str(a["id"]) for tag, a in page.attributes if tag == "figure"]
    assert pictures[0] == "verdicts"
    rows = select(load(results_folder).episodes, "paper", "none", "argmax")
    level = methods.table3(rows).set_index("variant").loc["crossattn", "completed"]
    jct = methods.table3(rows).set_index("variant").loc["fastest-idle", "jct_mean_s"]
    said = f"On 16 servers fastest-idle completes the most tasks, 14.83; its mean JCT is {jct:.2f} s. The best trained"
    assert f"{said} method is crossattn, {level:.2f}." in page.within("p")
    lines = page.within("li")[:4]
    paired = comparisons.paired_table(load(results_folder).episodes)
    for question, start in (("SRR", "Does SRR help? "), ("rule", "Does learning beat the rule? ")):
        verdicts_of = paired.loc[paired["question"] == question, "completed_verdict"].tolist()
        (line,) = [line for line in lines if line.startswith(start)]
        found = [int(number) for number in re.findall(r"\d+", line)]
        assert found == [len(verdicts_of), *(verdicts_of.count(v) for v in ("higher", "lower", "undecided"))]
    assert "Trained for 40 epochs (40960 env steps), 5 seeds: scale, crossattn and ppo." in page.text
    assert "config hash: 0123456789ab" in page.text


def test_the_report_on_a_terminal_holds_numbers_of_the_page_alone(report: Path, results_folder: Path) -> None:
    console = Console(width=1000, file=io.StringIO(), color_system=None)
    print_report(load(results_folder), console)
    shown = console.file.getvalue().split("All tables (")[0]
    number = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-\d+)?(?![\w.])")
    assert set(number.findall(shown)) <= {*number.findall(page_of(report).text), "95", "4"}


def test_it_loads_nothing(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    for tag, attributes in Parsed(text).attributes:
        assert tag not in ("link", "iframe", "object"), tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_names_stand_there_as_text(tmp_path: Path) -> None:
    rows = [r | {"method": NASTY} for r in artificial_episodes(scales=(16,), methods=("large-only",))]
    page = write(tmp_path / "r", rows)
    assert NASTY in page.within("td")
    assert "b" not in {tag for tag, _ in page.attributes}


def test_latex_on_request(small: Path, tmp_path: Path) -> None:
    folder = write_report(small, tmp_path / "report", latex=True).parent
    tables = {name[:-4] for name in files_of(folder) if name.endswith(".csv")}
    assert {name[:-4] for name in files_of(folder) if name.endswith(".tex")} == tables
    text = (folder / "tables" / "table3-paper-none-argmax-n16.tex").read_text()
    assert text.startswith("\\begin{tabular}{l")
    assert "crossattn & " in text


# ---------------------------------------------------------------------- whose files are replaced


def test_a_report_replaces_an_earlier_one_and_leaves_other_files(tmp_path: Path) -> None:
    both = artificial_episodes(seeds=(1,), scales=(16, 32), methods=("scale",), episodes=2)
    folder = write_folder(tmp_path / "r", [*both, *(r | {"mask": "feasible"} for r in both)], [])
    report = write_report(folder, latex=True)
    assert report == folder / "report" / "report.html"
    own = {"notes.txt", "figures/mine.png", "tables/mine.md"}
    for name in own:
        (report.parent / name).write_text("mine")
    shutil.rmtree(folder / "episodes")
    write_folder(folder, both, [])
    write_report(folder)
    files = files_of(report.parent)
    assert {name for name in files if (report.parent / name).read_text() == "mine"} == own
    assert not [name for name in files if "feasible" in name or name.endswith((".tmp", ".tex"))]
    assert not [*report.parent.rglob(".*")], "fetch leaves hidden files out, and a report of what it fetched is refused"
    assert "tables/table3-paper-none-argmax-n16.csv" in files


@pytest.mark.parametrize("name", ["report.html", "tables/table3-paper-none-argmax-n16.csv"])
def test_a_folder_that_no_report_made_is_refused_and_named(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "r", artificial_episodes((1,), (16,), ("scale",), 1), [])
    path = folder / "report" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    for _ in range(2):
        with pytest.raises(UserError, match=f"{folder / 'report'}: not empty, and no report made it"):
            write_report(folder)
    assert files_of(folder / "report") == {name}
    with pytest.raises(UserError, match=r"(html|csv): cannot be written"):
        write_report(folder, path)


# ---------------------------------------------------------------------- few rows, many settings, failures


@pytest.mark.parametrize(
    ("episodes", "said"),
    [
        ([], "There is nothing to compare yet."),
        (artificial_episodes(methods=("large-only",), scales=(16,), episodes=2), "fixed"),
        (
            artificial_episodes(seeds=SEEDS[:1], scales=(16, 32), episodes=3),
            "Too few seeds (1 of 5) to name a winner among trained methods.",
        ),
    ],
)
def test_few_rows_make_a_report_that_claims_nothing(
    tmp_path: Path, episodes: list[dict[str, object]], said: str
) -> None:
    page = write(tmp_path / "r", episodes)
    assert said in page.text
    assert "Training curves" not in page.text
    assert {"lower", "higher"}.isdisjoint(page.within("small"))
    for table in (tmp_path / "r" / "report" / "tables").glob("table4-*.csv"):
        assert pd.read_csv(table)["completed_low"].isna().all()


def test_metrics_without_a_value_are_dashes(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1, 2), scales=(16,), methods=("scale", "crossattn"), episodes=2)
    page = write(tmp_path / "r", [row | dict.fromkeys(set(METRIC_COLUMNS) - set(NEVER_MISSING)) for row in rows])
    assert page.within("td").count("–") > 10  # noqa: RUF001
    assert "nan" not in page.text.lower().split()
    assert "fixed" not in page.within("td"), "a learned method without a value was trained"


def test_what_failed_or_is_missing_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    rows = artificial_episodes(seeds=(1, 2), scales=(16,), methods=("scale", "crossattn"), episodes=2)
    rows = [row for row in rows if (row["method"], row["train_seed"], row["episode"]) != ("crossattn", 2, 1)]
    write_folder(folder, rows, [])
    path = part_of(folder)
    pd.read_parquet(path).drop(columns=["bound_capacity_s", "energy_j"]).to_parquet(path)
    failed = folder / "trials" / "run-001" / "ppo-s47-abc"
    failed.mkdir(parents=True)
    failures = "".join(f"Failure # {number}\nTraceback\nRuntimeError: out of <memory>\n" for number in range(1, 5))
    (failed / "error.txt").write_text(failures)
    (folder / "trials" / "run-001" / "scale-s48-def").mkdir()
    page = page_of(write_report(folder))
    assert {
        "Training failed: ppo-s47-abc: RuntimeError: out of <memory>",
        "Not in these numbers, as still running: scale-s48-def.",
        "episodes: without energy_j, bound_capacity_s; these are shown as missing.",
    } <= set(page.within("li"))
    assert "1, of 2" not in page.within("td"), "of seed 2 an episode is missing, no other one"
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace('"version": 3', '"version": 1'))
    with pytest.raises(
        UserError, match=r"results version 1, of rllib-scale .*; this program reads version 3: .*rllib-scale convert"
    ):
        write_report(folder)


def test_several_settings_and_a_grid_of_weights_share_a_page(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1, 2), scales=(16, 32), methods=("scale", "large-only"), episodes=2)
    grid = [changed(r, {"srr.lambda_kl": 0.1}) for r in rows if r["method"] == "scale"]
    steady = [r | {"scenario": "steady-0.7", "mask": "feasible", "jct_p95_s": 1.0} for r in rows]
    page = write(tmp_path / "r", [*rows, *grid, *steady])
    ids = [str(attributes["id"]) for _, attributes in page.attributes if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"paper-none-argmax", "steady-0.7-feasible-argmax", "settings", "scenarios"} <= set(ids)
    assert sum(attributes.get("class") == "setting" for _, attributes in page.attributes) == 1, "others are folded"
    assert [name for name in ids if name.startswith("workflows-")] == ["workflows-steady-0.7-feasible-argmax"]
    table3 = pd.read_csv(tmp_path / "r/report/tables/table3-paper-none-argmax-n16.csv")
    assert table3["variant"].tolist() == ["scale (λ2=0.001)", "scale (λ2=0.1)", "large-only"]


def test_schedules_stand_there_where_they_can_be_drawn_and_else_why_not(small: Path, tmp_path: Path) -> None:
    asked = []

    def gantt(rows: Sequence[pd.Series], titles: Sequence[str]) -> Figure:
        asked.append([row["variant"] for row in rows])
        if len(asked) > 1:
            raise UserError("the policy is gone")
        return Figure()

    report = write_report(small, tmp_path / "report", gantt)
    assert asked == [["scale", "crossattn"]]
    assert (report.parent / "figures" / "gantt-typical-paper-none-argmax-n16.svg").is_file()
    assert "Not drawn: the policy is gone." in page_of(write_report(small, tmp_path / "report", gantt)).text
