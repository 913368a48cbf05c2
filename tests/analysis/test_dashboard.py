"""The dashboard without its page: a folder that changes, filters, figures, a note for what is torn."""

from __future__ import annotations

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

from artificial_results import (
    HEURISTICS,
    artificial_episodes,
    artificial_training,
    changed,
    episode_row,
    part_of,
    publish,
    tables_of,
    write_folder,
)
from played_results import play_folder
from rllib_scale.config import ClusterConfig
from rllib_scale.config.plan import SweepConfig, training_row
from rllib_scale.envs.gantt import Chart
from rllib_scale.evaluation.inspection import DECISION, STARTED, WAITS, inspect_episode
from rllib_scale.evaluation.replay import Replay
from rllib_scale.results import dataset
from rllib_scale.results import tables as results
from rllib_scale.results.storage import Location
from rllib_scale.simulator.record import SCHEDULE
from rllib_scale.sweeps.planning import make_plan

# ---------------------------------------------------------------------- a folder that changes


def test_only_new_parts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = artificial_episodes(seeds=(42,), scales=(16,), methods=("scale", "ppo"))
    folder = write_folder(tmp_path, rows, artificial_training((42,), ("scale",), 2))
    reader, seen = Reader(Location(str(folder))), list[tuple[str, int]]()
    original = dataset.read_parts

    def noted(home: Location, table: str, found: Any) -> Any:
        if table in ("episodes", "training"):
            seen.append((table, len(found)))
        return original(home, table, found)

    monkeypatch.setattr(dataset, "read_parts", noted)
    first = reader.read()
    assert reader.read() is first
    assert sorted(seen) == [("episodes", 1), ("training", 1)]
    dataset.append(folder, **tables_of(artificial_episodes((42,), (32,), ("scale",))))
    again = [row | {"completed": 100} for row in artificial_episodes((42,), (16,), ("scale",))]
    dataset.append(folder, **tables_of(again))
    second = reader.read()
    assert seen[2:] == [("episodes", 2)]
    assert (len(first.episodes), len(second.episodes)) == (12, 18)
    assert (second.episodes["completed"] == 100).sum() == 6, "the newest row of a key counts"
    assert first.stamp != second.stamp
    pd.testing.assert_frame_equal(second.episodes, load(folder).episodes)


def test_a_training_of_two_folders_is_listed_once_with_what_it_got_furthest_with(tmp_path: Path) -> None:
    one, two = (write_folder(tmp_path / name, [], [], sweep=name) for name in ("one", "two"))
    sweep = SweepConfig.model_validate({"name": "x", "methods": ["ppo"], "seeds": [42]})
    (trial,) = make_plan(sweep, "x").trials
    publish(one, trial)
    for name in (trial.name, "scale-s42-4567"):
        (two / "trials" / "run-001" / name).mkdir(parents=True)
    states = {
        training.name: training.state for training in Reader(*map(Location, map(str, (one, two)))).read().trainings
    }
    assert states == {trial.name: "finished", "scale-s42-4567": "running"}


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_what_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(42,), scales=(16,), methods=("scale", "ppo"))
    folder = write_folder(tmp_path, rows[:6], artificial_training(seeds=(42,), methods=("scale",)))
    first = part_of(folder)
    dataset.append(folder, **tables_of(rows[6:]))
    (second,) = set((folder / "episodes").iterdir()) - {first}
    home = Location(str(folder))
    for path, left in ((folder / "manifest.json", (12, 40)), (part_of(folder, "training"), (12, 0)), (second, (6, 0))):
        torn(path)
        snapshot = Reader(home).read()
        assert (len(snapshot.episodes), len(snapshot.training)) == left
        assert any(f"{path}: not a readable" in note for note in snapshot.notes)
    dataset.append(folder, **tables_of(rows[6:]))
    assert len(Reader(home).read().episodes) == 12
    for path in (folder / "manifest.json", part_of(folder, "training"), second):
        path.unlink()
    snapshot = Reader(home).read()
    assert len(snapshot.episodes) == 12
    (note,) = snapshot.notes
    assert "no manifest.json yet" in note


def test_an_epoch_in_which_no_episode_ended_is_an_epoch(tmp_path: Path) -> None:
    epochs = artificial_training(seeds=(42,), methods=("ppo",), epochs=3)
    epochs[0] |= {"completed": None, "response_mean_s": None}
    snapshot = Reader(Location(str(write_folder(tmp_path, [], epochs)))).read()
    assert (len(snapshot.training), snapshot.notes) == (3, ())


def test_an_empty_folder_has_nothing_to_show(tmp_path: Path) -> None:
    snapshot = Reader(Location(str(tmp_path))).read()
    assert selection.options(snapshot.episodes, snapshot.training) == selection.Options((), (), (), (), ())
    assert (len(snapshot.episodes), snapshot.trainings, len(snapshot.training)) == (0, (), 0)


# ---------------------------------------------------------------------- filters


