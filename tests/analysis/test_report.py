"""The report folder and the report on a terminal."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from matplotlib import image
from rich.console import Console

from analysis import load
from analysis.report import print_report, write_report
from artificial_results import SEEDS, artificial_episodes, artificial_training, write_folder
from rllib_scale.errors import UserError


@pytest.fixture(scope="module")
def report(results_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(results_folder, tmp_path_factory.mktemp("out") / "report")


def printed(folder: Path, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_report(load(folder), console)
    return console.file.getvalue()


def paired_rows(report: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((report.parent / "tables" / "paired-paper-none-argmax.csv").open()))


def test_the_page_shows_every_file_and_every_file_is_shown(report: Path) -> None:
    text = report.read_text()
    shown = set(re.findall(r"\((figures/[^)]+|tables/[^)]+)\)", text))
    there = {str(p.relative_to(report.parent)) for p in report.parent.glob("*/*") if p.suffix != ".md"}
    assert shown == there
    assert sorted(Path(name).name.split("-")[0] for name in there) == [
        *("methods", "paired", "servers", "table3", "table4", "throughput", "training.png")
    ]
    for path in report.parent.glob("figures/*.png"):
        assert image.imread(path).std() > 0.05


def test_the_words_come_from_the_numbers(report: Path) -> None:
    text = report.read_text()
    assert "- Trained for 40 epochs (40960 env steps), 5 seeds: scale, crossattn, ppo." in text
    assert "Fewer epochs than the paper's 1000" in text
    assert "- N = 16. Most completed tasks on average: fastest-idle, 14.83." in text
    line = next(line for line in text.splitlines() if line.startswith("- scale - fastest-idle at N = 16: "))
    row = next(r for r in paired_rows(report) if (r["first"], r["second"]) == ("scale", "fastest-idle"))
    numbers = f"{row['completed']} [{row['completed_low']}, {row['completed_high']}]"
    assert f"completed tasks {numbers}, lower (Holm-adjusted p = {row['completed_p_adjusted']})" in line
    assert re.search(r"; response time -\d\.\d\d s \[-\d\.\d\d, -\d\.\d\d\], lower \(Holm-adjusted p = ", line)
    assert "Further: completed tasks lower at N = 32, 48, 128; response time undecided at N = 32, 48 and higher" in line
    assert "Where N is 16, the lower response comes with fewer completed tasks." in line
    assert "no interval" not in text.split("### ")[0]
    assert "- config hash: 0123456789ab" in text


def test_the_markdown_tables_stand_in_the_page_and_agree_with_the_csv(report: Path) -> None:
    page = report.read_text()
    for path in sorted(report.parent.glob("tables/*.csv")):
        markdown = path.with_suffix(".md").read_text().split("\n\n", 1)[1].strip()
        assert markdown in page
        rows = list(csv.DictReader(path.open()))
        lines = markdown.splitlines()[2:]
        assert len(rows) == len(lines) > 0
        for row, line in zip(rows, lines, strict=True):
            assert f" {row['response_mean_s']} " in line
            assert f"[{row['completed_low']}, {row['completed_high']}]" in line or not row["completed_low"]


def test_the_terminal_says_what_the_page_says_within_a_hundred_columns(results_folder: Path, report: Path) -> None:
    text = printed(results_folder)
    assert max(map(len, text.splitlines())) <= 100
    page = report.read_text()
    for name in ("scale", "fastest-idle"):
        numbers = re.search(rf"^\| {name} \|.*$", page, re.MULTILINE)
        assert numbers is not None
        for statistic in re.findall(r"[\d.]+ ± [\d.]+|\[[^\]]+\]", numbers.group()):
            assert statistic in text
    assert "scale - crossattn at N = 16: completed tasks" in text
    assert "Table 4: response against the number of servers, zero-shot · N = 128" in text
    assert "Paired differences · scale minus crossattn" in text


def test_one_seed_claims_nothing(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path / "r", artificial_episodes(seeds=SEEDS[:1]), artificial_training(seeds=SEEDS[:1], epochs=3)
    )
    text = write_report(folder).read_text()
    assert "fewer than 5 seeds, no interval and no win or loss is claimed" in text
    assert "scale - crossattn: nothing is decided, no interval (1 seed)." in text
    tables = text.split("### ", 1)[1]
    assert not re.search(r"\| [^|]*\[-?\d", tables)
    assert "lower at N" not in text
    assert "higher at N" not in text


def test_settings_stand_apart_and_an_incomplete_pair_is_named(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1, 2), scales=(16, 32), methods=("scale", "crossattn"), episodes=2)
    rows = [r for r in rows if (r["cell"], r["test_servers"], r["episode"]) != ("crossattn-2", 16, 1)]
    folder = write_folder(tmp_path / "r", [*rows, *(r | {"mask": "feasible"} for r in rows)], [])
    text = write_report(folder).read_text()
    assert text.count("## Scenario paper, mask none, decision argmax") == 1
    assert text.count("## Scenario paper, mask feasible, decision argmax") == 1
    assert text.count("Not compared: scale has no partner in crossattn for seed 2, N=16") == 2
    assert "Paired differences" not in text
    papers, masked = text.split("## Scenario paper, mask feasible")
    assert "paper: completed" in papers
    assert "paper: completed" not in masked


@pytest.mark.parametrize(
    ("episodes", "said"),
    [
        ([], "No evaluation episode has been written yet."),
        (artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=1), "| scale | 1, no CI |"),
        (artificial_episodes(methods=("large-only",), scales=(16,), episodes=2), "| large-only | 0, rule |"),
    ],
)
def test_hardly_any_rows_make_a_report(tmp_path: Path, episodes: list[dict[str, object]], said: str) -> None:
    folder = write_folder(tmp_path / "r", episodes, [])
    assert said in write_report(folder).read_text()
    assert "Training curves" not in write_report(folder).read_text()
    assert printed(folder)


def test_a_report_is_written_anew_and_leaves_no_stale_table(tmp_path: Path) -> None:
    both = artificial_episodes(seeds=(1,), scales=(16, 32), methods=("scale",), episodes=2)
    folder = write_folder(tmp_path / "r", [*both, *(r | {"mask": "feasible"} for r in both)], [])
    report = write_report(folder)
    assert report == folder / "report" / "report.md"
    own = report.parent / "notes.txt"
    own.write_text("mine")
    write_folder(folder, both, [])
    write_report(folder)
    names = {p.name for p in report.parent.rglob("*") if p.is_file()}
    assert not [name for name in names if "feasible" in name or name.endswith(".tmp")]
    assert "table3-paper-none-argmax-n16.csv" in names
    assert own.read_text() == "mine"


def test_nothing_else_is_overwritten(results_folder: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "report.md").write_text("# my own report\n")
    with pytest.raises(UserError, match="not a report of this program"):
        write_report(results_folder, taken)
    with pytest.raises(UserError, match="not a report of this program"):
        write_report(results_folder, results_folder)
    with pytest.raises(UserError, match="is a file"):
        write_report(results_folder, taken / "report.md")
    with pytest.raises(UserError, match="cannot be written"):
        write_report(results_folder, taken / "report.md" / "below")
    assert (taken / "report.md").read_text() == "# my own report\n"
    assert [p.name for p in taken.iterdir()] == ["report.md"]
