"""Real vLLM engines behind our router, against earlier predictions of the simulator.

A replica is fitted to single requests that one engine had at a time: a synchronous load, measured until two passes
agree, and a saturated one; a load at random times is held out. Fits and predictions are written to a file, then the
runs begin, in random order. Each is an episode of sessions whose calls the router of Ray Serve's handles
(`HoldingRouter`) places. A run is repeated if other processes took too much CPU time.
"""

from __future__ import annotations

import asyncio
import json
import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from benchmarks import real_sessions, real_simulated
from benchmarks.measure import Measure
from benchmarks.real_compared import measures, table
from benchmarks.real_engines import (
    KV_TOKENS,
    MAX_CALLS,
    PACKAGE,
    TOKEN_BUDGET,
    Engine,
    Others,
    cache_folder,
    engines,
    environment,
    in_front,
)
from benchmarks.real_sessions import ACTIVE_FOR_S, Episode
from rllib_scale.config.replicas import Replica
from rllib_scale.errors import UserError
from rllib_scale.evaluation.fit_replica import FITTED as COEFFICIENTS
from rllib_scale.evaluation.fit_replica import Fit, fit_replica
from rllib_scale.evaluation.measured import read_log
from rllib_scale.files import write_json
from rllib_scale.live.holding import HoldingRouter
from rllib_scale.live.requests import RouterSettings

TITLE = "real engines against the frozen prediction"
POLICIES = (
    "least-outstanding",
    "session-affinity",
    *(f"session-affinity:gate={gate}" for gate in ("1", "0.85", "0.7")),
)
PAIR = (POLICIES[2], "zoo:release")
"""The best constant gate past the cliff, by all 60 runs of the study, and a learned release."""
MAX_NOISE, MAX_ERROR = 0.10, 0.10
"""Largest errors of a log: the same requests measured twice, and latency of the held-out load; else it is refused."""
MAX_FOREIGN = 0.15
"""Cores that other processes may use in a run before it is repeated."""
POISSON_LOAD = 0.5
"""Share of the requests per second of the saturated load."""
FITTED = ("synchronous", "synchronous again", "saturated")
WARM_UP, PASSES = 20, 6
"""Requests before those that are measured, and most passes over the synchronous load: an engine is slower at first."""
SETTLE_S = 1.0
"""After a run, until what was cut off has left the engines."""


class Size(NamedTuple):
    """Extent of the measurement.

    Attributes:
        engines: most engines; each needs its own core, and the client another one.
        requests: requests of each load that is fitted.
        lasts_s: duration of a run.
        loads: contexts of live sessions over the memory.
        again: load at which each policy runs again, with the same sessions and with others; None: at no load.
        repeats: most runs in all that are repeated as other processes took too much CPU time.
        limit_s: no run begins that would end later.
        bar_s: bar and aim for the whole duration.
        seeds: of the sessions at each load.
    """

    engines: int
    requests: int
    lasts_s: float
    loads: tuple[float, ...]
    again: float | None
    repeats: int
    limit_s: float
    bar_s: tuple[float, float]
    seeds: tuple[int, ...] = (1,)


FULL = Size(2, 60, 36.0, (0.8, 1.0, 1.4, 2.0), 1.4, 8, 2220.0, (2400.0, 1500.0))
SMALL = Size(1, 40, 15.0, (0.8, 1.4), None, 2, 480.0, (600.0, 420.0))
PAIRED = Size(1, 60, 45.0, (1.4, 2.0), None, 4, 2220.0, (2400.0, 1500.0), (11, 12, 13, 14, 15, 16))


class RefusedError(UserError):
    """The engines' log cannot be fitted well enough to predict anything."""


class Cell(NamedTuple):
    """A run that is predicted, and how often it is measured."""

    load: float
    policy: str
    seed: int
    runs: int

    def of(self, count: int) -> Episode:
        """Its sessions in front of a number of engines."""
        live = round(self.load * count * KV_TOKENS / real_sessions.mean_context())
        return real_sessions.episode(live, self.seed)

    @property
    def facts(self) -> dict[str, Any]:
        """Its name."""
        return {"load": self.load, "policy": self.policy, "seed": self.seed}


