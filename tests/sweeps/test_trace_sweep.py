"""A sweep on a trace: trained on some of its sessions, evaluated on the others, and found again by its content."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale.cli import main
from rllib_scale.config.plan import Cell, SweepConfig, evaluation_units, expand
from rllib_scale.config.yaml_files import load_model
from rllib_scale.evaluation.units import evaluate_unit
from rllib_scale.policies.policy import policy_files
from rllib_scale.results.tables import EPISODE_COLUMNS, read_table
from rllib_scale.workloads.generators import generate
from workloads.made_trace import made_trace, sessions_of

pytestmark = LOCAL_RAY
SWEEP = """
name: traced
methods: [scale]
training: {epochs: 2, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}
env:
  workload: {trace: trace.json, offered_load: 0.5}
  episode: {horizon_s: 60, arrivals_until_s: 20, mask: feasible}
  communication: transfer
evaluation: {scales: [8], episodes: 2, heuristics: [fastest-idle]}
"""


def run(folder: Path) -> Result:
    """Run the sweep in the folder, into `results` of the working directory."""
    return CliRunner().invoke(main, ["sweep", str(folder / "traced.yaml"), "--results", "results"])


def cells(folder: Path) -> tuple[SweepConfig, list[Cell]]:
    config = load_model(SweepConfig, folder / "traced.yaml")
    return config, expand(config, "test")


@pytest.mark.slow
def test_a_sweep_trains_on_some_sessions_and_is_evaluated_on_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "sweep", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    made_trace().save(folder / "trace.json")
    (folder / "traced.yaml").write_text(SWEEP)
    monkeypatch.chdir(elsewhere)
    done = run(folder)
    assert done.exit_code == 0, done.output
    episodes = read_table(elsewhere / "results" / "episodes.parquet", EPISODE_COLUMNS)
    assert sorted(episodes["method"]) == ["fastest-idle"] * 2 + ["scale"] * 2

    # The rows are those of episodes drawn from the test part; no session of it is in the training's.
    config, (cell,) = cells(folder)
    units = evaluation_units(config, [cell])
    assert {unit.env.workload.trace.part for unit in units} == {"test"}
    policy = policy_files(elsewhere / "results" / "policies" / cell.trial.name)
    for unit in units:
        rows = evaluate_unit(unit, policy if unit.learned else None).episodes
        method = episodes[episodes["method"] == unit.identity["method"]].sort_values("episode")
        assert method["response_mean_s"].tolist() == [row["response_mean_s"] for row in rows]
        assert method["arrived"].tolist() == [generate(unit.env, unit.seed, b).num_tasks for b in range(2)]
    drawn = [sessions_of(generate(env, 0, b)) for env in (cell.trial.env, units[0].env) for b in range(20)]
    trained, tested = set.union(*drawn[:20]), set.union(*drawn[20:])
    assert trained
    assert tested
    assert not trained & tested

    # Elsewhere it is the same sweep; with another content it is another.
    moved = tmp_path / "moved"
    folder.rename(moved)
    assert [c.trial.name for c in cells(moved)[1]] == [cell.trial.name]
    assert [u.key for u in evaluation_units(*cells(moved))] == [u.key for u in units]
    made_trace(seed=1).save(moved / "trace.json")
    assert [c.trial.cell for c in cells(moved)[1]] != [cell.trial.cell]
    assert {u.key for u in evaluation_units(*cells(moved))}.isdisjoint(u.key for u in units)


def test_what_no_workload_can_be_drawn_from_ends_a_sweep_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made_trace(memory_gb=90.0, sessions=90).save(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text().replace('"memory_gb": 0.', '"memory_gb": 100.')
    (tmp_path / "trace.json").write_text(text)
    (tmp_path / "traced.yaml").write_text(SWEEP)
    done = run(tmp_path)
    assert done.exit_code == 2
    (line,) = done.stderr.strip().splitlines()
    assert "trace.json" in line
    assert "fits no server" in line
    assert not (tmp_path / "results").exists()
