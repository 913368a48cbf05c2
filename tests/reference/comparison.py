"""Engine and reference side by side: the same answers to both, everything either shows compared after each."""

from __future__ import annotations

import numpy as np
import pytest

from reference.answers import RandomActions, RandomDispatch
from reference.cases import labelled, random_config, random_mode_config, random_mode_workload, random_workload
from reference.changes import change_events
from reference.factors import estimate_factors, straggler_factors
from reference.parts import Server, Workflow
from reference.simulator import OUTCOMES, ReferenceSimulator
from rllib_scale.config import EnvConfig
from rllib_scale.observation.snapshot import AWAY, DRAINING, UP, LiveWorkflow
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

EXACT = {"rtol": 1e-9, "atol": 1e-9}  # float64, sums in another order
FLOAT32 = {"rtol": 1e-6, "atol": 1e-6}
COLUMNS = ("workflow", "task", "server", "tier", "arrival_s", "ready_s", "start_s", "finish_s")
ATTEMPT_COLUMNS = ("outcome", "transfer_s", "work_gflop")


def random_case(case: int, paper: bool) -> tuple[EnvConfig, Workload | None]:
    """A problem in the paper's mode or in any, and a given workload for every second one, None for a drawn one.

    Half of the given ones have labels. Every third problem is on a grid, so that events coincide.
    """
    rng, grid = np.random.default_rng([case, 7]), case % 3 == 0
    config = random_config(rng, grid) if paper else random_mode_config(rng, grid)
    if case % 2 == 0:
        return config, None
    content = random_workload(rng, config, grid) if paper else random_mode_workload(rng, config, grid)
    if case % 4 == 1:
        config, content = labelled(config, content, case)
    return config, Workload.from_dict(content, "case")


def begin(config: EnvConfig, seed: int, episode: int, workload: Workload | None) -> tuple[Engine, ReferenceSimulator]:
    """Both at the start of the same episode."""
    engine = Engine(config)
    engine.reset([seed], [episode], workload=workload)
    return engine, reference(config, seed, episode, workload)


def reference(config: EnvConfig, seed: int, episode: int, workload: Workload | None) -> ReferenceSimulator:
    """The reference at the start of an episode of a drawn or a given workload."""
    played = generate(config, seed, episode) if workload is None else workload
    return ReferenceSimulator(
        config,
        played,
        open_ended=workload is None and config.episode.arrivals_until_s is None,
        changes=change_events(config.cluster, seed, episode, config.episode.horizon_s),
        factors=estimate_factors(config, seed, episode, played),
        slowdowns=straggler_factors(config, seed, episode, played),
    )


def play_both(engine: Engine, sim: ReferenceSimulator, answers: np.random.Generator | RandomActions, most: int) -> int:
    """At most so many answers to both, everything compared after each; returns how many it were."""
    actions = answers if isinstance(answers, RandomActions) else RandomActions(answers)
    rng, played = actions.rng, 0
    assert_same_state(engine, sim)
    while played < most and not sim.done:
        if rng.random() < 0.02:
            assert_refused(engine, sim, actions.impossible(sim))
        action = actions(sim)
        sim.step(action)
        engine.step([action])
        assert OUTCOMES[engine.outcome[0]] == sim.outcome, played
        assert_same_state(engine, sim)
        if played % 5 == 0 and not sim.done:
            assert_same_snapshot(engine, sim)
        played += 1
    assert_same_totals(engine, sim)
    return played


def dispatch_both(engine: Engine, sim: ReferenceSimulator, rng: np.random.Generator, most: int) -> None:
    """The same dispatches to both, everything but the candidates compared after each."""
    answers = RandomDispatch(rng)
    for _ in range(most):
        if sim.done:
            break
        sim.dispatch(answers(sim))
        engine.dispatch(np.array([(0, *answer) for answer in answers.given], dtype=np.int64).reshape(-1, 4))
        assert_same_state(engine, sim, candidates=False)
        if not sim.done:
            assert_same_snapshot(engine, sim)
    assert_same_totals(engine, sim)


def assert_refused(engine: Engine, sim: ReferenceSimulator, action: int | None) -> None:
    if action is None:
        return
    with pytest.raises(ValueError, match=str(action)):
        sim.step(action)
    with pytest.raises(ValueError, match=str(action)):
        engine.step([action])


def assert_same_state(engine: Engine, sim: ReferenceSimulator, candidates: bool = True) -> None:
    """What is seen after an answer; `candidates`: also who is offered and where it fits."""
    assert bool(engine.done[0]) == sim.done
    assert_close(engine.clock[0], sim.clock, "clock", 1e-12)
    assert_close(engine.reward[0], sim.reward, "reward")
    assert_close(engine.elapsed[0], sim.elapsed, "elapsed")
    if candidates:
        assert list(map(tuple, engine.offers(0))) == sim.offers()
        assert engine.fit[0].tolist() == sim.fit().tolist()
    np.testing.assert_allclose(engine.snapshot().available_at_s, sim.available(), err_msg="available", **EXACT)
    np.testing.assert_allclose(engine.observation[0], sim.observation(), err_msg="observation", **FLOAT32)