def run(
    rounds: int = 1,
    small: bool = False,
    paired: bool = False,
    policies: Sequence[str] = (),
    cache: Path | None = None,
    folder: Path = Path("results/real-fleet"),
    size: Size | None = None,
) -> list[Measure]:
    """Run the benchmark; writes its logs, the frozen predictions and a row for each run into a folder.

    Args:
        rounds: not used: the runs are those of the size.
        small: one engine, two policies and two loads in place of all.
        paired: one engine, PAIR at two loads past the cliff, each with the same sessions of six seeds.
        policies: rules and policies for replicas; gates are compared with the first one without a gate, pairs with
            the first one.
        cache: folder of the virtual environment of the engines, created if needed.
        folder: folder of all output.
        size: replaces the size that `small` chooses.

    Raises:
        UnavailableError: engines cannot run here.
        RefusedError: their log is too noisy, or the fit misses the load that was held out.
    """
    console, began = Console(soft_wrap=True), time.monotonic()
    size = size or (SMALL if small else PAIRED if paired else FULL)
    chosen = tuple(policies) or (POLICIES[1::3] if small else PAIR if paired else POLICIES)
    folder.mkdir(parents=True, exist_ok=True)

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - began:6.0f} s  {line}", markup=False, highlight=False)

    python = environment(cache or cache_folder(), say)
    with _stopped_as_by_ctrl_c(), in_front(), engines(python, folder, size.engines) as fleet:
        cores = ", ".join(str(engine.core) for engine in fleet)
        say(f"{PACKAGE} on core {cores}: {len(fleet)} of {KV_TOKENS:,} tokens")
        fits = [fitted(engine, number, size.requests, folder, say) for number, engine in enumerate(fleet)]
        replicas = [fit.replica for fit in fits]
        cells = _cells(size, chosen)
        predicted = _predicted(cells, replicas, size.lasts_s)
        frozen = {"written": datetime.now(UTC).isoformat(), "engine": PACKAGE, "lasts_s": size.lasts_s}
        frozen |= {"replicas": [replica.model_dump() for replica in replicas]}
        frozen |= {"errors": [fit.errors() for fit in fits], "predictions": predicted.to_dict("records")}
        write_json(folder / "frozen.json", frozen)
        say(f"fits and {len(predicted)} predictions are frozen in {folder / 'frozen.json'}")
        rows = _measured(fleet, cells, replicas[0], size, began, folder, say)
    predicted = pd.DataFrame(json.loads((folder / "frozen.json").read_text(encoding="utf-8"))["predictions"])
    both = rows.merge(predicted, on=["load", "policy", "seed"], suffixes=("", "_model"), validate="many_to_one")
    both.to_csv(folder / "runs.csv", index=False, float_format="%.4f")
    Console(width=max(console.width, 150)).print(table(both))
    found = measures([fit.errors()[-1] for fit in fits], both, chosen[0])
    bar, aim = size.bar_s
    return [*found, Measure("the whole", "s", time.monotonic() - began, bar=bar, aim=aim, at_most=True)]


