"""Workloads drawn from a fitted table: chains of calls with growing context, release delays and occasional forks.

A table (`rllib-scale fit-workload`) has quantiles of each quantity and their dependence: a Gaussian copula over what a
workflow has once (CHAIN), and one over what each call adds (CALL), a share of which persists within the workflow.
Memory follows the context: that of the first call plus the growth of each later one, rarely reduced to a share of it
(compaction). The output follows the memory by rank. A fork runs separate chains (subagents), which join before the next
call of the parent.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rllib_scale.compiled import compiled, internal, rare
from rllib_scale.config import Count, EnvConfig, FittedConfig
from rllib_scale.config.base import Finite, Fraction, Model, NonNegative, Positive
from rllib_scale.config.pinned import split
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.workloads.arrivals import arrival_times
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.formats.native import read
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.random_numbers import CONTENTS, new_generator, standard_normal, uniform

QUANTITIES = {
    "calls": "of a workflow, those of forks not counted",
    "first_memory_gb": "of the first call",
    "first_compute_gflop": "of the first call",
    "first_delay_s": "release delay of the first call",
    "compute_gflop": "of a later call",
    "growth_gb": "memory of a later call less that of the one before, but for compactions",
    "delay_s": "release delay of a later call",
    "shrink": "memory after a compaction over that before",
    "memory_gb": "of any call",
    "output_gb": "of any call",
    "branches": "of a fork",
    "branch_calls": "of a branch",
    "branch_memory_gb": "of the first call of a branch",
}
"""The quantities of which a table has quantiles."""
(CALLS, FIRST_MEMORY, FIRST_COMPUTE, FIRST_DELAY, COMPUTE, GROWTH, DELAY, SHRINK, MEMORY, OUTPUT, BRANCHES,
 BRANCH_CALLS, BRANCH_MEMORY) = range(len(QUANTITIES))  # fmt: skip
CHAIN = ("calls", "first_memory_gb", "first_compute_gflop", "compute_gflop", "growth_gb", "delay_s")
"""Quantities of a workflow; of the last three, the part that persists from call to call."""
CALL = ("compute_gflop", "growth_gb", "delay_s")
"""Quantities of a later call."""
MAX_FORKS = 16
"""Most forks of one workflow."""

_Quantiles = tuple[Finite, ...]
_Correlations = tuple[tuple[Annotated[float, Field(ge=-1, le=1)], ...], ...]


class FittedTable(Model):
    """The output of `rllib-scale fit-workload`: the generator draws from it alone."""

    format: Literal["rllib-scale-fitted-workload"] = "rllib-scale-fitted-workload"
    version: Literal[1] = 1
    workflows: Count = Field(description="fitted to")
    calls: Count = Field(description="fitted to")
    mean_workflow_gflop: Positive = Field(description="of what the generator draws")
    probabilities: tuple[Fraction, ...] = Field(min_length=2)
    quantiles: dict[str, _Quantiles]
    chain_correlation: _Correlations = Field(description="of normal scores, between the quantities of CHAIN")
    call_correlation: _Correlations = Field(description="of what does not persist, between those of CALL")
    persistent_share: tuple[Fraction, ...] = Field(description="of the variance of each of CALL")
    shrink_probability: Fraction = Field(description="of a later call that follows one above shrink_above_gb")
    shrink_above_gb: NonNegative
    fork_probability: Fraction = Field(description="of a call that another one follows")

    @model_validator(mode="after")
    def _complete(self) -> FittedTable:
        if self.quantiles.keys() != QUANTITIES.keys():
            raise ValueError(f"quantiles: must hold {', '.join(QUANTITIES)}")
        for name, values in [("probabilities", self.probabilities), *self.quantiles.items()]:
            if len(values) != len(self.probabilities) or any(b < a for a, b in itertools.pairwise(values)):
                raise ValueError(f"{name}: must hold {len(self.probabilities)} values that do not decrease")
            positive = name not in ("probabilities", "growth_gb", "first_delay_s", "delay_s", "output_gb")
            if name != "growth_gb" and (values[0] < 0 or (positive and values[0] == 0 and "memory" not in name)):
                raise ValueError(f"{name}: the lowest value must be {'above' if positive else 'at least'} 0")
        for name, rows, size in (
            ("chain_correlation", self.chain_correlation, len(CHAIN)),
            ("call_correlation", self.call_correlation, len(CALL)),
        ):
            matrix = np.array([row for row in rows if len(row) == size])
            if matrix.shape != (size, size) or not np.allclose(matrix, matrix.T) or (np.diag(matrix) != 1).any():
                raise ValueError(f"{name}: must be a symmetric {size} x {size} matrix with a diagonal of 1")
            if np.linalg.eigvalsh(matrix).min() <= 0:
                raise ValueError(f"{name}: must be positive definite")
        if len(self.persistent_share) != len(CALL):
            raise ValueError(f"persistent_share: must hold {len(CALL)} values")
        return self


def load_table(path: Path) -> FittedTable:
    """Read a table.

    Raises:
        UserError: it is no table, or an incomplete one.
    """
    return build_model(FittedTable, read(path), str(path))


def draw_fitted(config: EnvConfig, fitted: FittedConfig, seed: int, episode: int) -> Workload:
    """The workload of (seed, episode). The contents of its workflows do not depend on the rate of arrivals.

    Raises:
        UserError: see `table_of`; or too many workflows would be drawn at once.
    """
    table = table_of(config, fitted)
    rate = config.arrival_rate_of(table.mean_workflow_gflop)
    arrivals = arrival_times(config, rate, new_generator(seed, episode))
    return draw_workflows(table, new_generator(seed, episode, CONTENTS), arrivals)


def table_of(config: EnvConfig, fitted: FittedConfig) -> FittedTable:
    """The table that the config names.

    Raises:
        UserError: it is missing, has changed, is invalid, or has tasks that fit no server.
    """
    table = _table(fitted.table)
    needed, largest = table.quantiles["memory_gb"][-1], config.cluster.largest_memory_gb
    if not fits(needed, 1, 0, largest, 1, 0):
        raise UserError(
            f"workload.fitted {split(fitted.table)[0]}: has tasks of up to {needed} GB, which fit no server; the "
            f"largest of the cluster has {largest}"
        )
    return table


@lru_cache(maxsize=8)
def _table(table: str) -> FittedTable:
    """The table of a pinned file."""
    return load_table(FittedConfig(table=table).path)


# ---------------------------------------------------------------------- drawing


class _Law(NamedTuple):
    """A table for compiled code. Quantities Q, probabilities P."""

    probabilities: NDArray[np.float64]  # (P,)
    quantiles: NDArray[np.float64]  # (Q, P)
    chain_factor: NDArray[np.float64]  # (6, 6) Cholesky factor of the correlations of CHAIN
    call_factor: NDArray[np.float64]  # (3, 3) of CALL
    share: NDArray[np.float64]  # (3,) of the variance that persists
    shift: NDArray[np.float64]  # (3,) of what persists, see `_score_by_calls`
    shrink_probability: float
    shrink_above: float  # GB
    fork_probability: float


def draw_workflows(table: FittedTable, rng: NDArray[np.uint64], arrival_s: NDArray[np.float64]) -> Workload:
    """Draw a workflow for each of the (W,) arrivals."""
    law = _law(table)
    most = math.floor(law.quantiles[CALLS, -1] + 0.5)
    most += MAX_FORKS * math.prod(math.floor(law.quantiles[q, -1] + 0.5) for q in (BRANCHES, BRANCH_CALLS))
    offsets, done, scratch = np.zeros((2, len(arrival_s) + 1), dtype=np.int64), 0, np.zeros((2, len(CHAIN)))
    room = most + int(1.2 * len(arrival_s) * law.quantiles[CALLS].mean())
    tasks, edges = np.zeros((room, 4)), np.zeros((2 * room, 2), dtype=np.int64)
    while True:
        done = _fill(rng, law, most, done, offsets, tasks, edges, scratch)
        if done == len(arrival_s):
            break
        tasks, edges = (np.concatenate([array, np.zeros_like(array)]) for array in (tasks, edges))
    columns = tasks[: offsets[0, -1]].T
    return Workload(
        arrival_s=arrival_s,
        task_offsets=offsets[0],
        compute_gflop=columns[0],
        memory_gb=columns[1],
        output_gb=columns[2],
        delay_s=columns[3],
        edge_offsets=offsets[1],
        edges=edges[: offsets[1, -1]],
    )


def _law(table: FittedTable) -> _Law:
    probabilities = np.array(table.probabilities)
    quantiles = np.array([table.quantiles[name] for name in QUANTITIES])
    chain, call = np.array(table.chain_correlation), np.array(table.call_correlation)
    return _Law(
        probabilities=probabilities,
        quantiles=quantiles,
        chain_factor=np.ascontiguousarray(np.linalg.cholesky(chain)),
        call_factor=np.ascontiguousarray(np.linalg.cholesky(call)),
        share=np.array(table.persistent_share),
        shift=chain[0, -len(CALL) :] * _score_by_calls(probabilities, quantiles[CALLS]),
        shrink_probability=table.shrink_probability,
        shrink_above=table.shrink_above_gb,
        fork_probability=table.fork_probability,
    )


def _score_by_calls(probabilities: NDArray[np.float64], calls: NDArray[np.float64]) -> float:
    """Mean over later calls of the normal score of their workflow's number of calls.

    The quantiles of a table are over calls, of which long workflows have more. Quantities that correlate with a
    workflow's length are shifted by this score, so that their draws have these quantiles.
    """
    at = (np.arange(256) + 0.5) / 256
    later = np.interp(at, probabilities, calls) - 1.0
    scores = np.array([NormalDist().inv_cdf(p) for p in at])
    return float(later @ scores / later.sum()) if later.sum() > 0 else 0.0


@internal
def _quantile(p, probabilities, values):  # type: ignore[no-untyped-def]
    """Value at probability p, linear between the quantiles, the first and last beyond them."""
    low, high = 0, len(probabilities) - 1
    if p <= probabilities[low]:
        return values[low]
    if p >= probabilities[high]:
        return values[high]
    while high - low > 1:
        middle = (low + high) // 2
        if probabilities[middle] <= p:
            low = middle
        else:
            high = middle
    part = (p - probabilities[low]) / (probabilities[high] - probabilities[low])
    return values[low] + part * (values[high] - values[low])


@internal
def _of_score(z, probabilities, values):  # type: ignore[no-untyped-def]
    """Value at a normal score."""
    return _quantile(0.5 * math.erfc(-z / math.sqrt(2.0)), probabilities, values)


@rare
def _chain(rng, law, latent, first, n, memory, tasks):  # type: ignore[no-untyped-def]
    """Write n tasks (compute, memory, output, delay) from row `first` on; `latent` (3,) persists, by CALL."""
    p, values, factor = law.probabilities, law.quantiles, law.call_factor
    for k in range(first, first + n):
        if k > first:
            normal = (standard_normal(rng), standard_normal(rng), standard_normal(rng))
            growth = 0.0
            for q in range(3):
                own = factor[q, 0] * normal[0] + factor[q, 1] * normal[1] + factor[q, 2] * normal[2]
                z = math.sqrt(law.share[q]) * latent[q] + math.sqrt(1.0 - law.share[q]) * own
                if q == 0:
                    tasks[k, 0] = _of_score(z, p, values[COMPUTE])
                elif q == 1:
                    growth = _of_score(z, p, values[GROWTH])
                else:
                    tasks[k, 3] = _of_score(z, p, values[DELAY])
            # Both are always drawn, so that every call takes the same number of draws.
            shrinks, size = uniform(rng), uniform(rng)
            if memory >= law.shrink_above and shrinks < law.shrink_probability:
                memory *= _quantile(size, p, values[SHRINK])
            else:
                memory += growth
        memory = min(max(memory, values[MEMORY, 0]), values[MEMORY, -1])
        tasks[k, 1] = memory
        tasks[k, 2] = _quantile(_quantile(memory, values[MEMORY], p), p, values[OUTPUT])


@internal
def _count(value):  # type: ignore[no-untyped-def]
    return max(1, math.floor(value + 0.5))


@compiled
def _fill(rng, law, most, done, offsets, tasks, edges, scratch):  # type: ignore[no-untyped-def]
    """Draw workflows from number `done` on while the arrays have room; returns the number of workflows drawn so far."""
    p, values, latent, normal = law.probabilities, law.quantiles, scratch[0], scratch[1]
    for w in range(done, offsets.shape[1] - 1):
        begin, e = offsets[0, w], offsets[1, w]
        if begin + most > len(tasks) or e + 2 * most > len(edges):
            return w
        for q in range(6):
            normal[q] = standard_normal(rng)
            latent[q] = 0.0
            for i in range(q + 1):
                latent[q] += law.chain_factor[q, i] * normal[i]
            if q >= 3:
                latent[q] -= law.shift[q - 3]
        n = _count(_of_score(latent[0], p, values[CALLS]))
        memory = _of_score(latent[1], p, values[FIRST_MEMORY])
        tasks[begin, 0] = _of_score(latent[2], p, values[FIRST_COMPUTE])
        tasks[begin, 3] = _quantile(uniform(rng), p, values[FIRST_DELAY])
        _chain(rng, law, latent[3:], begin, n, memory, tasks)
        end, forks = begin + n, 0
        for k in range(n - 1):
            edges[e, 0], edges[e, 1] = k, k + 1
            e += 1
            if uniform(rng) < law.fork_probability and forks < MAX_FORKS:
                forks += 1
                for _ in range(_count(_quantile(uniform(rng), p, values[BRANCHES]))):
                    calls = _count(_quantile(uniform(rng), p, values[BRANCH_CALLS]))
                    memory = _quantile(uniform(rng), p, values[BRANCH_MEMORY])
                    tasks[end, 0] = _quantile(uniform(rng), p, values[FIRST_COMPUTE])
                    tasks[end, 3] = _quantile(uniform(rng), p, values[DELAY])
                    _chain(rng, law, latent[3:], end, calls, memory, tasks)
                    head = end - begin
                    edges[e, 0], edges[e, 1] = k, head
                    for i in range(calls - 1):
                        edges[e + 1 + i, 0], edges[e + 1 + i, 1] = head + i, head + i + 1
                    edges[e + calls, 0], edges[e + calls, 1] = head + calls - 1, k + 1
                    e += calls + 1
                    end += calls
        offsets[0, w + 1], offsets[1, w + 1] = end, e
    return offsets.shape[1] - 1