def assert_same_snapshot(engine: Engine, sim: ReferenceSimulator) -> None:
    """What a scheduler is shown between two answers is what there is."""
    now = engine.snapshot()
    assert_close(now.clock_s, sim.clock, "clock", 1e-12)
    assert now.num_arrived == sum(workflow.arrived for workflow in sim.workflows)
    assert now.max_concurrent.tolist() == [len(server.places) for server in sim.servers]
    assert now.num_running.tolist() == [server.in_use for server in sim.servers]
    assert now.status.tolist() == [_status(server) for server in sim.servers]
    assert now.idle.tolist() == [server.idle for server in sim.servers]
    columns = ("workflow", "task", "server", "expected_end_s")
    running = sorted((a.server.index, a.task.workflow.index, a.task.index, a.expected_s) for a in sim.running)
    expected = np.array([(w, k, j, end) for j, w, k, end in running]).reshape(-1, len(columns))
    for name, column in zip(columns, expected.T, strict=True):
        np.testing.assert_allclose(now.running[name], column, err_msg=f"running {name}", **EXACT)
    servers = {
        "capacity_gflops": [server.compute_gflops for server in sim.servers],
        "memory_gb": [server.memory_gb for server in sim.servers],
        "free_memory_gb": [server.free_gb if server.there else 0 for server in sim.servers],
        "expected_end_s": [server.expected_end_s for server in sim.servers],
        "available_at_s": [server.available_s(sim.clock) for server in sim.servers],
        "free_at_s": [server.free_s(sim.clock) if server.takes_tasks else np.inf for server in sim.servers],
    }
    for name, expected in servers.items():
        np.testing.assert_allclose(getattr(now, name), expected, err_msg=name, **EXACT)
    waiting, whole = sim.waiting(), sim.config.information.workflows == "whole"
    assert now.ready[["workflow", "task"]].tolist() == [(t.workflow.index, t.index) for t in waiting]
    for name, column in {
        "compute_gflop": [t.compute_gflop * t.factor for t in waiting],
        "memory_gb": [t.memory_gb for t in waiting],
        "output_gb": [t.output_gb for t in waiting],
        "arrival_s": [t.workflow.arrival_s for t in waiting],
        "ready_s": [t.ready_s for t in waiting],
        "hop": [t.hop for t in waiting] if whole else now.ready["hop"],
    }.items():
        np.testing.assert_allclose(now.ready[name], column, err_msg=name, **EXACT)
    assert now.ready[["workflow", "task"]][now.candidates].tolist() == engine.offers(0)
    for task, transfers in zip(waiting[:5], now.transfer_s, strict=False):
        expected = [sim.transfer_s(task, server) if server.places else 0 for server in sim.servers]
        np.testing.assert_allclose(transfers, expected, **EXACT)
    live = [w for w in sim.workflows if w.arrived and w.num_completed < len(w.tasks)]
    assert list(now.workflows) == [workflow.index for workflow in live]
    for workflow in live:
        _assert_same_workflow(now.workflow(workflow.index), workflow, whole, sim)


def _status(server: Server) -> int:
    if not server.there:
        return AWAY
    return DRAINING if server.draining else UP


def _assert_same_workflow(live: LiveWorkflow, workflow: Workflow, whole: bool, sim: ReferenceSimulator) -> None:
    """A whole one, or of one that is revealed as it runs, those tasks whose predecessors have ended."""
    seen = [task for task in workflow.tasks if whole or task.revealed]
    assert live.arrival_s == workflow.arrival_s
    assert live.task.tolist() == [task.index for task in seen]
    assert live.completed.tolist() == [task.completed for task in seen]
    assert live.server.tolist() == [t.server.index if t.server and (t.completed or t.runs) else -1 for t in seen]
    for name in ("memory_gb", "output_gb", "delay_s"):
        assert getattr(live, name).tolist() == [getattr(task, name) for task in seen]
    np.testing.assert_allclose(live.compute_gflop, [task.compute_gflop * task.factor for task in seen], **EXACT)
    of_seen = sorted((t.index, s.index) for t in seen for s in t.successors if s in seen)
    assert sorted((live.task[p], live.task[s]) for p, s in live.edges.tolist()) == of_seen
    named = {task.index: task for task in workflow.tasks}
    pairs = [(named[live.task[p]], named[live.task[s]]) for p, s in live.edges.tolist()]
    moved = [sim.moved_s(s, p) if s.has_work and p in sim.sources_of(s) else 0.0 for p, s in pairs]
    np.testing.assert_allclose(live.transfer_s, moved, err_msg="transfer_s of edges", **EXACT)
    if whole:
        assert live.hop.tolist() == [task.hop for task in seen]


def assert_close(value: float, expected: float, name: str, tolerance: float = 1e-9) -> None:
    assert abs(value - expected) <= tolerance * max(1.0, abs(expected)), (name, value, expected)


def assert_same_totals(engine: Engine, sim: ReferenceSimulator) -> None:
    """Metrics and schedule."""
    metrics, expected = engine.metrics(0), sim.metrics()
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, err_msg=name, **EXACT)
    schedule, rows = engine.schedule(0), sim.schedule()
    assert len(schedule) == len(rows)
    for k, name in enumerate((*COLUMNS, *ATTEMPT_COLUMNS)):
        column, wanted = schedule[name].tolist(), [row[k] for row in rows]
        if name in ("tier", "outcome", "workflow", "task", "server"):
            assert column == wanted, name
        else:
            np.testing.assert_allclose(column, wanted, err_msg=name, **EXACT)
