"""The simulator as a backend: the protocol that a live cluster has, too."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import PASS, Answer
from rllib_scale.simulator.backend import SimulatedBackend
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload
from simulator.literal import problem, task, tier, workflow, workload

TIERS = (tier("slow", memory=8), tier("fast", compute=4, memory=16))
WORK = workload(workflow(1, task(8, 4), task(4, 4), task(4, 12)))


def backend(on_busy: str = "reserve", given: Workload = WORK) -> SimulatedBackend:
    decision = {"on_busy": on_busy}
    return SimulatedBackend(problem(*TIERS, decision=decision, horizon_s=100), workload=given)


def test_a_round_by_hand() -> None:
    cluster = backend()
    moment = cluster.wait()
    assert moment is not None
    assert (moment.clock_s, moment.idle.tolist()) == (1.0, [True, True])
    assert moment.ready["task"].tolist() == [0, 1, 2]
    assert cluster.apply(Answer(0, 0, 1)) == "started"  # 8 GFLOP at 4 GFLOPS: until 3 s
    assert cluster.apply(Answer(0, 2, 0)) == "no_fit"  # 12 GB on 8
    assert cluster.apply(Answer(0, 2, 1)) == "waits"
    assert cluster.engine.snapshot().available_at_s.tolist() == [1.0, 4.0]  # 3 s, and 4 GFLOP that wait
    assert cluster.apply(Answer(0, 1, PASS)) == "passed"
    with pytest.raises(ValueError, match="workflow 0, task 2"):
        cluster.apply(Answer(0, 2, 1))  # it waits already
    moment = cluster.wait()
    assert moment is not None
    assert (moment.clock_s, moment.ready["task"].tolist()) == (3.0, [1, 2])
    assert moment.available_at_s.tolist() == [3.0, 3.0], "reservations end with the round"
    assert [cluster.apply(Answer(0, k, server)) for k, server in ((2, 1), (1, 0))] == ["started", "started"]
    assert cluster.wait() is None
    assert cluster.engine.metrics()["completed"] == 3


def test_steps_and_dispatches_of_one_round() -> None:
    engine = backend().engine
    engine.step([1])  # task 0 on the fast one until 3 s
    engine.step([1])  # task 1 waits for it
    with pytest.raises(ValueError, match="workflow 0, task 1"):
        engine.dispatch(np.array([(0, 0, 1, 0)]))
    engine.dispatch(np.array([(0, 0, 2, 1)]))  # waits, too; the round ends, and what waits for the fast one with it
    assert (engine.clock[0], engine.offers()) == (3.0, [(0, 1)])
    assert engine.snapshot().available_at_s.tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="workflow 0, task 1"):
        engine.dispatch(np.array([(0, 0, 2, 1), (0, 0, 1, 1), (0, 0, 1, 0)]))  # the second is told to wait
    engine.dispatch(np.zeros((0, 4)))
    engine.step([0])
    assert engine.schedule()[["task", "server", "start_s"]].tolist() == [(0, 1, 1.0), (2, 1, 3.0), (1, 0, 4.0)]


def test_a_step_after_a_dispatch_answers_where_no_server_is_open() -> None:
    given = workload(workflow(0, task(8, 4), task(8, 4)), workflow(1, task(1, 4)))
    engine = backend(given=given).engine
    engine.dispatch(np.array([(0, 0, 0, 0), (0, 0, 1, 1)]))
    assert (engine.clock[0], engine.offers()) == (1.0, [(1, 0)])
    engine.step([1])
    assert (engine.clock[0], engine.metrics()["waits"]) == (2.0, 1)
    assert engine.offers() == [(1, 0)], "of the next round, as the fast one has become idle"


@pytest.mark.parametrize("on_busy", ["reserve", "step"])
def test_no_step_starts_a_candidate_that_was_withdrawn_by_an_answer(on_busy: str) -> None:
    engine = backend(on_busy).engine
    engine.answer(0, 0, 0, 1)
    with pytest.raises(ValueError, match="no answer"):
        engine.step([0])
    engine.dispatch(np.zeros((0, 4)))
    assert engine.schedule()["task"].tolist() == [0]


def test_a_busy_server_is_refused_and_changes_nothing_without_reservations() -> None:
    cluster = backend("step")
    assert cluster.wait() is not None
    assert cluster.apply(Answer(0, 0, 1)) == "started"
    before = cluster.engine.get_state()["env"].tobytes()
    assert cluster.apply(Answer(0, 2, 1)) == "busy"
    assert cluster.engine.get_state()["env"].tobytes() == before


@pytest.mark.parametrize("b", [-1, 2, 2**40])
@pytest.mark.parametrize("name", ["answer", "snapshot", "offers", "metrics", "schedule"])
def test_an_environment_that_is_not_there_is_refused(name: str, b: int) -> None:
    """Compiled code checks no bounds: it would read and write memory of others."""
    engine = Engine(EnvConfig(), 2)
    engine.reset([0, 0], [0, 1])
    with pytest.raises(ValueError, match=f"environment {b}: there is none; valid: 0 to 1"):
        getattr(engine, name)(b, *((0, 0, 0) if name == "answer" else ()))


@pytest.mark.parametrize("answer", [(5, 0, 0), (-1, 0, 0), (0, 99, 0), (0, -1, 0), (0, 0, 16), (0, 0, -3)])
def test_an_answer_for_what_is_not_there_is_refused(answer: tuple[int, int, int]) -> None:
    engine = Engine(EnvConfig())
    engine.reset([0], [0])
    with pytest.raises(ValueError, match="there is no answer for workflow"):
        engine.answer(0, *answer)