@pytest.fixture(scope="module")
def snapshot(results_folder: Path) -> Results:
    return Reader(Location(str(results_folder))).read()


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


def test_no_filter_changes_a_verdict(tmp_path: Path) -> None:
    """A filter of lambdas left one pair of several: its p-value was not corrected for the others any more."""
    weights = (0.001, 0.1, 1.0)
    rows = artificial_episodes(scales=(16,), methods=("crossattn",))
    for number, weight in enumerate(weights):
        grid = artificial_episodes(scales=(16,), methods=("scale",))
        rows += [changed(row, {"srr.lambda_kl": weight}) | {"completed": row["completed"] + number} for row in grid]
    found = load(write_folder(tmp_path, rows, []))
    seen = []

    def page(folder, filters):  # type: ignore[no-untyped-def]  # Streamlit runs its source alone
        from rllib_scale_analysis.dashboard import views
        from rllib_scale_analysis.dashboard.selection import Filters
        from rllib_scale_analysis.load import load
        from rllib_scale_analysis.rows import PAPER_SETTING

        views.compare(load(folder), Filters(PAPER_SETTING, **filters))

    apps = pytest.importorskip("streamlit.testing.v1")
    for filters in ({}, {"lambdas": ((0.01, 0.1), (0.0, 0.0))}, {"seeds": (42, 43, 44, 45)}):
        shown = apps.AppTest.from_function(page, args=(str(tmp_path), filters)).run(timeout=600)
        assert not shown.exception
        shown.selectbox(key="first").set_value("scale (λ2=0.1)").run(timeout=600)
        shown.selectbox(key="second").set_value("crossattn").run(timeout=600)
        seen.append([block.proto.body for block in shown.get("html")])
    assert seen[0] == seen[1] == seen[2]
    assert re.search(r"p 0\.\d", str(seen[0]))
    assert len(found.episodes["variant"].unique()) == 1 + len(weights)


# ---------------------------------------------------------------------- runs and figures


def test_runs_are_all_that_was_trained_or_evaluated_each_once(tmp_path: Path) -> None:
    sweep = SweepConfig.model_validate(
        {"name": "artificial", "methods": ["scale"], "seeds": [1, 2, 3], "grid": {"env.episode.horizon_s": [6.0, 9.0]}}
    )
    plan = make_plan(sweep, "artificial")
    trials = plan.trials
    rules = artificial_episodes(seeds=(), scales=(16, 32), methods=("fastest-idle",), episodes=3)
    folder = write_folder(tmp_path, rules, [])
    tables = tables_of(episode_row("scale", 0, 16, k) for k in range(4))
    for trial in trials[:2]:
        tables["schedulers"] = [training_row(trial.scheduler, trial.config)]
        tables["episodes"] = [row | {"scheduler": trial.scheduler} for row in tables["episodes"]]
        dataset.append(folder, **tables)
    results.open_folder(folder, "artificial", sweep.model_dump(mode="json"), "0", plan.to_json())
    publish(folder, trials[0])
    (folder / "trials" / "run-001" / trials[2].config.name).mkdir(parents=True)
    snapshot = Reader(Location(str(folder))).read()
    table = runs(snapshot).set_index("run")
    assert table["state"].value_counts().to_dict() == {"finished": 2, "running": 1, "waiting": 3, "rule": 1}
    assert table.loc[trials[0].config.name, ["state", "rows"]].to_list() == ["finished", 4]
    assert table.loc[trials[1].config.name, ["state", "rows", "epoch"]].to_list() == ["finished", 4, 1000]
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


def page_of_episodes(folder: str) -> None:
    """The view of episodes alone; Streamlit runs this function's source."""
    from rllib_scale_analysis.dashboard import episode_view, selection
    from rllib_scale_analysis.dashboard.selection import Filters
    from rllib_scale_analysis.load import load

    results = load(folder)
    options = selection.options(results.episodes, results.training)
    episode_view.episode(results, Filters(options.settings[0]))


def test_an_episode_on_replicas_is_played_again_with_its_calls(tmp_path: Path) -> None:
    apps = pytest.importorskip("streamlit.testing.v1")
    env = {
        "cluster": {"servers": 2},
        "service": {"sessions": 4, "warm_up_s": 20.0},
        "episode": {"horizon_s": 500.0, "mask": "feasible"},
    }
    evaluation = {"scales": [2], "episodes": 1, "heuristics": ["lmetric:gate=1"]}
    rows = play_folder(tmp_path, "fleet", scenario="agents-replicas", env=env, methods=[], evaluation=evaluation)
    page = apps.AppTest.from_function(page_of_episodes, args=(str(tmp_path),)).run(timeout=600)
    assert not page.exception
    shown = {metric.label: metric.value for metric in page.metric}
    assert shown["hit rate"] == f"{rows['hit_rate'].iloc[0]:.2f}"
    assert 100 < page.slider(key="from").max <= 200, "of 500 s the first 300 of the last calls"
    assert page.caption[-1].value.startswith("One bar a completed call")
