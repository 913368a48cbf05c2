"""The price rule with prices that follow from the problem: duals of the servers' capacity, nothing is trained.

In the long run a share of each kind of task goes to each class of servers. The linear program of least mean weighted
execution time, in which no class is asked for more seconds than it has, has a dual for each class: by how much the
objective falls for one more second there, which is what a second is worth (L. V. Kantorovich, Mathematical methods of
organizing and planning production, Management Science 6, 1960). SciPy's HiGHS solves it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, hstack

from rllib_scale.config import ClusterConfig, EnvConfig
from rllib_scale.config.schedulers import DualPriceParameters, PriceParameters
from rllib_scale.errors import UserError
from rllib_scale.schedulers.context import LOAD_UNIT, PRIOR_LOAD, context_names, initial_weights, theta_names
from rllib_scale.schedulers.reserving import Price
from rllib_scale.workloads.dag import hops_and_descendants
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.sample import sample_workflows

WORKFLOWS = 1000
"""In the sample that is priced."""
MEMORY_LEVELS = 8
"""Levels of the tasks' memory where they share a server's."""
LOADS = np.linspace(0.8, 1.2, 9)
"""Times the load: what comes within a minute is more or less than the mean, and prices rise in steps. See `prices`."""
SMITH: dict[str, Any] = {"a": 1.0, "b": -1.0, "age": 0.0, "alpha": 1.0}
"""Tasks by descendants per work, each weighed by what waits for it."""
LINE_LOADS = np.linspace(0.4, 1.0, 7)
"""At which prices are known to a line in the load."""
MOST_LOAD = 0.98
"""Highest load for prices, as a share of the one at which no assignment is possible any more."""


class Classes(NamedTuple):
    """The K kinds of servers: those of one speed, one memory, as many places, one slowdown and the same labels."""

    speed: np.ndarray  # (K,) GFLOPS of each task that runs there
    memory: np.ndarray  # (K,) GB of a server
    max_concurrent: np.ndarray  # (K,) tasks that a server runs at once
    places: np.ndarray  # (K,) tasks that all of them run at once
    labels: np.ndarray  # (K,) int64, bits of ClusterConfig.label_names
    slowdown: np.ndarray  # (K,) how many times as long an execution takes where all places are busy
    of: np.ndarray  # (N,) class of each server, tier by tier

    @classmethod
    def in_cluster(cls, cluster: ClusterConfig) -> Classes:
        """Classes of a cluster, ordered by speed, memory, places, slowdown and labels."""
        sets, of_set = np.unique(cluster.labels_of_tiers, return_inverse=True)
        kinds = [
            (t.compute_gflops, t.memory_gb, t.max_concurrent, 1.0 + t.slowdown * (t.max_concurrent - 1), labels)
            for t, labels in zip(cluster.tiers, of_set, strict=True)
        ]
        found, of_tier = np.unique(np.array(kinds, dtype=np.float64), axis=0, return_inverse=True)
        speed, memory, max_concurrent, slowdown, which = found.T
        of = np.repeat(of_tier.ravel(), [tier.count for tier in cluster.tiers])
        places, labels = np.bincount(of) * max_concurrent, sets[which.astype(np.int64)]
        return cls(speed, memory, max_concurrent, places, labels, slowdown, of)


def duals(
    weight: np.ndarray, seconds: np.ndarray, taken: np.ndarray, available: np.ndarray, loads: np.ndarray
) -> np.ndarray:
    """Price of a second of each class at several loads.

    Minimise the sum of weight x seconds over kinds of tasks and classes, each kind shared out among classes, of no
    class more taken than is available.

    Args:
        weight: (T,) of each kind of tasks.
        seconds: (T, K) that all of a kind take on each class, inf where they do not fit.
        taken: (T, K) of the class's seconds meanwhile: more than `seconds` where a task needs the memory of more
            places.
        available: (K,) seconds of all places of each class together.
        loads: (L,) times as many tasks of each kind; those beyond MOST_LOAD of what is possible count as that.

    Returns:
        (L, K), each in units of weight.
    """
    kind, at = np.nonzero(np.isfinite(seconds))
    each, one = np.arange(len(kind)), np.ones(len(weight))
    uses = csr_matrix((taken[kind, at], (at, each)), shape=(len(available), len(kind)))
    shares = csr_matrix((np.ones(len(kind)), (kind, each)), shape=(len(weight), len(kind)))
    # First the largest load that is possible at all, as beyond it the program has no solution.
    possible = linprog(  # the last variable: how many times all tasks can be shared out
        np.append(np.zeros(len(kind)), -1.0),
        A_ub=hstack([uses, csr_matrix((len(available), 1))]),
        b_ub=available,
        A_eq=hstack([shares, csr_matrix(-one[:, None])]),
        b_eq=0.0 * one,
    ).x[-1]
    # Loads beyond are the same program: it is solved once.
    distinct, back = np.unique(np.minimum(loads, MOST_LOAD * possible), return_inverse=True)
    cost = (weight[:, None] * seconds)[kind, at]
    found = [linprog(cost, A_ub=uses, b_ub=available / load, A_eq=shares, b_eq=one) for load in distinct]
    return np.array([np.maximum(0.0, -solved.ineqlin.marginals) for solved in found])[back]


def prices(classes: Classes, workload: Workload, labels: np.ndarray, rate: float, revealed: bool = False) -> np.ndarray:
    """Price of a second on a place of each class, in seconds of a task without successors.

    A task weighs as many as it and its descendants are, for all of them wait for it. Where a server has several places,
    a task takes as much of it as the larger of its places and its share of the memory; the price is then of a task of
    the mean size of those that fit. Prices rise with the load in steps, at each of which one kind of task moves to
    another class: the mean over `LOADS` is between those of the steps nearby.

    Args:
        classes: of servers.
        workload: a sample of the workflows.
        labels: (T,) that its tasks need, as those of `classes`.
        rate: at which they arrive [1/s].
        revealed: that followers are not seen, so that each task weighs 1.

    Returns:
        (K,), 0 of a class that has seconds to spare.
    """
    memory, gflop = workload.memory_gb, workload.compute_gflop
    weight = np.ones(len(memory)) if revealed else _descendants(workload)
    taken = workload.places
    needs = memory[:, None], taken[:, None], labels[:, None]
    has_room = fits(*needs, classes.memory, classes.max_concurrent, classes.labels)
    levels = np.zeros(len(memory))
    if classes.max_concurrent.max() > 1:
        cuts = np.quantile(memory, np.linspace(0, 1, MEMORY_LEVELS + 1)[1:-1])
        levels = np.searchsorted(cuts, memory).astype(np.float64)
    # Execution times are in proportion to the demand: tasks of one weight and as many places that fit the same classes
    # are one kind.
    kinds, kind = np.unique(np.column_stack([weight, has_room, levels, taken]), axis=0, return_inverse=True)
    work = np.bincount(kind.ravel(), gflop)
    mean_memory = np.bincount(kind.ravel(), gflop * memory) / work
    # Dominant share: a task takes its places, or as many as its memory would hold.
    places = np.maximum(kinds[:, -1:], mean_memory[:, None] / classes.memory * classes.max_concurrent)
    fit = kinds[:, 1:-2] > 0
    seconds = np.where(fit, work[:, None] * classes.slowdown / classes.speed, np.inf)
    span = workload.num_workflows / rate
    found = duals(kinds[:, 0], seconds, places * seconds, classes.places * span, LOADS).mean(axis=0)
    of_work = work[:, None] * fit
    # From a second of a place to a second of a task: what the work that fits takes on average.
    return found * (places * of_work).sum(axis=0) / np.maximum(of_work.sum(axis=0), 1e-300)


def _descendants(workload: Workload) -> np.ndarray:
    """(T,) tasks that follow each of the sample, itself included; of two digits, so that long chains have few kinds."""
    sizes, first = np.diff(workload.task_offsets), workload.edge_offsets
    counts = [hops_and_descendants(n, workload.edges[first[k] : first[k + 1]])[1] for k, n in enumerate(sizes)]
    exact = np.concatenate(counts).astype(np.float64)
    unit = 10.0 ** np.maximum(0.0, np.floor(np.log10(exact)) - 1)
    return np.round(exact / unit) * unit


@lru_cache(maxsize=64)
def prices_of(env: EnvConfig, load: float | None = None) -> tuple[Classes, np.ndarray, float]:
    """The classes of a problem, (K,) `prices` of its workflows at its own load or another, and a mean execution [s].

    The latter is that of a mean task on a mean place.

    Raises:
        UserError: the workload has no sample, or tasks of it fit no server.
    """
    sample = sample_workflows(env, WORKFLOWS)
    rate = sample.rate if load is None else sample.rate * load / sample.offered_load(env)
    classes = Classes.in_cluster(env.cluster)
    mean_s = float(sample.workload.compute_gflop.mean() * classes.places.sum() / (classes.places @ classes.speed))
    labels, revealed = sample.workload.labels_on(env.cluster), env.information.workflows == "revealed"
    return classes, prices(classes, sample.workload, labels, rate, revealed), mean_s


def initial_weights_by_duals(env: EnvConfig, speeds: np.ndarray) -> np.ndarray:
    """W of `ContextPrice` that plays nearly as `dual-price` would at the load that is observed.

    Prices are those above the slowest class's, least squares of a line in the load between `LINE_LOADS`.

    Args:
        env: its workload and cluster; its load is ignored.
        speeds: (K,) of the classes, slowest first.

    Raises:
        UserError: see `prices_of`.
    """
    given = DualPriceParameters()
    of_load = []
    for load in LINE_LOADS:
        classes, found, mean_s = prices_of(env, load)
        of_speed = [np.average(found[classes.speed == v], weights=classes.places[classes.speed == v]) for v in speeds]
        of_load.append(given.discount * (np.array(of_speed) - of_speed[0])[1:])
    slope, middle = np.polyfit(LINE_LOADS - PRIOR_LOAD, np.array(of_load), 1)
    start = PriceParameters(
        **SMITH, kappa=given.kappa, penalty=given.penalty * mean_s, prices=tuple(np.maximum(0.0, middle).tolist())
    )
    weights = initial_weights(start, len(speeds))
    names = theta_names(len(speeds))
    rows = slice(names.index("kappa") + 1, names.index("penalty"))
    weights[rows, 1 + context_names(len(speeds)).index("load_150")] = slope * LOAD_UNIT
    return weights


class DualPrice(Price):
    """`price` with the prices of `prices_of`, each task weighed and ordered by what waits for it.

    At the load that was planned for, a class with a price is full, and kinds of tasks at the margin go there part of
    the time. Online they had better go there whenever it is idle, as waits keep them away otherwise: hence prices
    somewhat below the duals (`discount`). Tasks are visited by descendants per work, Smith's order.
    """

    name = "dual-price"
    description = "price with what a second on each class is worth in the problem at hand, by linear programming"

    def __init__(self, parameters: DualPriceParameters | None = None) -> None:
        """See `Dispatcher`."""
        super().__init__(parameters)
        self._given: DualPriceParameters = self.parameters
        self._prices: np.ndarray | None = None  # (N,) of each server of the problem

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`.

        Raises:
            UserError: no problem has been seen by `problem`.
        """
        if self._prices is None:
            raise UserError(f"{self.name} has no prices yet: ask for its `problem` first")
        super().reset(seeds)

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`; finds the prices of the problem."""
        classes, found, mean_s = prices_of(env, self._given.load)
        self._prices = self._given.discount * found[classes.of]
        self.parameters = PriceParameters(
            **SMITH, kappa=self._given.kappa, penalty=self._given.penalty * mean_s, prices=()
        )
        return env

    def server_prices(self, capacity: np.ndarray) -> np.ndarray:
        """See `Price.server_prices`; an empty row has none."""
        found = np.zeros(len(capacity))
        if self._prices is not None:
            found[: len(self._prices)] = self._prices
        return found
