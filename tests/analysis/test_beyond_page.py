"""The study in analysis/beyond: its pages say what its rows say, and its policies are those that played them."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis import load, select, settings
from rllib_scale_analysis.tables.relative import against_base

from rllib_scale.config import scenario
from rllib_scale.evaluation.play import evaluate
from rllib_scale.policies.policy import load_policy

pytestmark = pytest.mark.slow  # a release checks what is committed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "analysis" / "beyond"
NUMBER = re.compile(r"(-?\d+\.\d)(?= \[|$)")
METRICS = {
    "mean response": "response_censored_s",
    "makespan p95": "makespan_p95_s",
    "time on the cluster": "sojourn_mean_s",
    "time on the cluster p95": "sojourn_p95_s",
}
CHECKED = {"steady": 6 * 6 * 2 * 2, "servers_128": 6 * 6 * 2, "more_servers": 5 * 5 * 2 * 2, "coding_agents": 6 * 4 * 3}
CHECKED |= {"yardsticks": 3 * 6 * 2, "shipped": 5 * 5 * 2 * 2}
"""Figures in the tables of a folder, at least."""
OF = {"yardsticks": " of 30 episodes", "shipped": " of 40 episodes"}
"""What stands after the metric in the tables of a folder."""
LOADS = ("steady-0.5", "steady-0.7", "steady-0.9", "overload-1.1")


@pytest.mark.parametrize("name", CHECKED)
def test_the_tables_of_the_page_are_those_of_the_rows(name: str) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    episodes = load(FOLDER / name).episodes
    tables = {setting[0]: against_base(select(episodes, *setting)) for setting in settings(episodes)}
    checked = 0
    for metric, column in METRICS.items():
        for servers in sorted(set(episodes["test_servers"])):
            heads = re.finditer(rf"^\| {metric}{OF.get(name, '')}, {servers} servers \|(.*)\|$", page, re.MULTILINE)
            cells_of = {head: [cell.strip() for cell in head[1].split("|")] for head in heads}
            head = next((head for head, names in cells_of.items() if set(names) <= set(tables)), None)
            if head is None:
                continue
            scenarios = cells_of[head]
            for line in page[head.end() :].split("\n\n")[0].splitlines()[2:]:
                variant, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
                variant = re.sub(r"^context-price, (\w+)$", r"context-price (cma.objective=\1)", variant)
                for of, cell in zip(scenarios, cells, strict=True):
                    number, table = NUMBER.match(cell), tables[of]
                    if number is not None:
                        row = table[(table["variant"] == variant) & (table["test_servers"] == servers)]
                        assert float(number[1]) == pytest.approx(row[f"against_base_{column}"].item(), abs=0.056)
                        checked += 1
    assert checked >= CHECKED[name]


def test_the_table_of_the_networks_is_that_of_the_rows() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    found: dict[str, dict[tuple[str, int], float]] = {}
    episodes = load(FOLDER / "clones").episodes
    for setting in settings(episodes):
        for _, row in against_base(select(episodes, *setting)).iterrows():
            value = row["against_base_response_censored_s"]
            found.setdefault(str(row["variant"]), {})[(setting[0], row["test_servers"])] = value
    variants = {
        "`zoo:context-price`, balanced": "zoo:context-price",
        "`zoo:context-price-response`": "zoo:context-price-response",
        "`price`, a rule": "price",
        "1.": "crossattn-r (imitation.expert=zoo:context-price#sha256=c71a7a2c0a9ac604)",
        "2.": "crossattn-r (imitation.expert=zoo:context-price-response#sha256=02621b456a635379)",
    }
    for begins, variant in variants.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {begins}") and " / " in line]
        expected = [found[variant][(load_, servers)] for servers in (16, 128) for load_ in LOADS]
        assert [float(number) for number in re.findall(r"-\d+\.\d", line)] == pytest.approx(expected, abs=0.056), line


def test_the_table_of_the_readme_is_that_of_the_rows() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| mean response against `fastest-idle`")[1]
    episodes = load(FOLDER / "shipped").episodes
    tables = [against_base(select(episodes, name, "feasible", "argmax")) for name in LOADS]
    for line in table.split("\n\n")[0].splitlines()[2:]:
        (variant,) = re.findall(r"`([\w:-]+)`", line)
        of = [table[table["variant"] == variant].set_index("test_servers") for table in tables]
        expected = [rows.loc[n, "against_base_response_censored_s"] for rows in of for n in (16, 128)]
        said = [float(number) for number in re.findall(r"[+-]\d+\.\d", line)]
        assert said == pytest.approx(expected, abs=0.056), line


def test_the_shipped_seed_is_the_one_that_validation_prefers() -> None:
    weights = {"response_censored_s": 0.8, "makespan_mean_s": 0.1, "makespan_p95_s": 0.1}
    keys = ["test_servers", "scenario", "episode"]
    scores = []
    for name in ("steady", "servers_128", "more_servers"):
        rows = load(FOLDER / name).episodes
        base = rows[rows["method"] == "fastest-idle"].set_index(keys)
        own = rows[rows["overrides"] == "cma.objective=balanced"].set_index([*keys, "train_seed"])
        ratios = np.log(own[list(weights)] / base[list(weights)].reindex(own.index.droplevel("train_seed")).to_numpy())
        scores.append(ratios.mul(weights).sum(axis=1).groupby(["train_seed", "test_servers", "scenario"]).mean())
    every = pd.concat(scores)
    at_128 = every[every.index.get_level_values("test_servers") == 128]
    of_seeds = {"all": every.groupby("train_seed").mean(), "128 servers": at_128.groupby("train_seed").mean()}
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for label, expected in of_seeds.items():
        (line,) = re.findall(rf"^\| {label} \| (-.*) \|$", page, re.MULTILINE)
        said = [float(number.strip("* ")) for number in line.split("|")]
        assert said == pytest.approx((100 * np.expm1(expected)).tolist(), abs=0.0051)
        assert expected.idxmin() == load_policy("zoo:context-price").trial.seed


@pytest.mark.parametrize("objective", ["balanced", "response"])
def test_the_policies_play_the_rows(objective: str) -> None:
    policy = load_policy(FOLDER / "policies" / objective)
    assert (policy.trial.seed, policy.trial.cma.objective) == ({"balanced": 6, "response": 1}[objective], objective)
    rows = load(FOLDER / "steady").episodes
    own = rows[(rows["cell"] == policy.trial.cell) & (rows["test_servers"] == 16) & (rows["scenario"] == "shift")]
    played = evaluate(policy, scenario("shift"), int(own["eval_seed"].iloc[0]), 2)
    expected = own.sort_values("episode")["response_censored_s"].tolist()[:2]
    assert [row["response_censored_s"] for row in played] == expected


def test_the_figure_is_drawn_by_the_code_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    assert 'Path("response.png")' in code
    monkeypatch.chdir(ROOT)
    exec(code.replace('Path("response.png")', f"Path({str(tmp_path / 'response.png')!r})"), {})
    assert (tmp_path / "response.png").stat().st_size > 20_000
