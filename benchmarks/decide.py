"""Latency of one decision and of one visit, and how it and the simulator's step grow with the number of servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Measure
from rllib_scale.config import TrialConfig, scenario
from rllib_scale.networks.build import build_network
from rllib_scale.policies.make import make_policy
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.simulator.engine import Engine

P50_BARS = {16: (150.0, 50.0), 1024: (500.0, 150.0), 16384: (5000.0, 1500.0)}
"""N: (bar, aim) in microseconds."""
FIT_FROM = 256
ROUNDS = (
    *(("zoo:context-price", 16, 64, 20.0, None), ("zoo:context-price", 1024, 4, 100.0, None)),
    *(("adaptive-price", 16, 64, 30.0, 15.0), ("adaptive-price", 1024, 4, 150.0, 75.0)),
)
"""Policy, N, episodes side by side, and bar and aim of a visit in microseconds."""


def run(rounds: int, servers: Sequence[int] = (16, 256, 1024, 4096, 16384), calls: int = 200) -> list[Measure]:
    """Medians over the rounds of the p50 and p99 of `calls` calls each; in a round every N has its turn."""
    trial = TrialConfig.of()
    policy = TrainedPolicy(build_network(trial), trial, epochs=0)
    engines = {n: Engine(trial.env.at_scale(n)) for n in servers}
    seen = {n: _after(engine, steps=50) for n, engine in engines.items()}
    deciding: dict[int, list[np.ndarray]] = {n: [] for n in servers}
    stepping: dict[int, list[np.ndarray]] = {n: [] for n in servers}
    for _ in range(rounds + 1):
        for n in servers:
            deciding[n].append(_latencies(lambda n=n: policy(*seen[n]), calls))  # type: ignore[misc]
            stepping[n].append(_step_latencies(engines[n], calls))
    measures = []
    for n in servers:
        history = deciding[n][1:]
        bar, aim = P50_BARS.get(n, (None, None))
        raw = tuple({"p50_us": float(np.median(x)), "p99_us": float(np.percentile(x, 99))} for x in history)
        p50, p99 = (float(np.median([r[key] for r in raw])) for key in ("p50_us", "p99_us"))
        measures.append(Measure(f"decision, B=1, N={n}: p50", "µs", p50, None, bar, aim, True, raw))
        measures.append(Measure(f"decision, B=1, N={n}: p99", "µs", p99, at_most=True))
    for n in servers:
        means = [float(x.mean()) for x in stepping[n][1:]]
        title = f"simulator step + observation, B=1, N={n}: mean"
        measures.append(Measure(title, "µs", float(np.median(means)), at_most=True, rounds=tuple(means)))
    large = [n for n in servers if n >= FIT_FROM]
    if len(large) > 1:
        for title, history_of, statistic in (("decision", deciding, np.median), ("simulator step", stepping, np.mean)):
            slopes = [
                exponent(large, [float(statistic(history_of[n][r])) for n in large]) for r in range(1, rounds + 1)
            ]
            name = f"{title}: exponent of growth in N, {large[0]} to {large[-1]}"
            measures.append(Measure(name, "", float(np.median(slopes)), None, 1.05, 1.0, True, tuple(slopes)))
    for name, n, batch, bar, aim in ROUNDS:
        raw = tuple(_visit_us(name, n, batch) for _ in range(rounds + 1))[1:]
        title = f"{name}, {batch} episodes side by side, N={n}: a visit"
        measures.append(Measure(title, "µs", float(np.median(raw)), None, bar, aim, True, raw))
    return measures


def _visit_us(name: str, servers: int, batch: int) -> float:
    """Mean time of a price policy in steady-0.9 for each task that it visits, with all that it learns [µs]."""
    env = scenario("steady-0.9").at_scale(servers)
    scheduler: Any = make_policy(name, env)
    engine, seconds = Engine(env, batch), 0.0
    engine.reset([0] * batch, list(range(batch)))
    scheduler.reset([(0, episode) for episode in range(batch)])
    while not engine.done.all():
        start = time.perf_counter()
        view = engine.view()
        answers = scheduler.decide(view)
        starts = answers[answers[:, 3] >= 0]
        seconds += time.perf_counter() - start
        engine.dispatch(starts)
    return 1e6 * seconds / scheduler.visits.visited[0]


def exponent(servers: Sequence[int], costs: Sequence[float]) -> float:
    """Slope of log cost over log N, by least squares."""
    return float(np.polyfit(np.log(servers), np.log(costs), 1)[0])


def _after(engine: Engine, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Observation and fit after some random decisions of an episode's beginning."""
    rng = np.random.default_rng(0)
    engine.reset([0], [0])
    for _ in range(steps):
        engine.step(rng.integers(engine.num_rows, size=1))
    return engine.observation.copy(), engine.fit.copy()


def _latencies(call: Callable[[], object], calls: int) -> np.ndarray:
    """Wall time of each call in microseconds."""
    times = np.empty(calls)
    for i in range(calls):
        start = time.perf_counter()
        call()
        times[i] = time.perf_counter() - start
    return times * 1e6


def _step_latencies(engine: Engine, calls: int) -> np.ndarray:
    """Wall time of random decisions, resets left out, in microseconds."""
    actions = np.random.default_rng(1).integers(engine.num_rows, size=(calls, 1))
    times = np.empty(calls)
    for i, action in enumerate(actions):
        if engine.done[0]:
            engine.reset([0], [i])
        start = time.perf_counter()
        engine.step(action)
        times[i] = time.perf_counter() - start
    return times * 1e6
