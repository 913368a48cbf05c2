"""What is seen of a moment: snapshots agree with the schedule, the writers with a plain definition of each set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.mode_cases import random_mode_config, random_mode_workload
from rllib_scale.config import EnvConfig
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.observation.observe import fit_of, observe
from rllib_scale.observation.snapshot import AWAY, BUSY, DRAINING, IDLE, LiveWorkflow
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload

examples = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**31)
MOST = 120  # answers of an episode


def problem(seed: int, features: str) -> tuple[EnvConfig, Workload]:
    """A random problem in a random mode that shows a feature set, and a workload for it."""
    rng = np.random.default_rng(seed)
    grid = seed % 2 == 0
    config = random_mode_config(rng, grid)
    observation = config.observation.model_copy(update={"feature_set": features})
    config = EnvConfig.model_validate(config.model_copy(update={"observation": observation}).model_dump())
    return config, Workload.from_dict(random_mode_workload(rng, config, grid), "random")


def choose(rng: np.random.Generator, engine: Engine) -> int:
    """Any answer that is possible, one that starts a task more often than not."""
    opened = np.flatnonzero(engine.fit[0].ravel() == 2)
    if len(opened) and rng.random() < 0.6:
        return int(rng.choice(opened))
    actions = np.arange(engine.mask.shape[1])
    possible = [a for a in actions if engine.answerable(np.array([a]))[0]]
    return int(rng.choice(possible))


def moments(config: EnvConfig, workload: Workload, seed: int) -> Any:
    """The engine at every moment of an episode of random answers, the last one included."""
    engine, rng = Engine(config), np.random.default_rng(seed)
    engine.reset([seed], [0], workload=workload)
    for _ in range(MOST):
        yield engine
        if engine.done[0]:
            return
        engine.step([choose(rng, engine)])
    yield engine


def columns(config: EnvConfig, name: str) -> np.ndarray:
    """(N,) a setting of the tier of each row, 0 for an empty one; powers are shared among slots."""
    shared = name.endswith("power_w")
    values = [
        getattr(t, name) / (t.slots if shared else 1) for t in config.cluster.tiers for _ in range(t.count * t.slots)
    ]
    return np.array(values + [0.0] * config.cluster.empty_slots)


def longest_path(workflow: LiveWorkflow, task: int) -> int:
    following = workflow.edges[workflow.edges[:, 0] == task, 1]
    return max((1 + longest_path(workflow, int(s)) for s in following), default=0)


@pytest.mark.parametrize("features", FEATURE_SETS)
@examples
@given(seed=seeds)
def test_what_is_written_is_what_the_definitions_say(features: str, seed: int) -> None:
    config, workload = problem(seed, features)
    for engine in moments(config, workload, seed):
        now = engine.snapshot()
        np.testing.assert_array_equal(engine.observation[0], observe(now, config))
        np.testing.assert_array_equal(engine.fit[0], fit_of(now, config))


# ---------------------------------------------------------------------- snapshots


@examples
@given(seed=seeds)
def test_a_snapshot_agrees_with_the_schedule_so_far(seed: int) -> None:
    config, workload = problem(seed, "paper")
    hosts = [h for h, t in enumerate(t for t in config.cluster.tiers for _ in range(t.count)) for _ in range(t.slots)]
    for engine in moments(config, workload, seed):
        now, schedule = engine.snapshot(), engine.schedule()
        running = schedule[schedule["outcome"] == "running"]
        assert now.clock_s == engine.clock[0]
        assert now.num_arrived == (workload.arrival_s <= now.clock_s).sum()
        assert now.host.tolist() == hosts + [-1] * config.cluster.empty_slots
        np.testing.assert_array_equal(now.capacity_gflops, columns(config, "compute_gflops"))
        np.testing.assert_array_equal(now.memory_gb, columns(config, "memory_gb"))
        expected = np.full((len(now.host), 2), -1)
        used = np.zeros(len(now.host))
        for row in running:
            expected[row["server"]] = row["workflow"], row["task"]
            memory = workload.memory_gb[workload.task_offsets[row["workflow"]] + row["task"]]
            used += memory * (now.host == now.host[row["server"]])
        np.testing.assert_array_equal(now.running, expected)
        runs, there = expected[:, 0] >= 0, now.status != AWAY
        np.testing.assert_allclose(now.free_memory_gb, np.where(there, now.memory_gb - used, 0), atol=1e-9)
        assert (now.status[now.host < 0] == AWAY).all()
        assert set(now.status[runs]) <= {BUSY, DRAINING}
        assert not runs[(now.status == IDLE) | (now.status == AWAY)].any()
        if config.cluster.changes.none:
            np.testing.assert_array_equal(now.status, np.where(now.host < 0, AWAY, np.where(runs, BUSY, IDLE)))
        np.testing.assert_array_equal(np.isfinite(now.expected_end_s), runs)
        takes = now.status <= BUSY
        assert (now.available_at_s[~takes] == np.inf).all()
        assert (now.available_at_s >= now.free_at_s).all()
        if config.decision.on_busy == "step":
            np.testing.assert_array_equal(now.available_at_s, now.free_at_s)
        np.testing.assert_array_equal(now.idle, now.status == IDLE)


@examples
@given(seed=seeds)
def test_tasks_of_a_snapshot_are_those_of_the_schedule_so_far(seed: int) -> None:
    config, workload = problem(seed, "paper")
    revealed = config.information.workflows == "revealed"
    for engine in moments(config, workload, seed):
        now, schedule = engine.snapshot(), engine.schedule()
        offered = now.ready[now.candidates]
        assert list(zip(offered["workflow"].tolist(), offered["task"].tolist(), strict=True)) == engine.offers()
        ended = schedule[schedule["outcome"] == "finished"]
        done = {(int(r["workflow"]), int(r["task"])): int(r["server"]) for r in ended}
        live = {(w, i) for w in now.workflows for i in now.workflow(w).task.tolist()}
        assert {(int(t["workflow"]), int(t["task"])) for t in now.ready} <= live - set(done)
        for number in range(now.num_arrived):
            first, last = workload.task_offsets[number : number + 2]
            tasks = range(last - first)
            if all((number, i) in done for i in tasks):
                with pytest.raises(KeyError):
                    now.workflow(number)
                continue
            w = now.workflow(number)
            edges = workload.edges[workload.edge_offsets[number] : workload.edge_offsets[number + 1]].tolist()
            before = {i: [p for p, s in edges if s == i] for i in tasks}
            seen = [i for i in tasks if not revealed or all((number, p) in done for p in before[i])]
            assert w.task.tolist() == seen
            assert w.arrival_s == workload.arrival_s[number]
            np.testing.assert_array_equal(w.memory_gb, workload.memory_gb[first:last][seen])
            np.testing.assert_array_equal(w.output_gb, workload.output_gb[first:last][seen])
            np.testing.assert_array_equal(w.delay_s, workload.delay_s[first:last][seen])
            if config.information.estimate_error == 0:
                np.testing.assert_allclose(w.compute_gflop, workload.compute_gflop[first:last][seen], rtol=1e-14)
            assert w.completed.tolist() == [(number, i) in done for i in seen]
            for i, row in zip(seen, w.host.tolist(), strict=True):
                if (number, i) in done:
                    assert row == done[number, i]
            of_seen = {(w.task[p], w.task[s]) for p, s in w.edges.tolist()}
            between = {(p, s) for p, s in edges if p in seen and s in seen}
            # Only what is seen: in part, that a task had predecessors is known of those that have ended.
            assert of_seen == between
            if not revealed:
                assert w.hop.tolist() == [longest_path(w, i) for i in range(len(seen))]
        with pytest.raises(KeyError):
            now.workflow(now.num_arrived)
