"""The search for the weights of `context-price`: CMA-ES asks, Ray plays the candidates, CMA-ES is told.

Source: N. Hansen, The CMA evolution strategy: a tutorial, arXiv 1604.00772; its author's library `cma` is used. Of the
covariance the diagonal alone is learned, which takes so much fewer generations: R. Ros and N. Hansen, PPSN X, 2008.
What is tried and exported is no single mean of the search, which scatters with the episodes of the last generations,
but their average, in which the g-th of G counts about as (g / G)^3: O. Shamir and T. Zhang, ICML 2013, sec. 4.
"""

from __future__ import annotations

import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray

from rllib_scale.config import CMAES, TrialConfig
from rllib_scale.config.training import ProblemsConfig
from rllib_scale.evaluation.candidates import Instance, Outcomes, play_base, play_candidates
from rllib_scale.files import write_atomic
from rllib_scale.policies.policy import save_prices
from rllib_scale.results.status import MAX_RESTARTS
from rllib_scale.results.tables import TRAINING_COLUMNS
from rllib_scale.schedulers.context import Floats, initial_weights
from rllib_scale.schedulers.dual_price import initial_weights_by_duals

Played = TypeVar("Played")
TRAINING, VALIDATION, NORMALS = 2, 3, 4
"""Spawn keys that keep these draws apart from each other and from any other use of the same seed."""
STATE = "search.pkl"
OBJECTIVES = {"response": (1.0, 0.0, 0.0), "balanced": (0.8, 0.1, 0.1)}
"""Weights of mean response, mean makespan and its 95th percentile."""
UNSCALED = 10.0
"""The largest weight of a row from which on its initial steps grow in proportion."""
RECENT = 3
"""Power of the generation with which its mean counts in the average."""


class Normals:
    """Standard normal numbers of its own generator, which a pickle takes along."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(_sequence(seed, NORMALS))

    def __call__(self, *shape: int) -> Floats:
        """Numbers of that shape."""
        return self.generator.standard_normal(shape)


def _sequence(seed: int, stream: int, generation: int = 0) -> np.random.SeedSequence:
    # It joins the 32-bit words of its numbers: a fixed count for each keeps different ones apart.
    return np.random.SeedSequence((seed % 2**32, seed >> 32, generation), spawn_key=(stream,))


def draw_instances(trial: TrialConfig, count: int, stream: int, generation: int = 0) -> list[Instance]:
    """Episodes that the training's seed and the generation decide; loads are spread evenly over them.

    The more servers, the fewer episodes, in inverse proportion but for rounding, and the more each of them counts:
    every number of servers is as much of a score. With a given time that makes its standard error least, as an
    episode's costs grow with the servers and its variance falls with them.

    Their workloads' seeds are mixed numbers of 63 bits: none that a person writes down, and no neighbour's.
    """
    generator = np.random.default_rng(_sequence(trial.seed, stream, generation))
    loads = (generator.permutation(count) + generator.random(count)) / count
    seeds = generator.integers(2**63, size=count)
    problems = trial.algorithm.problems or ProblemsConfig()
    counts = shares(count, [1 / env.cluster.num_servers for env in problems.all(trial.env)])
    sizes = np.repeat(np.arange(len(counts)), counts)
    return [
        Instance(problems.draw(trial.env, (size + 0.5) / len(counts), load), seed, 1 / (len(counts) * counts[size]))
        for size, load, seed in zip(sizes.tolist(), loads.tolist(), seeds.tolist(), strict=True)
    ]


def shares(count: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers, none 0, that add up to `count` and are about in proportion to the weights (Jefferson's method).

    >>> shares(12, [1 / 8, 1 / 16, 1 / 32, 1 / 64])
    [7, 3, 1, 1]

    Raises:
        ValueError: there are more weights than `count`.
    """
    if len(weights) > count:
        raise ValueError(f"{count} cannot be {len(weights)} numbers of 1 and more")
    found = [1] * len(weights)
    for _ in range(count - len(weights)):  # to whom it leaves the greatest weight for each one that it has then
        found[max(range(len(weights)), key=lambda k: weights[k] / (found[k] + 1))] += 1
    return found


