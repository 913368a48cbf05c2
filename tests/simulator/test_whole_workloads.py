"""Workloads that are drawn as a whole, of a trace or a fitted table: played as given ones, each row its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference.comparison import begin, dispatch_both, play_both, reference
from rllib_scale.config import EnvConfig, scenario
from rllib_scale.config.yaml_files import build_model
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


@pytest.mark.parametrize("mode", MODES, ids=["step", "reserve", "open"])
@pytest.mark.parametrize("name", NAMES)
def test_an_episode_is_played_as_by_the_reference(name: str, file: str, mode: dict[str, Any]) -> None:
    config = small(name, file, **mode)
    engine = Engine(config)
    for episode in range(2):  # no workload is given to the engine; the reference plays the one of (seed, episode)
        engine.reset([7], [episode])
        sim = reference(config, 7, episode, generate(config, 7, episode))
        assert play_both(engine, sim, np.random.default_rng(episode), 150) > 50
    dispatched = config.with_mask("none")
    dispatch_both(*begin(dispatched, 5, 2, generate(dispatched, 5, 2)), np.random.default_rng(0), 60)


def test_a_file_is_read_once_however_many_episodes(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "once.json"
    made_trace(5, seed=8).save(path)
    engine, loads = Engine(small("trace", str(path)), 4), []
    load = Workload.load
    monkeypatch.setattr(Workload, "load", lambda *arguments: loads.append(arguments) or load(*arguments))
    for episode in range(5):
        engine.reset([0, 1, 2, 3], [episode] * 4)
    assert len(loads) == 1
