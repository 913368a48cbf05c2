"""What the simulator's memory and work depend on: what is live, and not on what has been."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import EnvConfig, EpisodeConfig, WorkloadConfig
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.state import LOG

STEADY = EnvConfig(workload=WorkloadConfig(offered_load=0.7), episode=EpisodeConfig(horizon_s=1e9, mask="feasible"))


def play(engine: Engine, tasks: int) -> None:
    """Go on with an episode by a good rule until so many tasks have been started."""
    scheduler = make_scheduler("fastest-idle", STEADY.observation, "feasible")
    while len(engine.schedule()) < tasks:
        for _ in range(500):
            engine.step(scheduler(engine.observation, engine.fit))


@pytest.mark.slow
def test_an_episode_of_100_000_tasks_keeps_no_more_than_a_short_one() -> None:
    short, long = Engine(STEADY), Engine(STEADY)
    for engine, tasks in ((short, 2_000), (long, 100_000)):
        engine.reset([0], [0])
        play(engine, tasks)
    assert long.metrics()["completed"] > 99_000
    assert long.memory()[0] <= 4 * short.memory()[0], "buffers are sized by the workflows in the system"
    assert long.memory()[0] < 200_000


def test_the_log_doubles() -> None:
    engine = Engine(STEADY)
    engine.reset([0], [0])
    play(engine, 5_000)
    rows = engine.memory()[1] // LOG.itemsize
    started = len(engine.schedule())
    assert LOG.itemsize == 80
    assert started <= rows < 2 * started


@pytest.mark.parametrize("servers", [16, 128, 1024])
def test_memory_is_linear_in_the_servers(servers: int) -> None:
    """At the paper's load, where the workflows in the system are in proportion to the servers."""
    env = EnvConfig().at_scale(servers)
    engine = Engine(env)
    rng = np.random.default_rng(0)
    engine.reset([0], [0])
    while not engine.done[0]:
        engine.step(rng.integers(servers, size=1))
    state = engine.get_state()["state"]
    assert sum(array.nbytes for array in state.values()) < 20_000 * servers
