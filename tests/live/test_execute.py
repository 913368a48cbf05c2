"""Workloads on a real local Ray: what is run, what fails, what is refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from live.problems import DIAMOND, problem, task, work
from local_ray import LOCAL_RAY
from rllib_scale.config import EnvConfig, EpisodeConfig, TierConfig, scenario
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import run
from rllib_scale.live.backend import Ended, RayBackend
from rllib_scale.live.execute import LiveRun, dispatcher_of, execute
from rllib_scale.live.flows import Flow
from rllib_scale.live.ledger import Attempt
from rllib_scale.live.recorded import RecordedBackend
from rllib_scale.live.servers import Call
from rllib_scale.live.side_by_side import simulated
from rllib_scale.live.surrogates import Surrogates
from rllib_scale.observation.backend import Answer
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

pytestmark = LOCAL_RAY
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the servers cannot import it

ONE = (TierConfig(name="only", count=2, compute_gflops=1.0, memory_gb=8.0),)
FAST = Surrogates(time_scale=0.02)


def play(name: str, env: EnvConfig, workload: Workload, **options: Any) -> LiveRun:
    return execute(make_scheduler(name, env.observation, env.episode.mask), env, workload, FAST, **options)


def decisions(schedule: np.ndarray) -> list[tuple[float, int, int, int]]:
    return schedule[["start_s", "workflow", "task", "server"]].tolist()


def test_a_diamond_by_hand() -> None:
    """The root on a fast slot, then both branches on fast slots, the join where the memory is."""
    tasks = [task(8, output=1.0), task(4), task(4), task(4, memory=12.0, delay=2.0)]
    played = play("fastest-idle", problem(), work((1.0, tasks, DIAMOND)))
    assert [(t, row) for _, _, t, row in decisions(played.schedule)] == [(0, 1), (1, 1), (2, 2), (3, 1)]
    assert set(played.schedule["outcome"]) == {"finished"}
    start, finish, ready = (played.schedule[name] for name in ("start_s", "finish_s", "ready_s"))
    assert start[0] >= 1.0
    assert start[1] == start[2] == finish[0], "no time passes while a round is answered"
    assert ready[3] >= max(finish[1:3]) + 2.0
    assert (finish - start >= [2.0, 1.0, 1.0, 1.0]).all()
    assert played.metrics["completed"] == 4
    assert len(played.overheads_s) == 4
    assert (played.overheads_s > 0).all()


@pytest.mark.parametrize("name", ["fastest-idle", "price", "earliest-finish-transfer"])
def test_with_its_durations_the_simulator_decides_the_same(name: str) -> None:
    env = scenario("steady-0.7").at_scale(4)
    workload = generate(env, 5, 0)
    workload = workload.take(np.arange(12), workload.arrival_s[:12] / 2)
    played = play(name, env, workload)
    replayed = RecordedBackend(played)
    dispatcher, _ = dispatcher_of(make_scheduler(name, env.observation, env.episode.mask), env)
    dispatcher.reset([(0, 0)])
    run(dispatcher, replayed)
    assert decisions(replayed.simulated.engine.schedule()) == decisions(played.schedule)
    assert len(played.schedule) == workload.num_tasks


def test_what_the_servers_hand_on_is_there() -> None:
    """Inputs come as the outputs of the predecessors, in their order, also from other servers."""
    seen: dict[tuple[int, int], Any] = {}

    def names(attempt: Attempt, inputs: list[Any]) -> Call:
        return Call(_joined, (attempt.task, *inputs))

    def keep(ended: Ended) -> None:
        seen[ended.flow.number, ended.task] = ray.get(ended.output)

    env = problem(ONE)
    backend = RayBackend(env, names, listener=keep)
    backend.ledger.expect(Flow.of(work((0.0, [task(1)] * 4, DIAMOND)), 0))
    try:
        run(dispatcher_of(make_scheduler("round-robin", env.observation, "feasible"), env)[0], backend)
    finally:
        backend.shut_down()
    assert seen[0, 3] == "3(1(0())2(0()))"
    assert backend.outputs == {}, "nothing is kept of a workflow that has ended"


def _joined(name: int, *inputs: str) -> str:
    return f"{name}({''.join(inputs)})"


class _Failing:
    """Tasks of workflow 0 fail for some attempts, by an exception or with their whole server."""

    def __init__(self, folder: Path, times: int, dies: bool) -> None:
        self.folder, self.times, self.dies = folder, times, dies

    def __call__(self, attempt: Attempt, inputs: list[Any]) -> Call:
        times = self.times if (attempt.flow.number, attempt.task) == (0, 1) else 0
        return Call(_fail_at_first, (str(self.folder), times, self.dies))


def _fail_at_first(folder: str, times: int, dies: bool) -> None:
    tried = len(os.listdir(folder))
    if tried < times:
        (Path(folder) / str(tried)).touch()
        if dies:
            os._exit(1)
        raise KeyError(f"attempt {tried}")


def run_failing(folder: Path, times: int, dies: bool, retries: int = 2) -> tuple[RayBackend, list[Ended]]:
    told: list[Ended] = []
    env = problem(ONE)
    backend = RayBackend(env, _Failing(folder, times, dies), retries=retries, listener=told.append)
    chain = [task(1), task(1), task(1)]
    workload = work((0.0, chain, [[0, 1], [1, 2]]), (0.0, chain, [[0, 1], [1, 2]]))
    for number in range(2):
        backend.ledger.expect(Flow.of(workload, number))
    try:
        run(dispatcher_of(make_scheduler("fastest-idle", env.observation, "feasible"), env)[0], backend)
    finally:
        backend.shut_down()
    return backend, told


def test_a_task_that_raises_is_run_again(tmp_path: Path) -> None:
    backend, told = run_failing(tmp_path, times=2, dies=False)
    assert backend.failed == {}
    outcomes = backend.ledger.schedule()["outcome"].tolist()
    assert (outcomes.count("failed"), outcomes.count("finished")) == (2, 6)
    assert len(told) == 6


def test_after_the_last_retry_its_workflow_fails_alone(tmp_path: Path) -> None:
    backend, told = run_failing(tmp_path, times=9, dies=False)
    assert list(backend.failed) == [0]
    error = backend.failed[0]
    assert isinstance(error, KeyError)
    assert error.args == ("attempt 2",)
    assert "_fail_at_first" in error.__notes__[0], "where it was raised"
    finished = [(e.flow.number, e.task) for e in told if e.error is None]
    assert sorted(finished) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    assert len(os.listdir(tmp_path)) == 3


def test_a_server_that_dies_comes_back_and_its_tasks_start_anew(tmp_path: Path) -> None:
    backend, _ = run_failing(tmp_path, times=3, dies=True, retries=0)
    assert backend.failed == {}, "that a server dies is no failure of the task"
    schedule = backend.ledger.schedule()
    assert (schedule["outcome"] == "finished").sum() == 6
    assert (schedule["outcome"] == "failed").sum() >= 3
    assert backend.ledger.there.all() or backend.ledger.away_until(backend.now).sum() > 0


def test_a_driver_that_stops_goes_on_from_what_is_finished(tmp_path: Path) -> None:
    env = problem()
    tasks = [task(8, output=1.0), task(4), task(4), task(4)]
    workload = work(*((float(k), tasks, DIAMOND) for k in range(6)))

    class EnoughError(Exception):
        pass

    ended: list[bool] = []

    def stop(snapshot: Any, answers: Any) -> None:
        if snapshot.num_arrived >= 4 and any(ended):
            raise EnoughError
        ended.append(any(flow.completed.any() for flow in snapshot.workflows.values()))

    with pytest.raises(EnoughError):
        play("fastest-idle", env, workload, folder=tmp_path / "run", watch=stop)
    with (tmp_path / "run" / "journal.jsonl").open("a") as journal:
        journal.write('{"clock_s": 99')  # it died while it wrote
    rounds = [json.loads(line) for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()[:-1]]
    before = [tuple(end[1:3]) for line in rounds for end in line["ends"]]
    clock = rounds[-1]["clock_s"]
    assert 0 < len(before) < workload.num_tasks
    said: list[str] = []
    second = play("fastest-idle", env, workload, folder=tmp_path / "run", say=said.append)
    assert said[0].startswith("goes on at ")
    finished = second.schedule[second.schedule["outcome"] == "finished"]
    names = finished[["workflow", "task"]].tolist()
    assert len(names) == len(set(names)) == workload.num_tasks, "each task finished once"
    assert names[: len(before)] == before or set(before) <= set(names)
    assert (second.schedule["outcome"] == "failed").sum() >= 1, "what ran when the driver died"
    new = second.schedule[len(before) + (second.schedule["outcome"] == "failed").sum() :]
    assert (new["start_s"] >= clock).all()
    third = play("fastest-idle", env, workload, folder=tmp_path / "run")
    assert decisions(third.schedule) == decisions(second.schedule), "all was done"
    with pytest.raises(UserError, match="holds another run, scheduler 'fastest-idle' and not 'price'"):
        play("price", env, workload, folder=tmp_path / "run")


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
    ("section", "values", "why"),
    [
        ("information", {"workflows": "revealed"}, "information.workflows"),
        ("information", {"estimate_error": 0.5}, "information.estimate_error"),
        ("information", {"straggler_share": 0.05}, "information.straggler_share"),
        ("decision", {"preemption": "restart"}, "decision.preemption"),
        ("cluster", {"changes": {"failures_per_1000_h": 1.0}}, "cluster.changes"),
    ],
)
def test_what_only_a_simulation_has_is_refused(section: str, values: dict[str, Any], why: str) -> None:
    env = problem()
    env = EnvConfig.model_validate(env.model_dump() | {section: getattr(env, section).model_dump() | values})
    with pytest.raises(UserError, match=f"{why}: is nothing that a live cluster plays"):
        play("fastest-idle", env, work((0.0, [task(1)], [])))


def test_an_answer_for_what_does_not_wait_is_refused() -> None:
    backend = RayBackend(problem(ONE), FAST)
    backend.ledger.expect(Flow.of(work((0.0, [task(1), task(1, memory=5.0)], [])), 0))
    try:
        assert backend.wait() is not None
        assert backend.apply(Answer(0, 0, 0)) == "started"
        for wrong in (Answer(0, 0, 1), Answer(0, 2, 1), Answer(1, 0, 1), Answer(0, -1, 0), Answer(0, 1, 2)):
            with pytest.raises(ValueError, match="no answer"):
                backend.apply(wrong)
        assert backend.apply(Answer(0, 1, 0)) == "busy"
    finally:
        backend.shut_down()