def scores(outcomes: Sequence[Outcomes], objective: str, weights: Sequence[float] | None = None) -> Floats:
    """(C,) of each candidate the mean over instances of ln(objective [s]); an instance without a task has none.

    Args:
        outcomes: of the candidates, one an instance.
        objective: one of OBJECTIVES.
        weights: of the instances; the same by default.

    Raises:
        RuntimeError: there is a task in none of them.
    """
    parts = [(weight, k) for k, weight in enumerate(OBJECTIVES[objective]) if weight > 0]
    there = [i for i, played in enumerate(outcomes) if played.response_s[0] > 0]
    if not there:
        raise RuntimeError("no task arrived in any episode of a generation: the horizon is too short")
    of_each = [np.sum([weight * np.log(outcomes[i][k]) for weight, k in parts], axis=0) for i in there]
    return np.asarray(np.average(of_each, axis=0, weights=None if weights is None else [weights[i] for i in there]))


class PriceSearch:
    """CMA-ES over W of `ContextPrice`; one epoch is one generation.

    Every draw is decided by the training's seed and the generation, and a candidate's score by its weights and the
    instances: how many processes play changes nothing.

    Args:
        trial: of a method that CMA-ES trains.
    """

    def __init__(self, trial: TrialConfig) -> None:
        import cma  # late: it takes matplotlib along

        self.trial = trial
        self.speeds = np.unique([tier.compute_gflops for tier in trial.env.cluster.tiers])
        assert isinstance(trial.algorithm, CMAES)
        self.settings: CMAES = trial.algorithm
        rule = self.settings.initial
        initial = (
            initial_weights_by_duals(trial.env, self.speeds)
            if rule == "dual-price"
            else initial_weights(rule, len(self.speeds))
        )
        self._shape = initial.shape
        # It neither writes files, nor reads any for options, nor touches NumPy's own generator.
        options = {"popsize": self.settings.population, "randn": Normals(trial.seed), "seed": np.nan}
        options |= {"CMA_diagonal": True, "verbose": -10, "verb_log": 0, "verb_disp": 0}
        of_rows = np.maximum(1.0, np.abs(initial).max(axis=1) / UNSCALED)
        if (of_rows > 1).any():
            options["CMA_stds"] = np.repeat(of_rows, initial.shape[1])
        self._strategy = cma.CMAEvolutionStrategy(initial.ravel(), self.settings.initial_step, options)
        self._env_steps = 0
        self._average = initial.ravel()
        self.best, self.best_score = initial, math.inf
        self._base: float | None = None
        self.restarts = 0

    @property
    def runners(self) -> tuple[int, int]:
        """Remote players, and how many are well: what Ray loses it plays again."""
        return self.trial.resources.env_runners, self.trial.resources.env_runners

    def epoch(self, number: int) -> dict[str, Any]:
        """One generation: its row of the training table, without the time before it."""
        settings, start = self.settings, time.monotonic()
        if number == 1:
            self._validate()
        candidates = self._strategy.ask()
        instances = draw_instances(self.trial, settings.instances, TRAINING, number)
        played = self._play(np.array(candidates).reshape(-1, *self._shape), instances)
        found = scores(played, settings.objective, [instance.weight for instance in instances])
        self._strategy.tell(candidates, found.tolist())
        self._average = self._average + (1 + RECENT) / (number + RECENT) * (self._strategy.mean - self._average)
        validation = math.nan
        if number % settings.validate_every == 0 or number == self.trial.stop_epochs:
            validation = self._validate()
        decisions = int(sum(outcomes.decisions.sum() for outcomes in played))
        self._env_steps += decisions
        wall_s = time.monotonic() - start
        return epoch_row(
            epoch=number,
            env_steps=self._env_steps,
            wall_s=wall_s,
            env_steps_per_s=decisions / wall_s,
            completed=float(np.mean([outcomes.completed for outcomes in played])),
            response_mean_s=float(np.nanmean([outcomes.response_s for outcomes in played])),
            objective=float(found.mean()),
            objective_validation=validation,
            step_size=float(self._strategy.sigma),
        )

    def _validate(self) -> float:
        """The score of the average on the validation instances, less that of fastest-idle; kept if the best."""
        average = self._average.reshape(self._shape)
        settings = self.settings
        instances = draw_instances(self.trial, settings.validation_instances, VALIDATION)
        weights = [instance.weight for instance in instances]
        if self._base is None:
            base = self._spread(play_base, [(instance,) for instance in instances])
            self._base = float(scores(base, settings.objective, weights)[0])
        score = float(scores(self._play(average[None], instances), settings.objective, weights)[0]) - self._base
        if score < self.best_score:
            self.best, self.best_score = average, score
        return score

    def _play(self, weights: Floats, instances: Sequence[Instance]) -> list[Outcomes]:
        return self._spread(play_candidates, [(weights, self.speeds, instance) for instance in instances])

    def _spread(self, play: Callable[..., Outcomes], jobs: Sequence[tuple[Any, ...]]) -> list[Outcomes]:
        return largest_first(play, jobs, self.trial.resources.env_runners)

    def save(self, folder: Path) -> None:
        """Write all that decides how the search goes on."""
        state = (self._strategy, self._env_steps, self._average, self.best, self.best_score)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / STATE, lambda path: path.write_bytes(pickle.dumps(state)))

    def load(self, folder: Path) -> None:
        """Go on from a folder that `save` wrote."""
        state = pickle.loads((folder / STATE).read_bytes())
        self._strategy, self._env_steps, self._average, self.best, self.best_score = state

    def save_policy(self, folder: Path, epochs: int) -> None:
        """Export the weights that were best in validation."""
        save_prices(folder, self.best, self.speeds, self.trial, epochs)

    def places(self) -> dict[str, Any]:
        """The node of the search; its episodes are Ray tasks, played wherever there is room."""
        return {"learner": ray.get_runtime_context().get_node_id(), "env_runners": []}

    def stop(self) -> None:
        """Nothing is left running between two epochs."""


