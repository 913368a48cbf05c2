"""The study in analysis/beyond: its pages say what its rows say, and its policies are those that played them."""

import re
from pathlib import Path

import pandas as pd
import pytest
from rllib_scale_analysis import load, select, settings
from rllib_scale_analysis.tables.relative import against_base

from rllib_scale.config import scenario
from rllib_scale.evaluation.play import evaluate
from rllib_scale.policies.policy import load_policy

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "analysis" / "beyond"
NUMBER = re.compile(r"(-?\d+\.\d)(?= \[|$)")
METRICS = {"mean response": "response_censored_s", "makespan p95": "makespan_p95_s"}


@pytest.mark.parametrize("name", ["steady", "servers_128", "more_servers"])
def test_the_tables_of_the_page_are_those_of_the_rows(name: str) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    episodes = load(FOLDER / name).episodes
    tables = {setting[0]: against_base(select(episodes, *setting)) for setting in settings(episodes)}
    checked = 0
    for metric, column in METRICS.items():
        for servers in sorted(set(episodes["test_servers"])):
            head = re.search(rf"^\| {metric}, {servers} servers \|(.*)\|$", page, re.MULTILINE)
            assert head is not None, (metric, servers)
            scenarios = [cell.strip() for cell in head[1].split("|")]
            for line in page[head.end() :].split("\n\n")[0].splitlines()[2:]:
                variant, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
                variant = re.sub(r"^context-price, (\w+)$", r"context-price (cma.objective=\1)", variant)
                for of, cell in zip(scenarios, cells, strict=True):
                    number, table = NUMBER.match(cell), tables[of]
                    if number is not None:
                        row = table[(table["variant"] == variant) & (table["test_servers"] == servers)]
                        assert float(number[1]) == pytest.approx(row[f"against_base_{column}"].item(), abs=0.056)
                        checked += 1
    assert checked >= {"steady": 6 * 6 * 2 * 2, "servers_128": 6 * 6 * 2, "more_servers": 5 * 5 * 2 * 2}[name]


def test_the_first_table_of_the_readme_is_that_of_the_rows() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| mean response against `fastest-idle`")[1]
    lines = table.split("\n\n")[0].splitlines()[2:]
    said = {line.split("|")[1].strip(): re.findall(r"[+-]\d+\.\d", line) for line in lines}
    folders = [FOLDER / "steady", FOLDER / "servers_128", ROOT / "analysis" / "reproduction"]
    rows = pd.concat([load(folder).episodes for folder in folders], ignore_index=True)
    for label, method, objective in (
        ("`context-price`, balanced", "context-price", "balanced"),
        ("`price`, a rule", "price", ""),
        ("SCALE, as in the paper", "scale", ""),
    ):
        found = []
        for name in ("steady-0.5", "steady-0.7", "steady-0.9", "overload-1.1"):
            of = rows[(rows["scenario"] == name) & (rows["mask"] == "feasible") & (rows["decision"] == "argmax")]
            own = of[(of["method"] == method) & of["overrides"].fillna("").str.contains(objective)]
            base = of[(of["method"] == "fastest-idle") & of["sweep"].isin(own["sweep"])]
            both = against_base(pd.concat([own, base]))
            found += [both.loc[both["test_servers"] == n, "against_base_response_censored_s"].item() for n in (16, 128)]
        assert [float(number) for number in said[label]] == pytest.approx(found, abs=0.056), label


@pytest.mark.parametrize("objective", ["balanced", "response"])
def test_the_policies_play_the_rows(objective: str) -> None:
    policy = load_policy(FOLDER / "policies" / objective)
    assert (policy.trial.seed, policy.trial.cma.objective) == (1, objective)
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
