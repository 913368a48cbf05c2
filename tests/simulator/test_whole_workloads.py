"""Workloads that are drawn as a whole, of a trace or a fitted table: played as given ones, each row its own."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference.comparison import begin, dispatch_both, play_both, reference
from rllib_scale.config import EnvConfig, scenario
from rllib_scale.config.yaml_files import build_model
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from workloads.made_trace import made_trace

MODES: list[dict[str, Any]] = [
    {},
    {"decision": {"on_busy": "reserve"}, "communication": {"mode": "transfer", "predecessors": "all"}},
    {"decision": {"order": "open", "candidates": 3}, "information": {"workflows": "revealed", "estimate_error": 0.3}},
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    made_trace(30).save(path)
    return str(path)


def small(name: str, file: str, **changes: Any) -> EnvConfig:
    """A short problem on four servers: coding agents of the fitted table, or a made trace."""
    if name == "agents":
        data = scenario("coding-agents-0.9").at_scale(4).model_dump()
        data["episode"] |= {"arrivals_until_s": 120.0, "horizon_s": 600.0}
        return build_model(EnvConfig, data | changes, "test")
    data = {
        "cluster": {"servers": 4},
        "workload": {"trace": {"file": file, "sample": "session"}, "offered_load": 6.0},
        "episode": {"arrivals_until_s": 40.0, "horizon_s": 400.0, "mask": "feasible"},
    }
    return build_model(EnvConfig, data | changes, "test")


NAMES = ["agents", "trace"]


# ---------------------------------------------------------------------- against the reference


@pytest.mark.parametrize("mode", MODES, ids=["step", "reserve", "open"])
@pytest.mark.parametrize("name", NAMES)
def test_an_episode_is_played_as_by_the_reference(name: str, file: str, mode: dict[str, Any]) -> None:
    config = small(name, file, **mode)
    played = sum(
        play_both(*begin(config, seed, 1, generate(config, seed, 1)), np.random.default_rng(seed), 150)
        for seed in (2, 3)
    )
    assert played > 150


@pytest.mark.parametrize("name", NAMES)
def test_what_the_engine_draws_itself_is_that_workload(name: str, file: str) -> None:
    """No workload is given to the engine; the reference plays the one of (seed, episode)."""
    config = small(name, file)
    engine = Engine(config)
    for episode in range(3):
        engine.reset([7], [episode])
        play_both(engine, reference(config, 7, episode, generate(config, 7, episode)), np.random.default_rng(1), 100)


def test_dispatches_are_played_as_by_the_reference(file: str) -> None:
    config = small("trace", file).with_mask("none")
    dispatch_both(*begin(config, 5, 2, generate(config, 5, 2)), np.random.default_rng(0), 60)


# ---------------------------------------------------------------------- rows of a batch


def finish(engine: Engine, b: int, choose: np.random.Generator) -> list[tuple[Any, ...]]:
    """Play environment b alone to its end by random open rows; the others stand still."""
    active = np.arange(engine.num_envs) == b
    while not engine.done[b]:
        actions = np.zeros(engine.num_envs, dtype=np.int64)
        actions[b] = choose.choice(np.flatnonzero(engine.mask[b, : engine.num_slots]))
        engine.step(actions, active)
    return [tuple(row) for row in engine.schedule(b).tolist()]


@pytest.mark.parametrize("name", NAMES)
def test_every_row_plays_its_own_workload_as_if_it_were_alone(name: str, file: str) -> None:
    config, alone = small(name, file), Engine(small(name, file))
    batch = Engine(config, 3)
    batch.reset([1, 2, 3], [0, 0, 5])
    # The middle one begins another episode, in need of more room, while the others are in the middle of theirs.
    batch.step([0, 0, 0], begin=(np.array([False, True, False]), np.array([0, 9, 0]), np.array([0, 4, 0])))
    batch.reset([0, 0, 3], [0, 0, 6], which=np.array([False, False, True]))
    for b, pair in ((2, (3, 6)), (1, (9, 4))):
        alone.reset([pair[0]], [pair[1]])
        expected = finish(alone, 0, np.random.default_rng(b))
        found = finish(batch, b, np.random.default_rng(b))
        assert repr(found) == repr(expected)
        arrived = generate(config, *pair)
        assert batch.metrics(b)["workflows_arrived"] <= arrived.num_workflows
        assert {row[4] for row in found} <= set(arrived.arrival_s.tolist())


def test_a_given_workload_goes_before_what_would_be_drawn(file: str) -> None:
    config = small("trace", file)
    given = generate(config, 77, 7).take(np.array([0, 1]), np.array([0.0, 1.0]))
    engine = Engine(config, 2)
    engine.reset([0, 0], [0, 1], workload=given)
    for b in range(2):
        finish(engine, b, np.random.default_rng(0))
        assert engine.metrics(b)["arrived"] == given.num_tasks
    assert engine.schedule(0)["arrival_s"].tolist() == engine.schedule(1)["arrival_s"].tolist()
    # One goes on to an episode of its own, while the other one is in the middle of the given workload.
    engine.reset([0, 0], [0, 0], workload=given)
    engine.step([0, 0], begin=(np.array([True, False]), np.array([4, 0]), np.array([2, 0])))
    alone = Engine(config)
    alone.reset([4], [2])
    assert repr(finish(engine, 0, np.random.default_rng(3))) == repr(finish(alone, 0, np.random.default_rng(3)))
    finish(engine, 1, np.random.default_rng(0))
    assert engine.metrics(1)["arrived"] == given.num_tasks


@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_from_its_state_and_from_a_pickle(name: str, file: str) -> None:
    config = small(name, file)
    engine, other = Engine(config, 2), Engine(config, 2)
    engine.reset([5, 6], [0, 1])
    choose = np.random.default_rng(0)
    for _ in range(20):
        engine.step([int(choose.choice(np.flatnonzero(row[: engine.num_slots]))) for row in engine.mask])
    state, copy = pickle.loads(pickle.dumps(engine.get_state())), pickle.loads(pickle.dumps(engine))
    expected = [repr(finish(engine, b, np.random.default_rng(b))) for b in range(2)]
    engine.reset([0, 0], [0, 0])  # what was taken must not change with it
    other.set_state(state)
    for again in (other, copy):
        assert [repr(finish(again, b, np.random.default_rng(b))) for b in range(2)] == expected


def test_given_release_delays_outlast_a_state(file: str) -> None:
    """Of a problem whose own workflows have none."""
    config = EnvConfig().at_scale(4).with_mask("feasible")
    task = {"compute_gflop": 1.0, "memory_gb": 1.0, "output_gb": 0.0, "delay_s": 2.0}
    workflow = {"arrival_s": 0.5, "tasks": [task, task], "edges": [[0, 1]]}
    given = Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": [workflow]}, "test")
    engine, other = Engine(config), Engine(config)
    engine.reset([0], [0], workload=given)
    other.set_state(engine.get_state())
    for each in (engine, other):
        rows = finish(each, 0, np.random.default_rng(0))
        assert [row[5] for row in rows] == [2.5, rows[0][7] + 2.0]


@pytest.mark.parametrize("name", NAMES)
def test_the_vector_environment_goes_on_with_the_next_episode(name: str, file: str) -> None:
    config = small(name, file)
    env = SchedulingVectorEnv(2, config)
    env.reset(seed=11)
    choose, ends = np.random.default_rng(0), [0, 0]
    while min(ends) < 2:
        masks = env._infos()["action_mask"]
        actions = [int(choose.choice(np.flatnonzero(row))) if row.any() else 0 for row in masks]
        _, _, terminated, truncated, infos = env.step(np.array(actions))
        for b in np.flatnonzero(terminated | truncated).tolist():
            arrived = generate(config, 11 + b, ends[b]).num_workflows
            assert infos["metrics"]["workflows_arrived"][b] == arrived
            ends[b] += 1


def test_a_file_is_read_once_however_many_episodes(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "once.json"
    made_trace(5, seed=8).save(path)
    engine, loads = Engine(small("trace", str(path)), 4), []
    load = Workload.load
    monkeypatch.setattr(Workload, "load", lambda *arguments: loads.append(arguments) or load(*arguments))
    for episode in range(5):
        engine.reset([0, 1, 2, 3], [episode] * 4)
    assert len(loads) == 1
