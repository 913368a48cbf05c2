"""Evaluation: a scheduler on fixed episodes, all of them side by side in one batch."""

from __future__ import annotations

from typing import Any

from rllib_scale.config import EnvConfig
from rllib_scale.schedulers.base import Scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.workflow import Workload


def play(
    scheduler: Scheduler, env: EnvConfig, seed: int, episodes: list[int], workload: Workload | None = None
) -> Engine:
    """Run the episodes (seed, episode) to their end, or a given workload once an episode, and return the engine.

    All episodes stay in the batch until the last one has ended, so that what a row computes does not depend on how
    long its neighbours last.
    """
    engine = Engine(env, len(episodes))
    engine.reset([seed] * len(episodes), episodes, workload=workload)
    scheduler.reset([(seed, episode) for episode in episodes])
    while not engine.done.all():
        engine.step(scheduler(engine.observation))
    return engine


def evaluate(scheduler: Scheduler, env: EnvConfig, seed: int, episodes: int) -> list[dict[str, Any]]:
    """Metrics of each of the episodes 0 .. episodes - 1, with their `episode` number."""
    engine = play(scheduler, env, seed, list(range(episodes)))
    return [{"episode": b, **engine.metrics(b)} for b in range(episodes)]
