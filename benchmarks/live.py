"""Live: dispatch against bare Ray calls, live against simulated, and Ray Serve's routers."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable

import numpy as np
import ray
from ray import serve
from rich.console import Console

from benchmarks import llm_replicas
from benchmarks.measure import Measure, Work, interleave, rate, ratio
from rllib_scale import live
from rllib_scale.clusters.session import ray_session
from rllib_scale.config import TierConfig, scenario
from rllib_scale.live.execute import execute
from rllib_scale.live.side_by_side import simulated
from rllib_scale.live.surrogates import Surrogates
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.generators import generate

ACTORS = 16
"""That sleep."""
DISPATCHED_TO = (4, 32)
"""Actors and places of each that empty tasks go to: few processes, so that the driver is what limits."""
RULE = "non-blocking"

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the servers cannot import it


def run(
    rounds: int,
    workflows: int = 500,
    turns: int = 40,
    tasks: int = 400,
    time_scale: float = 0.1,
    turn_scale: float = 0.03,
) -> list[Measure]:
    """All measures, on a local Ray.

    Args:
        rounds: rounds of dispatch, and seeds of the turns.
        workflows: approximate number of workflows that are played live and simulated.
        turns: turns of coding agents, for each seed and router.
        tasks: number of empty tasks that are dispatched.
        time_scale: time scale of the workflows.
        turn_scale: time scale of the turns.
    """
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    with ray_session(num_cpus=4):
        measures = [*dispatch(rounds, tasks), *live_and_simulated(workflows, time_scale, say)]
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        quiet = {"log_level": "ERROR", "enable_access_log": False}
        serve.start(proxy_location="Disabled", logging_config=quiet)
        try:
            measures += routed(rounds, turns, turn_scale, say)
        finally:
            serve.shutdown()
    return measures


# ---------------------------------------------------------------------- dispatch


def nothing() -> None:
    """A task."""


class Bare:
    """An actor without anything of ours."""

    def call(self) -> None:
        """See `nothing`."""


def dispatch(rounds: int, tasks: int) -> list[Measure]:
    """Empty tasks a second that one driver has run, on as many actors."""
    count, places = DISPATCHED_TO
    tiers = (TierConfig(name="actors", count=count, max_concurrent=places, compute_gflops=1.0, memory_gb=8.0),)
    actors = [ray.remote(Bare).options(num_cpus=0, max_concurrency=places).remote() for _ in range(count)]
    with live.Cluster(RULE, tiers=tiers) as cluster:
        make = cluster.task(nothing)

        def ours() -> float:
            cluster.gather(*(make() for _ in range(tasks)))
            return tasks

        def bare() -> float:
            ray.get([actor.call.remote() for _, actor in zip(range(tasks), itertools.cycle(actors), strict=False)])
            return tasks

        works: dict[str, Work] = {"ours": ours, "bare": bare}
        history = interleave(works, rounds)
    for actor in actors:
        ray.kill(actor)
    title = f"{tasks} empty tasks on {count} actors"
    return [
        Measure(f"{title}, live.Cluster", "tasks/s", rate(history, "ours", "wall_s")),
        Measure(f"{title}, bare calls", "tasks/s", rate(history, "bare", "wall_s")),
        Measure(
            f"{title}, ours / bare",
            "times",
            ratio(history, "ours", "bare", "wall_s"),
            None,
            0.5,
            0.8,
            rounds=tuple(history),
        ),
    ]


# ---------------------------------------------------------------------- live and simulated


def live_and_simulated(workflows: int, time_scale: float, say: Callable[[str], None]) -> list[Measure]:
    """The mean response of both, and the overhead of a decision."""
    env = scenario("steady-0.7").at_scale(ACTORS)
    until = workflows / env.arrival_rate
    episode = env.episode.model_copy(update={"arrivals_until_s": until, "horizon_s": 2 * until + 100.0})
    env = env.model_copy(update={"episode": episode})
    workload = generate(env, 0, 0)
    player = make_scheduler("fastest-idle", env.observation, env.episode.mask)
    lived = execute(player, env, workload, Surrogates(time_scale), say=say)
    ours = lived.metrics["response_mean_s"]
    theirs = simulated(player, env, workload).metrics()["response_mean_s"]
    p50, p99 = np.quantile(lived.overheads_s * 1e3, (0.5, 0.99))
    raw = ({"live_s": ours, "simulated_s": theirs, "workflows": workload.num_workflows},)
    title = f"{workload.num_workflows} workflows on {ACTORS} sleeping actors, 1 s in {time_scale:g} s"
    return [
        Measure(
            f"{title}: mean response, live against simulated",
            "%",
            100 * abs(ours / theirs - 1),
            None,
            5.0,
            2.0,
            True,
            raw,
        ),
        Measure("the same: decision and dispatch beyond the sleep, p50", "ms", float(p50), None, 10.0, 5.0, True),
        Measure("the same: decision and dispatch beyond the sleep, p99", "ms", float(p99), None, 50.0, 20.0, True),
    ]


# ---------------------------------------------------------------------- routers


def routed(seeds: int, turns: int, time_scale: float, say: Callable[[str], None]) -> list[Measure]:
    """A turn of coding agents behind each router, tools left out, and PolicyRouter against the others."""
    found = llm_replicas.compare(seeds, turns, time_scale, say)
    (ours, *others), measures = found, []
    where = f"{turns} turns of coding-agents through Ray Serve"
    for key, what in (("mean_s", "mean"), ("p95_s", "p95")):
        means = {name: float(np.mean([r[key] for r in rounds])) for name, rounds in found.items()}
        for name, value in means.items():
            measures.append(Measure(f"{where}, {name}: {what}", "s", value, at_most=True, rounds=tuple(found[name])))
        for name in others:
            title = f"{where}, {ours} ({llm_replicas.RULE}) / {name}: {what}"
            measures.append(Measure(title, "times", means[ours] / means[name], None, 1.0, 0.9, True))
    return measures
