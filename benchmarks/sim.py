"""The simulator: random decisions and their observations, against the slow reference; long episodes."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Measure, Work, interleave, rate_measure, ratio_measure
from rllib_scale.config import EnvConfig, EpisodeConfig, WorkloadConfig, scenario
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from tests.reference.simulator import ReferenceSimulator


def run(
    rounds: int, servers: Sequence[int] = (16, 128, 1024), batches: Sequence[int] = (64, 4), steps: int = 200_000
) -> list[Measure]:
    """All measures of the simulator.

    Args:
        rounds: of each comparison.
        servers: N.
        batches: environments stepped by one call.
        steps: decisions of one run at N = 16; fewer at larger N, in proportion. Of the reference 1/500.
    """
    measures = []
    for n, batch in itertools.product(servers, batches):
        env = EnvConfig().at_scale(n)
        count = max(4 * batch, steps * 16 // n)
        works = {"ours": _ours(env, batch, count), "reference": _reference(env, max(20, count // 500))}
        history = interleave(works, rounds)
        at = f"N={n}, batch {batch}"
        is_bar = (n, batch) == (16, 64)
        bars = ((400_000.0, 1_000_000.0), (200.0, 500.0)) if is_bar else ((None, None), (None, None))
        measures.append(rate_measure(history, "ours", f"steps a core, {at}", "steps/s", *bars[0]))
        measures.append(ratio_measure(history, "ours", "reference", f"ours / slow reference, {at}", *bars[1]))
    return [*measures, *agents(rounds, steps), *long_episode(steps // 2)]


def agents(rounds: int, steps: int, batch: int = 64) -> list[Measure]:
    """Cost of servers of several tasks, release delays and transfers, on the same number of servers.

    In the paper's problem, and on the workload of coding agents.
    """
    coding, paper = scenario("coding-agents-0.7"), EnvConfig()
    works = {
        "paper, 16": _ours(paper, batch, steps),
        "paper and all three, 16": _ours(_with_places_delays_transfers(paper.at_scale(32)), batch, steps),
        "coding agents, 16": _ours(coding, batch, steps),
    }
    history = interleave(works, rounds)
    measures = [rate_measure(history, "coding agents, 16", f"steps a core, coding-agents, batch {batch}", "steps/s")]
    for what, bar in (("paper and all three", 0.6), ("coding agents", None)):
        name = f"{what} / paper, both N=16, batch {batch}"
        measures.append(ratio_measure(history, f"{what}, 16", "paper, 16", name, bar))
    return measures


def _with_places_delays_transfers(paper: EnvConfig) -> EnvConfig:
    """The paper's problem on half as many servers of two tasks each, with release delays; transfers take time."""
    tiers = [
        tier.model_copy(update={"count": tier.count // 2, "max_concurrent": 2, "memory_gb": 2 * tier.memory_gb})
        for tier in paper.cluster.tiers
    ]
    delays = {"mean": 1.0, "std": 0.3, "low": 0.1}
    return EnvConfig.model_validate(
        paper.model_dump(mode="json")
        | {
            "cluster": paper.cluster.model_dump(mode="json") | {"tiers": [tier.model_dump() for tier in tiers]},
            "workload": paper.workload.model_dump(mode="json") | {"delay_s": delays},
            "communication": "transfer",
        }
    )


def _ours(env: EnvConfig, batch: int, steps: int) -> Work:
    engine = Engine(env, batch)
    seeds, episodes = np.arange(batch), np.zeros(batch, dtype=np.int64)
    calls = -(-steps // batch)
    actions = np.random.default_rng(0).integers(env.cluster.num_rows, size=(calls, batch))
    engine.reset(seeds, episodes)

    def work() -> float:
        decisions = calls * batch
        for row in actions:
            ended = engine.done.copy()
            episodes[ended] += 1
            engine.step(row, begin=(ended, seeds, episodes))
            decisions -= int(ended.sum())
        return decisions

    return work


def _reference(env: EnvConfig, steps: int) -> Work:
    rng = np.random.default_rng(0)
    episodes = itertools.count()

    def begin() -> ReferenceSimulator:
        return ReferenceSimulator(env, generate(env, 0, next(episodes)), open_ended=True)

    simulator = begin()

    def work() -> float:
        nonlocal simulator
        for _ in range(steps):
            simulator.step(int(rng.integers(env.cluster.num_rows)))
            simulator.observation()
            if simulator.done:
                simulator = begin()
        return steps

    return work


def long_episode(tasks: int) -> list[Measure]:
    """One steady episode of about `tasks` tasks: its slowdown and its memory.

    Speed is measured in each tenth; memory is summed at the end.
    """
    env = EnvConfig(workload=WorkloadConfig(offered_load=0.7), episode=EpisodeConfig(mask="feasible"))
    per_s = env.arrival_rate * (env.workload.min_tasks + env.workload.max_tasks) / 2
    env = env.model_copy(update={"episode": env.episode.model_copy(update={"horizon_s": 1.2 * tasks / per_s})})
    engine = Engine(env)
    scheduler = make_scheduler("fastest-idle", env.observation, "feasible")
    engine.reset([0], [0])
    tenths: list[dict[str, Any]] = []
    decisions_each = max(1, tasks // 10)
    for _ in range(10):
        cpu = 0.0
        for _ in range(decisions_each):
            action = scheduler(engine.observation, engine.fit)
            before = time.process_time()
            engine.step(action)
            cpu += time.process_time() - before
        tenths.append({"units": decisions_each, "cpu_s": cpu})
    slowdown = tenths[-1]["cpu_s"] / tenths[0]["cpu_s"]
    live, log = engine.memory()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    name = f"episode of {int(engine.metrics()['completed'])} tasks"
    return [
        Measure(f"{name}: CPU of the last tenth / the first", "times", slowdown, rounds=tuple(tenths), at_most=True),
        Measure(f"{name}: the workload", "kB", live / 1000, at_most=True),
        Measure(f"{name}: log of started tasks", "kB", log / 1000, at_most=True),
        Measure(f"{name}: peak memory of this process", "MB", peak, at_most=True),
    ]
