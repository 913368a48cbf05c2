"""Servers die, outputs are lost and tasks fail, in any order: a live cluster whose Ray is played by this file."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from ray.exceptions import ObjectLostError, RayActorError

from live.problems import problem, task, work
from rllib_scale.config import ClusterConfig, EnvConfig, TierConfig
from rllib_scale.live import backend as live_backend
from rllib_scale.live.backend import RayBackend
from rllib_scale.live.flows import Flow
from rllib_scale.live.servers import Call
from rllib_scale.live.worker import Report
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.model import Workload
from seeds import each_of

FOUR = (TierConfig(name="only", count=4, compute_gflops=1.0, memory_gb=8.0),)


class Reference:
    """Of an output, or of the end of a call that the test decides on."""

    def __init__(self, server: int, life: int) -> None:
        self.server, self.life, self.end = server, life, Future[Any]()

    def future(self) -> Future[Any]:
        return self.end


class PlayedServers:
    """What the backend asks of `Servers`: what comes of its calls is drawn."""

    def __init__(self, cluster: ClusterConfig, nodes: object) -> None:
        count = cluster.num_servers
        self.node, self.lives, self.alive = (
            [f"n{j}" for j in range(count)],
            [0] * count,
            {f"n{j}" for j in range(count)},
        )
        self.calls: dict[int, tuple[Reference, tuple[Reference, ...]]] = {}  # that run, by attempt; -1 - j: j starts

    def ready(self, server: int) -> Reference:
        reference = Reference(server, self.lives[server])
        self.calls[-1 - server] = reference, ()
        return reference

    def run(self, server: int, attempt: int, call: Call) -> tuple[Reference, Reference]:
        report = Reference(server, self.lives[server])
        self.calls[attempt] = report, call.arguments
        return report, Reference(server, self.lives[server])

    def stop(self, server: int, attempt: int) -> None:
        if attempt in self.calls:
            self._end(attempt, RuntimeError("it was stopped"))

    def kill(self, server: int) -> None:
        self.lives[server] += 1
        for attempt in [attempt for attempt, (at, _) in self.calls.items() if at.server == server]:
            self.calls.pop(attempt)[0].end.set_exception(RayActorError())

    def start_anew(self, server: int) -> bool:
        return self.node[server] in self.alive

    def close(self) -> None:
        for server in range(len(self.node)):
            self.kill(server)

    def _end(self, attempt: int, error: Exception | None = None) -> None:
        self.calls.pop(attempt)[0].end.set_result(Report(0.0, error))

    def happen(self, rng: np.random.Generator) -> None:
        """One of the calls ends somehow, or its server dies."""
        attempt = int(rng.choice(list(self.calls)))
        report, inputs = self.calls[attempt]
        how = rng.random()
        if any(self.lives[each.server] != each.life for each in inputs):
            del self.calls[attempt]
            report.end.set_exception(ObjectLostError("", None, ""))
        elif how < 0.15 and attempt >= 0:
            if how < 0.03 and len(self.alive) > 2:
                self.alive.discard(self.node[report.server])
            self.kill(report.server)
        elif how < 0.3 and attempt >= 0:
            self._end(attempt, ValueError("it failed"))
        else:
            self._end(attempt)


def backend(env: EnvConfig, call: Callable[..., Call], workload: Workload, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster whose Ray is played, and to which all workflows are to come."""
    monkeypatch.setattr(live_backend, "Servers", PlayedServers)
    monkeypatch.setattr(live_backend, "alive", lambda: sorted(played.servers.alive))
    monkeypatch.setattr(live_backend.ray, "get", lambda references: None)
    played: Any = RayBackend(env, call, retries=6)
    played.servers.calls.clear()  # they are ready
    for number in range(workload.num_workflows):
        played.expect(Flow.of(workload, number, env.cluster))
    return played


@each_of(range(400), by_default=40)
def test_whatever_is_lost_each_workflow_ends_or_fails(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task runs only where the outputs of all tasks before it are; nothing ends the thread that decides."""
    rng = np.random.default_rng([case, 61])
    flows = []
    for _ in range(3):
        count = int(rng.integers(2, 6))
        edges = [[a, b] for a in range(count) for b in range(a + 1, count) if rng.random() < 0.6]
        flows.append((0.0, [task(1.0 if rng.random() < 0.9 else 0.0) for _ in range(count)], edges))
    workload, env = work(*flows), problem(FOUR)
    rule = make_scheduler(str(rng.choice(["fastest-idle", "reserve", "random-feasible"])), env.observation, "feasible")

    def call(attempt: Attempt, inputs: list[Any]) -> Call:
        done = played.engine.has_ended
        assert all(done(attempt.workflow, k) for k in played.flows[attempt.workflow].sources[attempt.task])
        return Call(None, tuple(inputs))

    played = backend(rule.problem(env), call, workload, monkeypatch)
    rule.reset([(case, 0)])

    def more() -> bool:
        assert played.servers.calls or played.pending or not played.flows, "it would wait for ever"
        if played.servers.calls:
            played.servers.happen(rng)
        return played.more()

    played.engine.play(rule, more)
    assert not played.flows
    schedule = played.engine.schedule()
    ended = {(row["workflow"], row["task"]) for row in schedule if row["outcome"] == "finished"}
    for number in set(range(workload.num_workflows)) - set(played.failed):
        has_work = workload.compute_gflop[workload.task_offsets[number] : workload.task_offsets[number + 1]] > 0
        assert {k for n, k in ended if n == number} == {*np.flatnonzero(has_work)}
    assert not played.outputs


def test_a_task_that_ends_its_server_each_time_is_given_up_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, deadly = np.random.default_rng(0), set[int]()
    workload, env = work(*[(0.0, [task(1.0)] * 30, [])] * 3), problem(FOUR)
    rule = make_scheduler("fastest-idle", env.observation, "feasible")

    def call(attempt: Attempt, inputs: list[Any]) -> Call:
        if (attempt.workflow, attempt.task) == (1, 7):
            deadly.add(attempt.number)
        return Call(None)

    def more() -> bool:
        calls = played.servers.calls
        for number in deadly & calls.keys():
            played.servers.kill(calls[number][0].server)
        if calls:
            number = int(rng.choice(list(calls)))
            calls.pop(number)[0].end.set_result(Report(0.0, None))
        return bool(played.more())

    played = backend(rule.problem(env), call, workload, monkeypatch)
    rule.reset([(0, 0)])
    played.engine.play(rule, more)
    assert played.failed.keys() == {1}
    assert "task 7" in str(played.failed[1])
    assert all(server in played._coming or played.engine.is_there(server) for server in range(4))