def epoch_row(**known: Any) -> dict[str, Any]:
    """A row of the training table without what is the same in all rows; NaN for what is not known."""
    names = list(TRAINING_COLUMNS)
    return dict.fromkeys(names[names.index("episode_return") :], math.nan) | known


def largest_first(play: Callable[..., Played], jobs: Sequence[tuple[Any, ...]], remote: int) -> list[Played]:
    """As `spread`, of jobs whose last argument is an instance, the largest clusters handed out first."""
    order = sorted(range(len(jobs)), key=lambda j: -jobs[j][-1].env.cluster.num_slots)
    played = spread(play, [jobs[j] for j in order], remote)
    return [played[order.index(j)] for j in range(len(jobs))]


def spread(play: Callable[..., Played], jobs: Sequence[tuple[Any, ...]], remote: int) -> list[Played]:
    """What `play` returns for each job, in order: here, and in up to `remote` Ray tasks beside."""
    if remote == 0:
        return [play(*job) for job in jobs]
    task = ray.remote(num_cpus=1, max_retries=MAX_RESTARTS)(play)
    waiting = deque(range(len(jobs)))
    running: dict[Any, int] = {}
    results: dict[int, Played] = {}
    while waiting or running:
        while waiting and len(running) < remote:
            job = waiting.popleft()
            running[task.remote(*jobs[job])] = job
        if waiting:
            job = waiting.popleft()
            results[job] = play(*jobs[job])
        # While something is left to hand out, who is done is asked between two plays of our own.
        ended = ray.wait(list(running), num_returns=len(running), timeout=0 if waiting else None)[0] if running else []
        for reference in ended:
            results[running.pop(reference)] = ray.get(reference)
    return [results[job] for job in range(len(jobs))]
