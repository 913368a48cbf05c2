"""Fits a table to a trace, and measures how close its draws come to the trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ks_2samp, norm, rankdata

from rllib_scale.config import SplitConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.workloads.fitted import CALL, CHAIN, QUANTITIES, FittedTable, draw_workflows
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS
from rllib_scale.workloads.model import Floats, Ints, Workload
from rllib_scale.workloads.random_numbers import new_generator
from rllib_scale.workloads.traces import in_train_part

PROBABILITIES = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03),
    *(round(0.05 + 0.025 * k, 3) for k in range(37)),
    *(0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.9975, 0.999, 0.9995),
)
"""Levels of the quantiles of a table. Rarer values are left out: they are single calls of a trace."""
COMPACTION = 0.8
"""A compaction leaves less than this share of the memory of the call before."""
MIN_WORKFLOWS = 20
SAMPLE = 100_000
"""Workflows over which the mean of a table is taken."""
_LARGEST_CORRELATION = 0.95
_SMALLEST_EIGENVALUE = 0.02


class _Observed(NamedTuple):
    """Measurements of a trace."""

    values: dict[str, Floats]  # of each of QUANTITIES
    workflow: Ints  # (C,) of each later call of a main chain that is no compaction
    compactions: Floats  # memory before each [GB]
    before: Floats  # memory before each later call [GB]
    forks: int
    followed: int  # calls that have a next call in their main chain


def fit(workload: Workload) -> FittedTable:
    """A table whose workflows resemble those of a trace.

    Workflows are taken as chains with forks: a task is followed by its first successor that has other predecessors, or
    else by its first successor; its other successors begin branches. Other shapes are lost.

    Raises:
        UserError: the trace has too few workflows, or many tasks without work.
    """
    if workload.num_workflows < MIN_WORKFLOWS:
        raise UserError(
            f"{workload.num_workflows} workflows are too few to fit to; valid: at least {MIN_WORKFLOWS} in each half "
            "of the sessions"
        )
    seen, idle = _observe(workload), int((workload.compute_gflop == 0).sum())
    share, call, chain = _dependence(seen)
    above = float(np.quantile(seen.compactions, 0.25)) if len(seen.compactions) else 0.0
    exposed = int((seen.before >= above).sum())
    content = {
        "workflows": workload.num_workflows,
        "calls": workload.num_tasks,
        "mean_workflow_gflop": 1.0,
        "probabilities": PROBABILITIES,
        "quantiles": {name: _quantiles(name, seen.values[name]) for name in QUANTITIES},
        "chain_correlation": _rows(chain),
        "call_correlation": _rows(call),
        "persistent_share": tuple(round(float(x), 4) for x in share),
        "shrink_probability": round(float((seen.compactions >= above).sum()) / max(1, exposed), 6),
        "shrink_above_gb": round(above, 4),
        "fork_probability": round(seen.forks / max(1, seen.followed), 6),
    }
    table = build_model(FittedTable, content, f"{workload.num_tasks:,} tasks, {idle:,} of them without work")
    return table.model_copy(update={"mean_workflow_gflop": round(sample(table, SAMPLE).mean_gflop, 4)})


def sample(table: FittedTable, workflows: int, seed: int = 0) -> Workload:
    """Workflows of a table, all arriving at 0."""
    return draw_workflows(table, new_generator(seed, 0), np.zeros(workflows))


def halves(workload: Workload) -> tuple[Workload, Workload]:
    """Two parts of a trace with different sessions.

    Raises:
        UserError: one of them is empty.
    """
    first = in_train_part(workload, SplitConfig(train_share=0.5, seed=1))
    parts = [np.flatnonzero(first == half) for half in (True, False)]
    if min(map(len, parts)) == 0:
        raise UserError(f"{len(np.unique(workload.session))} sessions are too few to hold some out")
    return workload.take(parts[0], workload.arrival_s[parts[0]]), workload.take(parts[1], workload.arrival_s[parts[1]])


def join(workloads: Sequence[Workload]) -> Workload:
    """One workload of several; their sessions are numbered apart."""
    if any(w.labels.any() or (w.places > 1).any() for w in workloads):
        raise UserError(
            "tasks need labels or several places, which a fitted table has not; play the workload as a trace"
        )
    names = ("arrival_s", *TASK_FIELDS, "edges", "edge_gb", "deadline_s")
    columns: dict[str, Any] = {name: np.concatenate([getattr(w, name) for w in workloads]) for name in names}
    for name in ("task_offsets", "edge_offsets"):
        columns[name] = np.cumsum(np.concatenate([[0], *(np.diff(getattr(w, name)) for w in workloads)]))
    first = np.cumsum([0, *(int(w.session.max()) + 1 for w in workloads[:-1])])
    session = np.concatenate([w.session + start for w, start in zip(workloads, first, strict=True)])
    return Workload(session=session, **columns)


# ---------------------------------------------------------------------- distance to the trace


class Distance(NamedTuple):
    """Values of a quantity in a trace and as a table draws it."""

    name: str
    trace: Floats
    drawn: Floats

    @property
    def kolmogorov_smirnov(self) -> float:
        """Largest difference of the two distribution functions."""
        return float(ks_2samp(self.trace, self.drawn, method="asymp").statistic)


def compare(trace: Workload, drawn: Workload) -> list[Distance]:
    """The distance of each quantity."""
    first, second = _described(trace), _described(drawn)
    return [Distance(name, first[name], second[name]) for name in first]


def _described(workload: Workload) -> dict[str, Floats]:
    """Quantities to compare: those of tasks, and sums over whole workflows."""
    first = workload.task_offsets[:-1]
    root = np.zeros(workload.num_tasks, dtype=bool)
    root[first] = True
    seen = _observe(workload)
    return {
        "calls of a workflow": np.diff(workload.task_offsets).astype(np.float64),
        "work of a workflow": np.add.reduceat(workload.compute_gflop, first),
        "delays of a workflow, s": np.add.reduceat(workload.delay_s, first),
        "work of a call": workload.compute_gflop,
        "memory of a call, GB": workload.memory_gb,
        "memory of a first call, GB": workload.memory_gb[root],
        "growth from call to call, GB": seen.values["growth_gb"],
        "output of a call, GB": workload.output_gb,
        "delay of a later call, s": workload.delay_s[~root],
    }


# ---------------------------------------------------------------------- observations of a trace


def _observe(workload: Workload) -> _Observed:
    mains, heads, lengths, branches, followed = _chains(workload)
    main, sizes = np.concatenate(mains), np.array([len(chain) for chain in mains])
    workflow = np.repeat(np.arange(len(mains)), sizes)
    first = np.append(0, np.cumsum(sizes)[:-1])
    memory = workload.memory_gb[main]
    later = np.ones(len(main), dtype=bool)
    later[first] = False
    at = np.flatnonzero(later)
    before, after = memory[at - 1], memory[at]
    shrinks = after < COMPACTION * before
    roots, kept = main[first], main[at[~shrinks]]
    values = {
        "calls": sizes.astype(np.float64),
        "first_memory_gb": workload.memory_gb[roots],
        "first_compute_gflop": workload.compute_gflop[roots],
        "first_delay_s": workload.delay_s[roots],
        "compute_gflop": workload.compute_gflop[kept],
        "growth_gb": (after - before)[~shrinks],
        "delay_s": workload.delay_s[kept],
        "shrink": after[shrinks] / before[shrinks],
        "memory_gb": workload.memory_gb,
        "output_gb": workload.output_gb,
        "branches": np.array(branches, dtype=np.float64),
        "branch_calls": np.array(lengths, dtype=np.float64),
        "branch_memory_gb": workload.memory_gb[np.array(heads, dtype=np.int64)],
    }
    return _Observed(values, workflow[at[~shrinks]], before[shrinks], before, len(branches), followed)


def _chains(workload: Workload) -> tuple[list[Ints], list[int], list[int], list[int], int]:
    """Rows of each main chain; first row and length of each branch; branches of each fork; calls with a next call."""
    mains: list[Ints] = []
    heads: list[int] = []
    lengths: list[int] = []
    branches: list[int] = []
    followed = 0
    for w in range(workload.num_workflows):
        start, n = int(workload.task_offsets[w]), int(workload.task_offsets[w + 1] - workload.task_offsets[w])
        edges = workload.edges[workload.edge_offsets[w] : workload.edge_offsets[w + 1]]
        if len(edges) == n - 1 and (edges[:, 0] == np.arange(n - 1)).all() and (edges[:, 1] == np.arange(1, n)).all():
            mains.append(np.arange(start, start + n))
            followed += n - 1
            continue
        following: list[list[int]] = [[] for _ in range(n)]
        needs = np.bincount(edges[:, 1], minlength=n)
        for before, after in edges.tolist():
            following[before].append(after)
        at, main = int(np.flatnonzero(needs == 0)[0]), []
        while True:
            main.append(start + at)
            if not following[at]:
                break
            joins = [task for task in following[at] if needs[task] > 1]
            onward = min(joins or following[at])
            others = [task for task in following[at] if task != onward]
            followed += 1
            if others:
                branches.append(len(others))
            for head in others:
                task, length = head, 1
                while following[task] and needs[following[task][0]] == 1:
                    task, length = following[task][0], length + 1
                heads.append(start + head)
                lengths.append(length)
            at = onward
        mains.append(np.array(main))
    return mains, heads, lengths, branches, followed


def _quantiles(name: str, values: Floats) -> tuple[float, ...]:
    """Values at PROBABILITIES; 1 if the trace has no value."""
    if len(values) == 0:
        return (1.0,) * len(PROBABILITIES)
    whole = name in ("calls", "branches", "branch_calls")
    found = np.quantile(values, PROBABILITIES, method="inverted_cdf" if whole else "linear")
    # Four digits: more are not known of a distribution.
    rounded = [float(f"{x:.4g}") for x in found.tolist()]
    return tuple(np.maximum.accumulate(rounded).tolist())


def _scores(values: Floats) -> Floats:
    """Normal scores: the rank of each value as a quantile of the normal distribution, to variance 1."""
    scores: Floats = norm.ppf(rankdata(values) / (len(values) + 1)) if len(values) else values
    deviation = scores.std() if len(scores) else 0.0
    return scores / deviation if deviation > 0 else scores


def _dependence(seen: _Observed) -> tuple[Floats, Floats, Floats]:
    """Persistent shares (3,), correlations of CALL within a workflow (3, 3), and of CHAIN (6, 6)."""
    count = len(seen.values["calls"])
    once = np.stack([_scores(seen.values[name]) for name in CHAIN[:3]])
    calls = np.stack([_scores(seen.values[name]) for name in CALL])
    sizes = np.bincount(seen.workflow, minlength=count)
    sums = np.stack([np.bincount(seen.workflow, weights=z, minlength=count) for z in calls])
    means = sums / np.maximum(sizes, 1)
    several = sizes > 1
    inside = several[seen.workflow]
    share, call, chain = np.zeros(3), np.eye(3), np.eye(6)
    chain[:3, :3] = np.corrcoef(once) if (once.std(axis=1) > 0).all() else np.eye(3)
    if inside.sum() > several.sum() + 1:
        apart = (calls - means[:, seen.workflow])[:, inside]
        within = apart @ apart.T / (inside.sum() - several.sum())
        share = np.clip(1.0 - np.diag(within), 0.0, _LARGEST_CORRELATION)
        call = _as_correlation(within)
        weight = np.sqrt(np.maximum(share, 1e-3))
        between = np.cov(means[:, several]) - within * float((1.0 / sizes[several]).mean())
        chain[3:, 3:] = between / np.outer(weight, weight)
        both = np.cov(np.concatenate([once[:, several], means[:, several]]))[:3, 3:]
        chain[:3, 3:] = both / weight
        chain[3:, :3] = chain[:3, 3:].T
    return share, call, _as_correlation(chain)


def _as_correlation(matrix: Floats) -> Floats:
    """The matrix as a positive definite correlation matrix."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-12))
    scaled = np.clip(matrix / np.outer(scale, scale), -_LARGEST_CORRELATION, _LARGEST_CORRELATION)
    np.fill_diagonal(scaled, 1.0)
    values, vectors = np.linalg.eigh(scaled)
    mended = vectors @ np.diag(np.maximum(values, _SMALLEST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(mended))
    return mended / np.outer(scale, scale)


def _rows(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    rounded = np.round((matrix + matrix.T) / 2, 4)
    np.fill_diagonal(rounded, 1.0)
    return tuple(tuple(row) for row in rounded.tolist())