@contextmanager
def _stopped_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM for this process ends the engines, too."""
    try:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---------------------------------------------------------------------- the fit


def fitted(engine: Engine, number: int, requests: int, folder: Path, say: Any) -> Fit:
    """Fit a replica to single requests that an engine answers, while others are idle; writes its log.

    Raises:
        RefusedError: no two passes in a row over a load agree, or the load that was held out is missed.
    """
    first, again, saturated, held_out = real_sessions.loads(requests, number)

    def measured(load: real_sessions.Load) -> pd.DataFrame:
        others = Others([engine])
        part = asyncio.run(real_sessions.send(engine.url, load, number))
        engine.forget()
        took_s, foreign = part["latency_s"].mean(), others.cores()["foreign"]
        say(f"engine {number}, {load.name}: {len(part)} requests, mean {took_s:.2f} s, foreign {foreign:.2f} cores")
        return part

    asyncio.run(real_sessions.send(engine.url, real_sessions.loads(WARM_UP, number)[0], number))
    engine.forget()
    parts, noise = [measured(first)], math.inf
    for _ in range(PASSES - 1):
        parts = [parts[-1].assign(strategy=first.name), measured(again)]
        ratios = parts[0]["latency_s"].to_numpy() / parts[1]["latency_s"].to_numpy()
        noise = float(np.median(np.abs(np.log(ratios))))
        if noise <= MAX_NOISE:
            break
    else:
        raise RefusedError(f"engine {number}: the same requests took {noise:.0%} more or less in pass {PASSES}")
    parts.append(measured(saturated))
    took = float((parts[-1]["start_s"] + parts[-1]["latency_s"]).max()) / len(parts[-1])
    parts.append(measured(held_out._replace(at_s=held_out.at_s * took / POISSON_LOAD)))
    place = folder / f"engine-{number}.csv"
    pd.concat(parts).to_csv(place, index=False)
    limits = Replica(kv_tokens=KV_TOKENS, token_budget=TOKEN_BUDGET, max_calls=MAX_CALLS, call_s=0.0)
    fit = fit_replica(read_log([place]), limits, FITTED)
    errors = fit.errors()[-1]
    coefficients = ", ".join(f"{name} {value:.3g}" for name, value in fit.replica if name in COEFFICIENTS)
    say(
        f"engine {number}: {coefficients}; the same requests twice: {noise:.1%}; held out: latency "
        f"{errors['latency_median']:.1%}, first token {errors['ttft_median']:.1%}"
    )
    if errors["latency_median"] > MAX_ERROR:
        raise RefusedError(f"engine {number}: the fit misses the load held out by {errors['latency_median']:.0%}")
    return fit


# ---------------------------------------------------------------------- predictions and runs


def _cells(size: Size, policies: Sequence[str]) -> list[Cell]:
    cells = [
        Cell(load, policy, seed, 1 + (load == size.again))
        for load in size.loads
        for seed in size.seeds
        for policy in policies
    ]
    return cells + [Cell(size.again, policy, 2, 1) for policy in policies if size.again is not None]


def _predicted(cells: Sequence[Cell], replicas: Sequence[Replica], lasts_s: float) -> pd.DataFrame:
    rows = []
    for cell in cells:
        calls = real_simulated.play(replicas, cell.policy, cell.of(len(replicas)), lasts_s)
        rows.append(cell.facts | real_simulated.summary(calls, lasts_s))
    return pd.DataFrame(rows)


def _measured(
    fleet: Sequence[Engine], cells: Sequence[Cell], replica: Replica, size: Size, began: float, folder: Path, say: Any
) -> pd.DataFrame:
    """A row for each run; of runs that were repeated, the one in which others took the least."""
    every = [cell for cell in cells for _ in range(cell.runs)]
    order, left = np.random.default_rng(0).permutation(len(every)), size.repeats
    rows = list[dict[str, Any]]()
    for number, at in enumerate(order):
        cell, least = every[at], math.inf
        while time.monotonic() - began + size.lasts_s < size.limit_s:
            others = Others(fleet)
            calls = _run(fleet, cell, replica, size.lasts_s)
            cores = others.cores()
            taken = max(cores["foreign"], cores["steal"])
            row = cell.facts | real_simulated.summary(calls, size.lasts_s) | cores
            if taken < least:
                rows, least = (rows if math.isinf(least) else rows[:-1]) + [row], taken
            say(
                f"run {number + 1} of {len(every)}: {cell.policy} at {cell.load}, seed {cell.seed}: mean call "
                f"{row['call_s']:.2f} s, foreign {cores['foreign']:.2f}, steal {cores['steal']:.2f} cores"
            )
            if taken <= MAX_FOREIGN or left == 0:
                break
            left -= 1
        if math.isinf(least):
            say(f"the time is over: {len(every) - number} runs are left out")
            break
    return pd.DataFrame(rows)


def _run(fleet: Sequence[Engine], cell: Cell, replica: Replica, lasts_s: float) -> pd.DataFrame:
    router = HoldingRouter(RouterSettings(scheduler=cell.policy, replica=replica, active_for_s=ACTIVE_FOR_S))
    urls = [engine.url for engine in fleet]
    calls = asyncio.run(real_sessions.play(urls, router, cell.of(len(fleet)), lasts_s))
    time.sleep(SETTLE_S)
    for engine in fleet:
        engine.forget()
    return calls
