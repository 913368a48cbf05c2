"""The report folder and the report on a terminal."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import image
from matplotlib.figure import Figure
from rllib_scale_analysis.figures import style
from rllib_scale_analysis.report import verdicts
from rllib_scale_analysis.report.write import write_report

from artificial_results import (
    SEEDS,
    artificial_episodes,
    artificial_features,
    artificial_training,
    write_folder,
)
from parsed_html import Parsed
from rllib_scale.errors import UserError
from rllib_scale.results import tables as results


@pytest.fixture(scope="module")
def report(results_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(results_folder, tmp_path_factory.mktemp("out") / "report")


def paired_rows(report: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((report.parent / "tables" / "paired-paper-none-argmax.csv").open()))


def test_the_page_shows_every_file_and_every_file_is_shown(report: Path) -> None:
    text = report.read_text()
    shown = set(re.findall(r"\((figures/[^)]+|tables/[^)]+)\)", text))
    there = {p.relative_to(report.parent) for p in report.parent.glob("*/*")}
    assert shown == {str(p) for p in there if p.suffix in (".csv", ".png")}
    tables, drawn = ({p.stem.split("-")[0] for p in there if p.parent.name == name} for name in ("tables", "figures"))
    assert tables == {"against", "decisions", "paired", "table3", "table4"}
    of_setting = {"differences", "invalid", "methods", "servers", "throughput", "utilisation"}
    assert drawn == of_setting | {"figure5", "training", "verdicts", "ranks"}
    assert len(there) == 3 * len(tables) + 2 * len(drawn)
    for path in report.parent.glob("figures/*.png"):
        assert image.imread(path).std() > 0.05


def test_the_words_come_from_the_numbers(report: Path) -> None:
    text = report.read_text()
    assert "- Trained for 40 epochs (40960 env steps), 5 seeds: scale, crossattn and ppo." in text
    assert "Fewer epochs than the paper's 1000" in text
    assert "- On average at N = 16: fastest-idle has the most completed tasks (14.83)" in text
    assert re.search(r"- Of the learned methods at N = 16: crossattn has the most completed tasks \(\d+\.\d\d\)", text)
    assert "no interval" not in text.split("### ")[0]
    assert "- config hash: 0123456789ab" in text


def test_it_opens_with_pictures_and_five_lines_that_are_counted_from_the_tables(report: Path) -> None:
    top = report.read_text().split("**What won")[0]
    assert re.findall(r"figures/(\w+)\.png", top) == ["verdicts", "ranks"]
    lines = [line for line in top.splitlines() if line.startswith("- ")]
    assert 3 <= len(lines) <= 5
    assert "On average at N = 16: fastest-idle has the most completed tasks (14.83)" in lines[0]
    assert "Of the learned methods at N = 16: crossattn has the most completed tasks (" in lines[0]
    for question, start in (("SRR", "- Does SRR help? "), ("rule", "- Does learning beat the rule? ")):
        verdicts_of = [row["completed_verdict"] for row in paired_rows(report) if row["question"] == question]
        (line,) = [line for line in lines if line.startswith(start)]
        found = [int(number) for number in re.findall(r"\d+", line)]
        assert found == [len(verdicts_of), *(verdicts_of.count(v) for v in ("higher", "lower", "undecided"))]


def test_a_lower_response_over_fewer_completions_is_told_with_them(report: Path) -> None:
    rows = list(csv.DictReader((report.parent / "tables" / "table4-paper-none-argmax.csv").open()))
    per = {r["test_servers"]: float(r["completed"]) / int(r["test_servers"]) for r in rows if r["variant"] == "scale"}
    said = f"(completed tasks per server from {per['16']:.2f} to {per['48']:.2f}), the paper's rises to 6.22 s."
    assert said in report.read_text()


def test_the_markdown_tables_stand_in_the_page_and_agree_with_the_csv(report: Path) -> None:
    page = report.read_text()
    for path in sorted(report.parent.glob("tables/*.csv")):
        markdown = path.with_suffix(".md").read_text().split("\n\n", 1)[1].strip()
        assert markdown in page
        rows = list(csv.DictReader(path.open()))
        lines = markdown.splitlines()[2:]
        assert len(rows) == len(lines) > 0
        metrics = {"decisions": "decisions", "against": "against_base_response_censored_s"}
        metric = metrics.get(path.name.split("-")[0], "completed")
        for row, line in zip(rows, lines, strict=True):
            assert f" {row[metric]} " in line
            assert f"[{row[f'{metric}_low']}, {row[f'{metric}_high']}]" in line or not row[f"{metric}_low"]


def test_one_seed_claims_nothing(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path / "r", artificial_episodes(seeds=SEEDS[:1]), artificial_training(seeds=SEEDS[:1], epochs=3)
    )
    text = write_report(folder).read_text()
    assert "fewer than 5 seeds, no interval and no win or loss is claimed" in text
    tables = text.split("### ", 1)[1]
    learned = [line for line in tables.splitlines() if re.search(r"\| (scale|crossattn|ppo)[^|]* \|", line)]
    assert len(learned) > 6
    assert not any(re.search(r"\| [^|]*\[-?\d", line) for line in learned), "those of rules are over episodes"
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


# ---------------------------------------------------------------------- the page


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-\d+)?(?![\w.])")


def numbers(text: str) -> list[str]:
    return sorted(NUMBER.findall(text))


def page_of(report: Path) -> Parsed:
    return Parsed(report.with_suffix(".html").read_text())


def test_the_page_holds_every_table_and_figure_that_was_written_and_the_words(report: Path) -> None:
    page, folder = page_of(report), report.parent
    ids = {attributes.get("id") for _, attributes in page.attributes}
    assert ids >= {path.stem for path in folder.glob("*/*.*")}
    assert sum(tag == "svg" for tag, _ in page.attributes) == len(list(folder.glob("figures/*.svg")))
    assert report.with_suffix(".html").stat().st_size < 600_000
    for line in report.read_text().splitlines():
        if line.startswith("- "):
            assert line[2:] in page.text
    text = " ".join(page.within("td"))
    for path in folder.glob("tables/*.md"):
        body = path.read_text().split("\n\n", 1)[1].split("\n", 2)[2]
        assert set(numbers(body)) <= set(numbers(text))


def test_the_summary_says_who_won_by_how_much_and_what_is_open(report: Path) -> None:
    rows = [r for r in paired_rows(report) if (r["first"], r["second"]) == ("scale", "fastest-idle")]
    by = [r["completed"].removeprefix("-") for r in rows]
    least, most = min(by, key=float), max(by, key=float)
    text = page_of(report).text
    assert f"fastest-idle completes more tasks (by {least} to {most}) at every N from 16 to 128" in text
    most, least = (row["response_mean_s"].removeprefix("-") for row in rows[:2])
    bought = f"scale has a lower response time (by {least} to {most} s) at N = 16 and 32, with fewer tasks completed"
    assert bought in text
    assert re.search(r"scale and crossattn: [a-z, ]*completed tasks", text)
    assert "Nothing, as far as the files of this folder tell." in text
    table3 = csv.DictReader((report.parent / "tables" / "table3-paper-none-argmax-n16.csv").open())
    scale = next(r for r in table3 if r["variant"] == "scale")
    ours = f"{scale['completed']} completed tasks (paper 8.37), response {scale['response_mean_s']} s (paper 4.58 s)"
    assert f"scale: {ours}; up to N = 48 our response rises to " in text
    assert ", the paper's rises to 6.22 s." in text
    nothing = verdicts.verdicts(pd.DataFrame(columns=["first", "second"]))
    assert (nothing.won, nothing.undecided, nothing.unclaimed, nothing.pairs) == ([], [], [], 0)


def write(folder: Path, episodes: list[dict[str, object]], **tables: list[dict[str, object]]) -> Parsed:
    write_folder(folder, episodes, tables.get("training", []), tables.get("features", []))
    return page_of(write_report(folder))


def test_an_empty_folder_of_results(tmp_path: Path) -> None:
    text = write(tmp_path / "r", []).text
    assert "No evaluation episode has been written yet." in text
    assert text.count("There is nothing to compare yet.") == 3


def test_one_row_and_one_seed_claim_nothing(tmp_path: Path) -> None:
    one = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=1)
    text = write(tmp_path / "one", one).text
    assert "No difference is decided." in text
    assert "1, no CI" in text
    several = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale", "crossattn"), episodes=2)
    text = write(tmp_path / "several", several).text
    assert "No claim, as 5 seeds are needed and there is 1: scale and crossattn." in text


def test_metrics_without_a_value_are_dashes(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1, 2), scales=(16, 32), methods=("scale", "crossattn"), episodes=2)
    nothing = {name: None for name in results.METRIC_COLUMNS} | {"utilisation_large": math.nan, "mask": "feasible"}
    page = write(tmp_path / "r", [row | nothing for row in rows])
    assert not numbers(" ".join(text for text in page.within("td") if "." in text and "–" not in text))  # noqa: RUF001
    assert page.within("td").count("–") > 20  # noqa: RUF001
    assert "nan" not in page.text.lower().split()
    assert "2, no CI" not in page.within("td")
    assert "0, rule" not in page.within("td"), "a learned method without a value is no rule"


def test_a_training_that_failed_or_is_not_finished_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    write_folder(folder, artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=1), [])
    failed = folder / "trials" / "run-001" / "ppo-s47-abc"
    failed.mkdir(parents=True)
    failures = "".join(f"Failure # {number}\nTraceback\nRuntimeError: out of <memory>\n" for number in range(1, 5))
    (failed / "error.txt").write_text(failures)
    (folder / "trials" / "run-001" / "scale-s48-def").mkdir()
    text = page_of(write_report(folder)).text
    assert "Training failed: ppo-s47-abc: RuntimeError: out of <memory>" in text
    assert "Not in these numbers, as still running: scale-s48-def." in text


def test_rows_written_twice_count_once_and_the_page_says_so(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=2)
    page = write(tmp_path / "r", [*rows, rows[0] | {"completed": 3}])
    assert "episodes.parquet: 1 rows stood there twice; the last of each counts." in page.text
    row = write(tmp_path / "again", [rows[1], rows[0] | {"completed": 3}])
    assert page.within("td") == row.within("td")


def test_results_of_an_older_version_say_what_they_lack(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    write_folder(folder, artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=2), [])
    path = folder / "episodes.parquet"
    pd.read_parquet(path).drop(columns=["bound_capacity_s", "energy_j"]).to_parquet(path)
    text = page_of(write_report(folder)).text
    assert "episodes.parquet: by an older version, without energy_j, bound_capacity_s" in text
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace('"version": 1', '"version": 0'))
    with pytest.raises(UserError, match="results version 0; this program reads version 1"):
        write_report(folder)


def test_several_settings_and_a_lambda_grid_share_a_page(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1, 2), scales=(16, 32), methods=("scale", "large-only"), episodes=2)
    grid = [r | {"lambda_kl": 0.1, "cell": r["cell"] + "-grid"} for r in rows if r["method"] == "scale"]
    steady = [r | {"scenario": "steady-0.7", "mask": "feasible"} for r in rows]
    features = artificial_features(seeds=(1, 2), scales=(16, 32), methods=("scale",))
    page = write(
        tmp_path / "r", [*rows, *grid, *steady], features=features, training=artificial_training((1,), ("scale",), 3)
    )
    ids = [str(attributes["id"]) for _, attributes in page.attributes if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"paper-none-argmax", "steady-0.7-feasible-argmax", "settings", "scenarios", "training"} <= set(ids)
    assert {"lambdas1-paper-none-argmax-n16", "weights1-paper-none-argmax-n16"} <= set(ids)
    weights = list(csv.DictReader((tmp_path / "r/report/tables/weights1-paper-none-argmax-n16.csv").open()))
    assert [(r["lambda_decorrelation"], r["lambda_kl"]) for r in weights] == [("0.01", "0.001"), ("0.01", "0.1")]
    assert (
        "steady-0.7 (mask feasible, decision argmax): nothing to compare; first on average: scale (λ2=0.001) in "
        in page.text
    )
    assert "drift-paper-none-argmax" in ids
    assert "figure5-paper-none-argmax" in ids
    assert "figure5-steady-0.7-feasible-argmax" not in ids


def test_schedules_stand_there_where_they_can_be_drawn_and_else_why_not(results_folder: Path, tmp_path: Path) -> None:
    asked = []

    def gantt(rows: Sequence[pd.Series], titles: Sequence[str]) -> Figure:
        asked.append([row["variant"] for row in rows])
        if len(asked) > 1:
            raise UserError("the policy is gone")
        return style.empty_figure(titles[0])

    report = write_report(results_folder, tmp_path / "report", gantt)
    assert asked == [["scale", "crossattn"]] * 2
    assert (report.parent / "figures" / "gantt-typical-paper-none-argmax-n16.svg").is_file()
    for text in (report.read_text(), page_of(report).text):
        assert "Not drawn: the policy is gone." in text
        assert "Schedules of one episode: scale and crossattn" in text


def test_drawn_by_other_processes_every_file_is_the_same(tmp_path: Path) -> None:
    played = artificial_episodes(seeds=(1, 2), scales=(16,), methods=("scale", "crossattn"), episodes=2)
    rows = [row | {"scenario": name} for name in ("a", "b", "c", "d") for row in played]
    folder = write_folder(tmp_path / "results", rows, artificial_training(epochs=3))
    alone, others = (write_report(folder, tmp_path / str(count), processes=count).parent for count in (1, 2))
    names = sorted(str(path.relative_to(alone)) for path in alone.rglob("*") if path.is_file())
    assert len([name for name in names if name.endswith(".png")]) > 8
    assert names == sorted(str(path.relative_to(others)) for path in others.rglob("*") if path.is_file())
    assert all((alone / name).read_bytes() == (others / name).read_bytes() for name in names)
