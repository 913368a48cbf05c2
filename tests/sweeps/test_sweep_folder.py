"""A results folder that is used again: which settings may differ, which rows stay, and what is best in training."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rllib_scale.config.planning import make_plan
from rllib_scale.errors import UserError
from rllib_scale.loading import sweep_from
from rllib_scale.results.columns import EPISODE_COLUMNS, EPISODE_KEY, TRAINING_COLUMNS
from rllib_scale.results.tables import held, read_table, write_table
from rllib_scale.sweeps.sweep import Sweep
from sweep_runs import refused, run

HEURISTICS = {"evaluation": {"scales": [8], "episodes": 2, "heuristics": ["fastest-idle"]}}


def opened(folder: Path, **data: Any) -> Sweep:
    """A sweep in the folder whose trainings and evaluations are all done."""
    config = sweep_from({"name": "x", "methods": [], **data}, "x.yaml")
    sweep = Sweep(make_plan(config, "x.yaml"), folder, print)
    sweep.open()
    for trial in sweep.trials:
        policy = sweep.policy(trial.config.name)
        policy.mkdir(parents=True, exist_ok=True)
        rate = trial.config.algorithm.learning_rate
        rows = [{"epoch": epoch, "episode_return": rate * epoch} for epoch in (1, 2)]
        (policy / "curve.json").write_text(json.dumps(rows))
        (policy / "policy.json").write_text(json.dumps({"epochs": trial.config.stop_epochs}))
    for unit in sweep.plan.units:
        rows = [unit.columns | {"episode": episode} for episode in range(unit.episodes)]
        write_table(sweep.rows_file(unit), pd.DataFrame(rows))
    sweep.write_tables()
    return sweep


def episodes(folder: Path) -> pd.DataFrame:
    table = read_table(folder / "episodes.parquet", EPISODE_COLUMNS)
    assert not table.duplicated(list(EPISODE_KEY)).any()
    return table


def test_rows_of_an_earlier_config_stay(tmp_path: Path) -> None:
    one = {"methods": ["scale"], "seeds": [1], "training": {"epochs": 2}}
    opened(tmp_path, **one, **HEURISTICS)
    before = episodes(tmp_path)
    other = one | {"seeds": [2], "grid": {"srr.lambda_kl": [0.5]}}
    opened(tmp_path, **other, evaluation={"scales": [16], "episodes": 2, "heuristics": ["random-feasible"]})
    both = episodes(tmp_path)
    assert len(both) == 2 * len(before)
    assert set(both["method"]) == {"scale", "fastest-idle", "random-feasible"}
    training = read_table(tmp_path / "training.parquet", TRAINING_COLUMNS)
    assert sorted(training["train_seed"]) == [1, 1, 2, 2]
    opened(tmp_path, **one, **HEURISTICS)
    assert episodes(tmp_path).equals(both)
    assert len(read_table(tmp_path / "training.parquet", TRAINING_COLUMNS)) == 4


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"training": {"epochs": 3}}, "training.epochs 2, not 3"),
        ({"scenario": "steady-0.7"}, 'scenario "paper", not "steady-0.7"'),
        ({"env": {"cluster": {"bandwidth_gb_s": 5.0}}}, "env.cluster.bandwidth_gb_s 10.0, not 5.0"),
        ({"resources": {"env_runners": 1}}, "resources.env_runners 0, not 1"),
        ({"srr": {"reduction": "mean"}}, 'srr.reduction "sum", not "mean"'),
    ],
)
def test_a_folder_holds_no_rows_that_differ_in_what_they_do_not_name(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    one = {"methods": ["scale"], "training": {"epochs": 2}, **HEURISTICS}
    opened(tmp_path, **one)
    before = episodes(tmp_path)
    with pytest.raises(UserError) as caught:
        opened(tmp_path, **one | changed)
    assert all(part in str(caught.value) for part in (str(tmp_path), "another name", why)), caught.value
    assert episodes(tmp_path).equals(before)


def test_the_population_of_pbt_is_part_of_its_rows(tmp_path: Path) -> None:
    space = {"ppo.gamma": {"uniform": [0.9, 0.99]}}
    search = {"scheduler": "pbt", "samples": 2, "space": space}
    opened(tmp_path, methods=["crossattn"], search=search)
    more = search | {"samples": 4}
    for changed in ({"search": more}, {"search": search, "seeds": [1]}, {"search": {"space": space}}):
        with pytest.raises(UserError, match=r"its rows are of (search|seeds)"):
            opened(tmp_path, methods=["crossattn"], **changed)


def test_two_sweeps_in_one_folder_at_a_time_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("{name: x, methods: [scale]}")
    with held(tmp_path / "results"):
        line = refused("sweep", tmp_path / "x.yaml", "--results", tmp_path / "results")
    assert line.startswith(f"Error: {tmp_path / 'results'}: another sweep runs there")
    assert not [*(tmp_path / "results").iterdir()]


def test_files_have_the_mode_that_the_umask_permits(tmp_path: Path) -> None:
    earlier = os.umask(0o027)
    try:
        opened(tmp_path, **HEURISTICS)
    finally:
        os.umask(earlier)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {stat.filemode(path.stat().st_mode) for path in files} == {"-rw-r-----"}


def test_a_sweep_in_a_deleted_working_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.yaml").write_text("{name: x, methods: [scale]}")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for results in ("results", tmp_path / "results"):
        assert "the working folder is gone" in refused("sweep", tmp_path / "x.yaml", "--results", results)


def test_train_names_its_folder_by_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for scenario in ("paper", "steady-0.7"):
        options = ["--epochs", 2, "--scenario", scenario, "--results", tmp_path / "file" / "below"]
        done = run("train", *options)
        assert f"train-scale-{scenario}-s42-e2: 1 training" in done.output.replace("\n", " ")


def test_the_best_is_named_after_a_search_in_one_problem(tmp_path: Path) -> None:
    rates = {"training.learning_rate": [1e-4, 1e-3]}
    chosen = {"space": {"training.learning_rate": {"choice": [1e-4, 1e-3]}}, "samples": 8}
    best = opened(tmp_path / "search", methods=["crossattn"], search=chosen).best()
    assert best is not None
    assert best.startswith("best in training: crossattn, training.learning_rate=0.001: episode_return 0.0015")
    assert opened(tmp_path / "asha", methods=["crossattn"], grid=rates, search={"scheduler": "asha"}).best()
    assert opened(tmp_path / "grid", methods=["crossattn"], grid=rates).best() is None
    problems = {"space": {**chosen["space"], "env.episode.horizon_s": {"choice": [5.0, 12.0]}}, "samples": 8}
    assert opened(tmp_path / "problems", methods=["crossattn"], search=problems).best() is None
