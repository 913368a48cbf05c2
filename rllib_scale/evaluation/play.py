"""Evaluation: a scheduler on fixed episodes, all of them side by side in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rllib_scale.bounds.lower_bounds import lower_bounds
from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.workflows import workflow_metrics
from rllib_scale.observation.policy import Policy
from rllib_scale.simulator.engine import Engine, make_engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

Watch = Callable[[Engine], None]
"""Is shown the engine before each decision."""


def play(
    scheduler: Policy,
    env: EnvConfig,
    seed: int,
    episodes: list[int],
    workload: Workload | None = None,
    watch: Watch | None = None,
) -> Engine:
    """Run the episodes (seed, episode) to their end, or a given workload once an episode, and return the engine.

    A scheduler is shown the feature set and the normalisers that it was made for, whatever those of the problem are,
    and a policy that was trained in reserving rounds decides in them.
    All episodes stay in the batch until the last one has ended, so that what a row computes does not depend on how long
    its neighbours last.
    """
    env = scheduler.problem(env)
    engine: Engine = make_engine(env, len(episodes))
    engine.reset([seed] * len(episodes), episodes, workload=workload)
    scheduler.reset([(seed, episode) for episode in episodes])
    while not engine.done.all():
        if watch is not None:
            watch(engine)
        scheduler.advance(engine)
    return engine


def played_to_its_end(env: EnvConfig, workload: Workload) -> EnvConfig:
    """The problem with room for all of a given workload.

    The horizon is so late that all tasks one after the other on the slowest server, their input moved, would be done
    twice over: a scheduler that is not done by then keeps naming servers that are too small.
    """
    if workload.num_tasks == 0:
        return env
    slowest = min(tier.compute_gflops / (1 + tier.slowdown * (tier.max_concurrent - 1)) for tier in env.cluster.tiers)
    moved_gb = workload.moved_gb if workload.moves_parts else workload.output_gb
    moved = float(moved_gb.sum()) / env.cluster.bandwidth_gb_s
    moved += env.cluster.latency_s * (workload.num_tasks + len(workload.edges))
    compute = float(workload.compute_gflop.sum())
    if env.information.straggles:
        compute *= env.information.straggler_factor
    alone = compute / slowest + float(workload.delay_s.sum()) + moved * len(env.cluster.tiers)
    end = 2 * (float(workload.arrival_s[-1]) + alone) + 60.0
    episode = env.episode.model_copy(update={"horizon_s": end, "arrivals_until_s": None, "max_decisions": None})
    return env.model_copy(update={"episode": episode})


def check_unseen(schedulers: Iterable[Policy], env: EnvConfig) -> None:
    """Refuse to compare schedulers on sessions that one of them was trained on.

    Raises:
        UserError: see `EnvConfig.check_unseen`.
    """
    for scheduler in schedulers:
        if scheduler.trial is not None:
            env.check_unseen(scheduler.name, scheduler.trial.env)


def evaluate(
    scheduler: Policy,
    env: EnvConfig,
    seed: int,
    episodes: int,
    watch: Watch | None = None,
    given: Workload | None = None,
) -> list[dict[str, Any]]:
    """Metrics and lower bounds of each of the episodes 0 .. episodes - 1, with their `episode` number.

    With a `given` workload it is played in each of them.

    Raises:
        UserError: the problem replays sessions of a trace that the policy was trained on.
    """
    check_unseen([scheduler], env)
    engine = play(scheduler, env, seed, list(range(episodes)), given, watch)
    rows = []
    for b in range(episodes):
        if env.on_replicas:
            rows.append({"episode": b, **engine.metrics(b)})
            continue
        workload = given or generate(env, seed, b)
        of_workflows = workflow_metrics(env, workload, engine.schedule(b), float(engine.clock[b]))
        rows.append({"episode": b, **engine.metrics(b), **of_workflows, **lower_bounds(env, workload)})
    return rows
