"""The study of coding agents in analysis/agents: its rows can be read, and its page says what they say."""

import re
from pathlib import Path

import pytest
from rllib_scale_analysis import load, select, settings
from rllib_scale_analysis.tables.relative import against_base

from rllib_scale.config.plan import SweepConfig, evaluation_units, expand
from rllib_scale.config.yaml_files import load_model
from workloads.made_trace import made_trace

pytestmark = pytest.mark.slow  # a release checks what is committed

FOLDER = Path(__file__).parents[2] / "analysis" / "agents"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
TIME = "against_base_sojourn_mean_s"


@pytest.mark.parametrize("name", ["generator", "rules"])
def test_the_table_of_the_page_is_that_of_the_rows(name: str) -> None:
    results = load(FOLDER / name)
    told = {
        words[0].strip(): [float(value) for value in re.findall(r"(-?\d+\.\d) \[", line)]
        for line in PAGE.split(f"(`{name}/`)", 1)[1].split("\n## ")[0].splitlines()
        if line.startswith("| ") and (words := line.strip("| ").split("|"))
    }
    tables = [against_base(select(results.episodes, *setting)) for setting in settings(results.episodes)]
    checked = 0
    for variant in tables[0]["variant"]:
        label = variant.replace(" (env.observation.feature_set=paper)", ", paper's features")
        label = label.replace(" (env.observation.feature_set=rounds)", ", `rounds`")
        if label in told:
            found = [float(table.loc[table["variant"] == variant, TIME].iloc[0]) for table in tables]
            assert told[label] == pytest.approx(found, abs=0.056), label
            checked += 1
    assert checked == {"generator": 12, "rules": 6}[name]


@pytest.mark.parametrize("name", ["trace", "constants"])
def test_the_sweeps_on_recorded_turns_expand_where_the_files_of_the_page_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = set(re.findall(r"--output (traces/[\w-]+\.json)", PAGE))
    (tmp_path / "traces").mkdir()
    for number, file in enumerate(sorted(named)):
        made_trace(seed=number).save(tmp_path / file)
    monkeypatch.chdir(tmp_path)
    config = load_model(SweepConfig, FOLDER / f"{name}.yaml")
    cells = expand(config, name)
    units = evaluation_units(config, cells)
    problems = len(named) if name == "constants" else 1
    assert len(units) == problems * len(config.evaluation.heuristics) + len(cells)
    assert len(cells) == {"trace": 10, "constants": 0}[name]
