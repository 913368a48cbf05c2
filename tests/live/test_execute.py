"""Workloads on a real local Ray: what is run, what fails, what is refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
from click.testing import CliRunner

from live.problems import DIAMOND, problem, set_fields, task, work
from local_ray import LOCAL_RAY
from refused import refused
from rllib_scale.cli import main
from rllib_scale.config import EnvConfig, EpisodeConfig, TierConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.replay import Replay
from rllib_scale.live.backend import RayBackend
from rllib_scale.live.execute import LiveRun, execute
from rllib_scale.live.flows import Ended, Flow
from rllib_scale.live.guard import Guard
from rllib_scale.live.servers import Call
from rllib_scale.live.side_by_side import add_rows, open_results, simulated
from rllib_scale.live.surrogates import Surrogates
from rllib_scale.results import runs
from rllib_scale.results.dataset import read
from rllib_scale.results.storage import Location
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.model import Workload
from sweep_runs import named

pytestmark = LOCAL_RAY
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the servers cannot import it

ONE = (TierConfig(name="only", count=2, compute_gflops=1.0, memory_gb=8.0),)
FAST = Surrogates(time_scale=0.02)


def play(name: str, env: EnvConfig, workload: Workload, **options: Any) -> LiveRun:
    return execute(make_scheduler(name, env.observation, env.episode.mask), env, workload, FAST, **options)


def decisions(schedule: np.ndarray) -> list[tuple[float, int, int, int]]:
    return schedule[["start_s", "workflow", "task", "server"]].tolist()


def test_a_diamond_by_hand() -> None:
    """The root on the fast server, then both branches side by side on it, the join where the memory is."""
    tasks = [task(8, output=1.0), task(4), task(4), task(4, memory=12.0, delay=2.0)]
    played = play("fastest-idle", problem(), work((1.0, tasks, DIAMOND)))
    assert [(t, server) for _, _, t, server in decisions(played.schedule)] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert set(played.schedule["outcome"]) == {"finished"}
    start, finish, ready = (played.schedule[name] for name in ("start_s", "finish_s", "ready_s"))
    assert start[0] >= 1.0
    assert start[1] == start[2] == finish[0], "no time passes while a round is answered"
    assert ready[3] >= max(finish[1:3]) + 2.0
    assert (finish - start >= [2.0, 1.0, 1.0, 1.0]).all()
    assert played.metrics["completed"] == 4
    assert len(played.overheads_s) == 4
    assert (played.overheads_s > 0).all()


def _fail_at_first(folder: str, times: int, dies: bool) -> None:
    os.makedirs(folder, exist_ok=True)
    tried = len(os.listdir(folder))
    if tried < times:
        (Path(folder) / str(tried)).touch()
        if dies:
            os._exit(1)
        raise KeyError(f"attempt {tried}")


def run_failing(
    folder: Path, times: dict[tuple[int, int], int], dies: bool = False, retries: int = 0
) -> tuple[RayBackend, list[Ended]]:
    """Two chains of three tasks on two servers; `times` says how often a task fails, by workflow and task."""
    told: list[Ended] = []
    env = problem(ONE)

    def fails(attempt: Attempt, inputs: list[Any]) -> Call:
        task = (attempt.workflow, attempt.task)
        return Call(_fail_at_first, (str(folder / f"{task}"), times.get(task, 0), dies))

    backend = RayBackend(env, fails, retries=retries, listener=told.append)
    chain = [task(1), task(1), task(1)]
    workload = work((0.0, chain, [[0, 1], [1, 2]]), (0.0, chain, [[0, 1], [1, 2]]))
    for number in range(2):
        backend.expect(Flow.of(workload, number, env.cluster))
    try:
        backend.engine.play(make_scheduler("fastest-idle", env.observation, "feasible"), backend.more)
    finally:
        backend.shut_down()
    return backend, told


def test_a_task_that_raises_is_run_again_and_after_its_last_retry_its_workflow_fails_alone(tmp_path: Path) -> None:
    backend, told = run_failing(tmp_path, {(0, 1): 9, (1, 1): 2}, retries=2)
    assert list(backend.failed) == [0]
    error = backend.failed[0]
    assert isinstance(error, KeyError)
    assert error.args == ("attempt 2",)
    assert "_fail_at_first" in error.__notes__[0], "where it was raised"
    finished = [(e.flow.number, e.task) for e in told if e.error is None]
    assert sorted(finished) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    schedule = backend.engine.schedule()
    failed = schedule[schedule["outcome"] == "failed"]
    assert sorted(failed[["workflow", "task"]].tolist()) == [(0, 1)] * 3 + [(1, 1)] * 2


def test_a_server_that_dies_comes_back_and_its_tasks_start_anew(tmp_path: Path) -> None:
    backend, _ = run_failing(tmp_path, {(0, 1): 2}, dies=True)
    assert backend.failed == {}, "that a server dies is no failure of the task"
    schedule = backend.engine.schedule()
    assert (schedule["outcome"] == "finished").sum() == 6
    assert (schedule["outcome"] == "failed").sum() >= 2
    assert backend.engine.metrics()["failed_attempts"] >= 2


def test_the_command_adds_rows_of_the_run_and_of_the_simulator(tmp_path: Path) -> None:
    tasks = [task(8, output=1.0), task(4), task(4), task(4)]
    work((0.0, tasks, DIAMOND), (1.0, tasks, DIAMOND)).save(tmp_path / "two.json")
    work((0.0, tasks, DIAMOND)).save(tmp_path / "one.json")
    tier = {"name": "mine", "count": 3, "compute_gflops": 4, "memory_gb": 80, "idle_power_w": 1, "busy_power_w": 2}
    (tmp_path / "own.yaml").write_text(json.dumps({"cluster": {"tiers": [tier]}}))
    options = ["--scheduler", "reserve:waiting=1.5", "--config", str(tmp_path / "own.yaml"), "--time-scale", "0.02"]
    options += ["--set", "episode.horizon_s=1e4", "--results", str(tmp_path / "results")]
    options += ["--schedule", str(tmp_path / "schedule.csv"), "--json"]
    done = CliRunner().invoke(main, ["execute", str(tmp_path / "two.json"), *options])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    rows = named(read(Location(str(tmp_path / "results")), "episodes"), tmp_path / "results")
    assert rows["method"].tolist() == ["reserve (live)", "reserve"], "without parameters at their defaults"
    assert "utilisation_mine" in rows
    assert rows["completed"].tolist() == [8, 8]
    assert rows["response_mean_s"].tolist() == [shown[name]["response_mean_s"] for name in ("live", "simulated")]
    schedule = pd.read_csv(tmp_path / "schedule.csv")
    assert schedule["outcome"].tolist() == ["finished"] * 8
    other = CliRunner().invoke(main, ["execute", str(tmp_path / "one.json"), *options])
    assert other.exit_code == 2
    assert "holds runs of another workload" in other.stderr


REFUSED = """
small.json --time-scale nan | --time-scale | nan is not a finite number
small.json --time-scale inf | --time-scale | inf is not a finite number
small.json --time-scale 1e30 | small.json | the longest task takes | 1e+30; valid: at most 1e+07 s
small.json --bytes-per-gb nan | --bytes-per-gb | nan is not a finite number
small.json --bytes-per-gb 1e15 | small.json | the largest output has 1e+15 bytes | valid: at most 1e+10
small.json --horizon nan | --horizon | nan is not a finite number
small.json --horizon inf | --horizon | inf is not a finite number
small.json --set episode.horizon_s=.nan | horizon_s | nan
small.json --set cluster.tiers=[] | cluster.tiers
small.json --config small.json | format
large.json | large.json | the longest task takes 1e+14 s
late.json | late.json | the last workflow arrives after 1e+11 s
small.json --servers 500000 | 500,000 servers | valid: at most
small.json --servers 8 --ray-nodes | --ray-nodes | leave out --servers
small.json --ray-nodes --set cluster.servers=8 | --ray-nodes | leave out --servers and settings of cluster
"""


def test_values_are_checked_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rllib_scale.clusters.session.ray_session", lambda *_: pytest.fail("Ray starts"))
    for name, arrival, compute in (("small", 0.0, 1.0), ("large", 0.0, 1e15), ("late", 1e12, 1.0)):
        one = [task(compute, output=1.0)]
        work((0.0, one, []), (arrival, one, [])).save(tmp_path / f"{name}.json")
    for row in REFUSED.strip().splitlines():
        command, *parts = row.split(" | ")
        line = refused("execute", *command.split())
        assert all(part in line for part in parts), line
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text(encoding="utf-8")
    (own,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "own.yaml").write_text(own)
    commands = [shlex.split(line)[1:] for line in page.splitlines() if line.startswith("rllib-scale ")]
    shown = ""
    for command in commands:
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, (command, done.output)
        shown += " ".join(done.stdout.split())
    assert [command[0] for command in commands] == ["simulate", "execute", "report", "execute", "execute"]
    assert "reserve:waiting=1 on work.json: 4 servers" in shown
    assert "dual-price on work.json: 3 servers" in shown
    rows = named(read(Location(str(tmp_path / "results" / "own")), "episodes"), tmp_path / "results" / "own")
    assert rows["method"].tolist() == ["dual-price (live)", "dual-price"]
    assert "utilisation_large" in rows
    assert (tmp_path / "live.png").exists()
    assert (tmp_path / "results" / "live-work" / "report" / "report.html").exists()


def test_a_report_draws_live_runs_beside_their_simulations(tmp_path: Path) -> None:
    env, given = problem(), work((1.0, [task(8), task(4), task(4), task(4)], DIAMOND))
    open_results(tmp_path / "runs", given, "diamond")
    for name in ("fastest-idle", "reserve"):
        player = make_scheduler(name, env.observation, env.episode.mask)
        live = execute(player, env, given, FAST, guard=Guard("fastest-idle"))
        add_rows(tmp_path / "runs", player, "diamond", 0, live, simulated(player, env, given))
    rows = read(Location(str(tmp_path / "runs")), "episodes")
    assert rows["problem"].nunique() == 1, "they can be compared"
    done = CliRunner().invoke(main, ["report", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "runs" / "report" / "report.html").read_text(encoding="utf-8")
    for name in ("fastest-idle", "reserve"):
        assert f"{name} on 2 servers, diamond" in page
    assert page.count("What ran, above its simulation</figcaption>") == 2
    assert page.count("Guard fastest-idle: could not act") == 2
    assert "Not drawn" not in page
    drawn = Replay(tmp_path / "runs")([row for _, row in rows.tail(2).iterrows()], ["live", "simulated"])
    assert [axes.get_title(loc="left") or axes.get_title() for axes in drawn.axes] == ["live", "simulated"]
    (run,) = [run for run in runs.read(Location(str(tmp_path / "runs"))) if run.scheduler == "reserve"]
    assert run.live.schedule["start_s"].tolist() == live.schedule["start_s"].tolist()
    assert run.overheads_s == live.overheads_s.tolist()


def test_a_horizon_cuts_what_runs() -> None:
    played = play("fastest-idle", problem(), work((0.0, [task(2), task(400)], [])), horizon_s=20.0)
    assert played.end_s == 20.0
    assert sorted(played.schedule["outcome"]) == ["finished", "running"]
    assert (played.metrics["completed"], played.metrics["unfinished"]) == (1, 1)


def test_the_simulator_beside_it_plays_the_same_workload() -> None:
    env, workload = problem(episode=EpisodeConfig(mask="feasible", horizon_s=1.0)), work((0.0, [task(8)] * 3, []))
    engine = simulated(make_scheduler("fastest-idle", env.observation, "feasible"), env, workload)
    assert engine.metrics()["completed"] == 3, "the scenario's horizon is not that of a live run"


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("information", {"workflows": "revealed"}),
        ("information", {"estimate_error": 0.5}),
        ("information", {"straggler_share": 0.05}),
        ("cluster", {"changes": {"failures_per_1000_h": 1.0}}),
    ],
)
def test_what_only_a_simulation_has_is_refused(section: str, values: dict[str, Any]) -> None:
    (setting,) = values
    with pytest.raises(UserError, match=rf"{section}\.{setting}: is not supported on a live cluster"):
        play("fastest-idle", set_fields(problem(), section, **values), work((0.0, [task(1)], [])))
