"""The dashboard without its page: a folder that changes, filters, figures, a note for what is torn."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis.dashboard import charts, episodes, selection
from rllib_scale_analysis.dashboard.runs import runs
from rllib_scale_analysis.dashboard.selection import Filters
from rllib_scale_analysis.figures import evaluation
from rllib_scale_analysis.figures.style import looks
from rllib_scale_analysis.figures.training import training_curves
from rllib_scale_analysis.load import Reader, Results, load
from rllib_scale_analysis.report.summary import training_state_lines
from rllib_scale_analysis.rows import PAPER_SETTING, variants
from rllib_scale_analysis.tables.methods import table4

from artificial_results import HEURISTICS, artificial_episodes, artificial_training, episode_row, write_folder
from played_results import play_folder
from rllib_scale.config import ClusterConfig
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.planning import make_plan
from rllib_scale.envs.gantt import Chart
from rllib_scale.evaluation.inspection import DECISION, STARTED, WAITS, inspect_episode
from rllib_scale.evaluation.replay import Replay
from rllib_scale.results import tables as results
from rllib_scale.results.columns import EPISODE_COLUMNS, EPISODE_KEY
from rllib_scale.simulator.record import SCHEDULE


def write_units(folder: Path, rows: list[dict[str, Any]]) -> list[Path]:
    """Rows as a running sweep leaves them: a file for each unit, with the columns that it knows, and no table."""
    results.open_folder(folder, "artificial", {"name": "artificial"}, "0123456789ab")
    frame = pd.DataFrame(rows)
    paths = []
    for number, (_, unit) in enumerate(frame.groupby(["trial_id", "scenario", "test_servers", "mask", "decision"])):
        paths.append(folder / "evaluations" / f"{number:012d}.parquet")
        results.write_table(paths[-1], unit.dropna(axis=1, how="all"))
    return paths


# ---------------------------------------------------------------------- a folder that changes


def test_rows_of_a_finished_and_of_a_running_sweep_are_those_that_are_loaded(
    results_folder: Path, tmp_path: Path
) -> None:
    expected = load(results_folder).episodes
    snapshot = Reader(results_folder).read()
    pd.testing.assert_frame_equal(snapshot.episodes, expected)
    write_units(tmp_path, artificial_episodes())
    running = load(tmp_path).episodes
    key = list(EPISODE_KEY)
    pd.testing.assert_frame_equal(
        running.sort_values(key, ignore_index=True), expected.sort_values(key, ignore_index=True)
    )


def test_only_files_that_changed_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = artificial_episodes(seeds=(42,), scales=(16,), methods=("scale", "ppo"))
    folder = write_folder(tmp_path, rows, [])
    reader, read = Reader(folder), []
    original = pd.read_parquet
    monkeypatch.setattr(pd, "read_parquet", lambda path: read.append(Path(path).name) or original(path))
    first = reader.read()
    assert reader.read() is first
    assert sorted(read) == ["episodes.parquet", "features.parquet", "training.parquet"]
    later = pd.DataFrame(artificial_episodes(seeds=(42,), scales=(32,), methods=("scale",)))
    results.write_table(folder / "evaluations" / "new.parquet", later)
    second = reader.read()
    assert read[3:] == ["new.parquet"]
    assert (len(first.episodes), len(second.episodes)) == (12, 18)
    assert first.stamp != second.stamp


def test_a_unit_evaluated_after_the_table_was_written_replaces_its_rows(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, artificial_episodes(seeds=(42,), scales=(16,), methods=("scale",), episodes=4), [])
    again = [row | {"completed": 100} for row in artificial_episodes((42,), (16,), ("scale",), episodes=5)]
    results.write_table(folder / "evaluations" / "again.parquet", pd.DataFrame(again))
    older = folder / "evaluations" / "older.parquet"
    results.write_table(older, pd.DataFrame(artificial_episodes((42,), (32,), ("scale",))))
    os.utime(older, (1, 1))  # from before: the sweep has left it out of its table
    rows = Reader(folder).read().episodes
    assert rows[["test_servers", "completed"]].to_numpy().tolist() == [[16, 100]] * 5


def test_parts_of_a_reproduction_count_until_they_are_joined_and_a_training_once(tmp_path: Path) -> None:
    results.open_folder(tmp_path, "reproduction", {"one": {}, "two": {}}, "0")
    one, two = (artificial_episodes((42,), (servers,), ("scale",)) for servers in (16, 32))
    write_folder(tmp_path / "parts" / "one", one, [], sweep="one")
    write_units(tmp_path / "parts" / "two", two)
    for place in ("one/policies/ppo-s42-0123", "two/trials/run-001/ppo-s42-0123", "two/trials/run-001/scale-s42-4567"):
        (tmp_path / "parts" / place).mkdir(parents=True)
    reader = Reader(tmp_path)
    assert sorted(set(reader.read().episodes["test_servers"])) == [16, 32]
    states = {training.name: training.state for training in reader.read().trainings}
    assert states == {"ppo-s42-0123": "finished", "scale-s42-4567": "running"}, "what it got furthest with"
    joined = pd.DataFrame([*one, *two, *artificial_episodes((42,), (48,), ("scale",))])
    results.write_table(tmp_path / "episodes.parquet", results.typed(joined, EPISODE_COLUMNS))
    snapshot = reader.read()
    assert sorted(set(snapshot.episodes["test_servers"])) == [16, 32, 48]
    assert snapshot.notes == ()


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_what_cannot_be_read_is_a_note_and_units_replace_a_torn_table(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(42,), scales=(16,), methods=("scale", "ppo"))
    folder = write_folder(tmp_path, rows, artificial_training(seeds=(42,), methods=("scale",)))
    results.write_table(folder / "evaluations" / "x.parquet", pd.DataFrame(rows))
    for name in ("manifest.json", "training.parquet", "evaluations/x.parquet"):
        torn(folder / name)
        snapshot = Reader(folder).read()
        assert (len(snapshot.episodes), len(snapshot.training)) == (12, 40 if name == "manifest.json" else 0)
        assert any(f"{name}: not a readable" in note for note in snapshot.notes)
    torn(folder / "episodes.parquet")
    snapshot = Reader(folder).read()
    assert (len(snapshot.episodes), len(snapshot.notes)) == (0, 4)
    results.write_table(folder / "evaluations" / "whole.parquet", pd.DataFrame(rows))
    assert len(Reader(folder).read().episodes) == 12
    for name in ("manifest.json", "training.parquet", "episodes.parquet", "evaluations/x.parquet"):
        (folder / name).unlink()
    snapshot = Reader(folder).read()
    assert len(snapshot.episodes) == 12
    (note,) = snapshot.notes
    assert "no manifest.json yet" in note


def test_an_epoch_in_which_no_episode_ended_is_an_epoch(tmp_path: Path) -> None:
    epochs = artificial_training(seeds=(42,), methods=("ppo",), epochs=3)
    epochs[0] |= {"completed": None, "response_mean_s": None}
    snapshot = Reader(write_folder(tmp_path, [], epochs)).read()
    assert (len(snapshot.training), snapshot.notes) == (3, ())


def test_an_empty_folder_has_nothing_to_show(tmp_path: Path) -> None:
    snapshot = Reader(tmp_path).read()
    assert selection.options(snapshot.episodes, snapshot.training) == selection.Options((), (), (), (), ())
    assert (len(snapshot.episodes), snapshot.trainings, len(snapshot.training)) == (0, (), 0)


# ---------------------------------------------------------------------- filters


@pytest.fixture(scope="module")
def snapshot(results_folder: Path) -> Results:
    return Reader(results_folder).read()


def test_options_are_what_occurs(snapshot: Results) -> None:
    options = selection.options(snapshot.episodes, snapshot.training)
    assert options.settings == (PAPER_SETTING,)
    assert options.methods[:4] == ("scale", "crossattn", "ppo", "fastest-idle")
    assert options.seeds == (42, 43, 44, 45, 46)
    assert options.lambdas == ((0.0, 0.0), (0.01, 0.001))
    assert options.scales == (16, 32, 48, 128)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"methods": ("scale", "large-only")}, {"scale", "large-only"}),
        ({"lambdas": ((0.01, 0.001),)}, {"scale", *HEURISTICS}),
        ({"lambdas": ((0.0, 0.0),), "methods": ("scale", "crossattn")}, {"crossattn"}),
    ],
)
def test_filters_leave_what_was_chosen(snapshot: Results, choice: dict[str, Any], expected: set[str]) -> None:
    kept = selection.apply(snapshot.episodes, Filters(PAPER_SETTING, **choice))
    assert set(kept["method"]) == expected


def test_seeds_filter_policies_and_leave_heuristics(snapshot: Results) -> None:
    kept = selection.apply(snapshot.episodes, Filters(PAPER_SETTING, seeds=(42, 43), scales=(16,)))
    assert set(kept["test_servers"]) == {16}
    table = table4(kept).set_index("variant")
    assert table.loc[["scale", "ppo"], "seeds"].tolist() == [2, 2]
    assert table.loc["fastest-idle", "seeds"] == 0
    curves = selection.apply_to_trainings(snapshot.training, Filters(PAPER_SETTING, seeds=(42,)))
    assert set(curves["train_seed"]) == {42}


# ---------------------------------------------------------------------- runs and figures


def test_runs_are_all_that_was_trained_or_evaluated_each_once(tmp_path: Path) -> None:
    sweep = SweepConfig.model_validate(
        {"name": "artificial", "methods": ["scale"], "seeds": [1, 2, 3], "grid": {"env.episode.horizon_s": [6.0, 9.0]}}
    )
    trials = make_plan(sweep, "artificial").trials
    rows = [episode_row("scale", 0, 16, k) | trial.identity | {"epochs": 7} for trial in trials[:2] for k in range(4)]
    rows += artificial_episodes(seeds=(), scales=(16, 32), methods=("fastest-idle",), episodes=3)
    folder = write_folder(tmp_path, rows, [])
    results.open_folder(folder, "artificial", sweep.model_dump(mode="json"), "0")
    (folder / "policies" / trials[0].config.name).mkdir(parents=True)
    (folder / "trials" / "run-001" / trials[2].config.name).mkdir(parents=True)
    snapshot = Reader(folder).read()
    table = runs(snapshot).set_index("run")
    assert table["state"].value_counts().to_dict() == {"finished": 2, "running": 1, "waiting": 3, "rule": 1}
    assert table.loc[trials[0].config.name, ["state", "rows"]].to_list() == ["finished", 4]
    assert table.loc[trials[1].config.name, ["state", "rows", "epoch"]].to_list() == ["finished", 4, 7]
    assert table.loc["fastest-idle", ["kind", "state", "rows"]].to_list() == ["heuristic", "rule", 6]
    assert not [line for line in training_state_lines(load(folder)) if trials[1].config.name in line]


def test_a_method_has_one_colour_in_all_figures(snapshot: Results) -> None:
    of = looks(snapshot.episodes, variants(snapshot.episodes))
    made = [
        evaluation.against_servers(table4(snapshot.episodes), of),
        training_curves(snapshot.training, ["completed"]),
    ]
    seen: dict[str, set[str]] = {}
    for trace in (trace for chart in made for trace in charts.plot(chart).data if trace.name):
        seen.setdefault(trace.name, set()).add(trace.line.color)
    assert all(len(found) == 1 for found in seen.values())
    assert (seen["scale"], seen["fastest-idle"]) == ({"#0072b2"}, {"#000000"})


@pytest.fixture
def played() -> tuple[np.ndarray, np.ndarray]:
    """Schedule and decisions of three tasks of workflow 0 (0 -> 1, 0 -> 2); the last does not finish."""
    starts = [
        (0, 0, 1, "a", 0, 0, 0, 2, "finished", 0, 4),
        (0, 1, 0, "a", 0, 2, 2, 3, "finished", 0, 2),
        (0, 2, 1, "a", 0, 2, 2.5, np.nan, "running", 0, np.nan),
    ]
    schedule = np.array(starts, SCHEDULE)
    decisions = np.array(
        [(0, 0, 0, 1, STARTED), (2, 0, 1, 0, STARTED), (2, 0, 2, 0, "invalid"), (2.5, 0, 2, 1, STARTED)], DECISION
    )
    return schedule, decisions


def test_gantt_has_a_bar_for_each_task(played: tuple[np.ndarray, np.ndarray]) -> None:
    schedule, decisions = played
    figure = episodes.gantt(Chart(schedule, ClusterConfig(servers=4), 4.0), np.arange(3), (0.0, 4.0), decisions[3])
    bars = figure.data[0]
    assert list(bars.base) == [0, 2, 2.5]
    assert list(bars.x) == [2, 1, 1.5]  # to the end of the episode
    assert list(bars.y) == [1, 0, 1]
    assert list(bars.marker.pattern.shape) == ["", "", "/"]
    assert list(bars.marker.line.width) == [0, 0, 3]


def test_of_a_long_schedule_what_starts_nearest_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = np.zeros(10, SCHEDULE)
    schedule["start_s"] = np.arange(10)
    assert episodes.nearest(schedule, 6.1).tolist() == list(range(10))
    monkeypatch.setattr(episodes, "MOST_BARS", 3)
    assert episodes.nearest(schedule, 6.1).tolist() == [5, 6, 7]


def test_states_of_a_workflow_at_a_decision(played: tuple[np.ndarray, np.ndarray]) -> None:
    schedule, decisions = played
    edges = np.array([[0, 1], [0, 2]])
    states = [episodes.task_states(schedule, decisions, k, 3, edges) for k in range(4)]
    assert states == [
        [episodes.DECIDED, episodes.WAITING, episodes.WAITING],
        [episodes.DONE, episodes.DECIDED, episodes.READY],
        [episodes.DONE, episodes.RUNNING, episodes.DECIDED],
        [episodes.DONE, episodes.RUNNING, episodes.DECIDED],
    ]


def test_what_a_server_lost_or_no_decision_started_is_shown_as_what_it_was() -> None:
    """Task 0 fails on server 1 and is started anew; the simulator itself starts task 1 after the decisions at 3 s."""
    attempts = [
        (0, 0, 1, "a", 0, 0, 0, 1, "failed", 0, 4),
        (0, 0, 0, "a", 0, 1, 1, 3, "finished", 0, 4),
        (0, 1, 1, "a", 0, 3, 3, 5, "finished", 0, 4),
        (0, 2, 1, "a", 0, 5, 5, 6, "finished", 0, 4),
    ]
    schedule = np.array(attempts, SCHEDULE)
    decisions = np.array(
        [
            (0, 0, 0, 1, STARTED),
            (0.5, 9, 0, 0, "waits for it"),
            (1, 0, 0, 0, STARTED),
            (3, 0, 1, 0, "invalid"),
            (5, 0, 2, 1, STARTED),
        ],
        DECISION,
    )
    assert episodes.started_by(schedule, decisions).tolist() == [0, 2, -1, 4]
    edges = np.array([[0, 1], [1, 2]])
    states = [episodes.task_states(schedule, decisions, k, 3, edges) for k in (2, 3, 4)]
    assert states == [
        [episodes.DECIDED, episodes.WAITING, episodes.WAITING],
        [episodes.DONE, episodes.DECIDED, episodes.WAITING],
        [episodes.DONE, episodes.DONE, episodes.DECIDED],
    ]


def test_each_bar_knows_its_decision_where_tasks_wait(tmp_path: Path) -> None:
    env = {"episode": {"horizon_s": 400.0, "arrivals_until_s": 20.0}, "decision": {"on_busy": "reserve"}}
    evaluation = {"scales": [16], "episodes": 1, "heuristics": ["large-only"]}
    rows = play_folder(tmp_path / "r", methods=[], env=env, evaluation=evaluation)
    inspected = inspect_episode(Replay(tmp_path / "r"), rows.to_dict("records")[0])
    schedule, decisions = inspected.episode.schedule, inspected.decisions
    assert (decisions["outcome"] == WAITS).any()
    started = decisions[episodes.started_by(schedule, decisions)]
    assert (started["outcome"] == STARTED).all()
    for name, of_schedule in (("workflow",) * 2, ("task",) * 2, ("server",) * 2, ("clock_s", "start_s")):
        assert started[name].tolist() == schedule[of_schedule].tolist()


def test_dag_has_a_node_in_the_colour_of_its_state_for_each_task_and_an_arrow_for_each_edge() -> None:
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    states = [episodes.DONE, episodes.RUNNING, episodes.READY, episodes.WAITING]
    dot = episodes.dag(edges, states, ["a", "b", "c", "d"])
    nodes = re.findall(r'(\d+) \[fillcolor="(#\w+)".*?tooltip="(\w)"\]', dot)
    assert nodes == [(str(k), episodes.STATE_COLOURS[state], "abcd"[k]) for k, state in enumerate(states)]
    assert re.findall(r"(\d+) -> (\d+)", dot) == [(str(a), str(b)) for a, b in edges.tolist()]


def test_attention_and_probabilities_are_shown_as_they_are() -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5), size=(2, 3))
    heat = charts.plot(episodes.attention(weights)).data[0]
    assert np.array(heat.z) == pytest.approx(weights.reshape(6, 5))
    assert heat.y[3] == "block 2, head 1"
    states = np.array(["idle and fits", "busy", "busy", "too small", "empty row"])
    (panel,) = episodes.probabilities(weights[0, 0], states, 0).panels
    *by_state, chosen = panel.marks
    shown = {server: (p, marks.name) for marks in by_state for server, p in zip(marks.x, marks.y, strict=True)}
    assert [shown[j] for j in range(5)] == list(zip(weights[0, 0], states, strict=True))
    assert (chosen.name, chosen.x) == ("chosen", [0])
