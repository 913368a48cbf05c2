"""Training outside RLlib: whole episodes played as Ray tasks, validated against a rule, the best policy kept."""

from __future__ import annotations

import math
import pickle
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray

from rllib_scale.config import TrialConfig
from rllib_scale.config.training import ProblemsConfig
from rllib_scale.evaluation.candidates import Instance, Outcomes, play_base
from rllib_scale.results.columns import TRAINING_COLUMNS
from rllib_scale.results.status import MAX_RESTARTS
from rllib_scale.schedulers.context import Floats
from rllib_scale.sweeps.learners import Learner
from rllib_scale.workloads.family import draw_played
from rllib_scale.workloads.random_numbers import words_of

Played = TypeVar("Played")
TRAINING, VALIDATION, NORMALS = 2, 3, 4
"""Spawn keys that separate these random streams from each other and from other uses of the same seed."""
OBJECTIVES = {"response": (1.0, 0.0, 0.0), "balanced": (0.8, 0.1, 0.1)}
"""Weights of the first three of `Outcomes`: mean response, mean JCT, and what is slowest."""
STATE = "search.pkl"


class ValidatedLearner(Learner):
    """Trains on instances that the seed and the epoch determine, and exports the policy with the best validation score.

    The number of Ray tasks changes no result: gradients and scores are reduced in the order of the instances.

    Args:
        trial: of a method with validation instances.
        initial: weights of the untrained policy, the best so far.
    """

    objective = "response"
    """A key of OBJECTIVES."""
    state: tuple[str, ...] = ("_env_steps", "best", "best_score")
    """Attributes that determine the rest of a training."""

    def __init__(self, trial: TrialConfig, initial: Any) -> None:
        super().__init__(trial)
        self.settings: Any = trial.algorithm
        self.best, self.best_score = initial, math.inf
        self._env_steps = 0
        self._base: list[Outcomes] = []
        self.workers = trial.resources.env_runners

    @abstractmethod
    def train(self, number: int) -> dict[str, Any]:
        """Train epoch `number`; returns columns of the training table, and `decisions` of this epoch."""

    @abstractmethod
    def candidate(self) -> Any:
        """The weights to validate."""

    @abstractmethod
    def play_validation(self, candidate: Any, instances: Sequence[Instance]) -> list[Outcomes]:
        """Outcomes of a candidate, one for each instance."""

    def epoch(self, number: int) -> dict[str, Any]:
        """Train on the instances of the epoch; validate before the first epoch, at intervals, and after the last."""
        start = time.monotonic()
        if number == 1:
            self._validate()
        columns = self.train(number)
        validation = math.nan
        if number % self.settings.validate_every == 0 or number == self.trial.stop_epochs:
            validation = self._validate()
        decisions = int(columns.pop("decisions"))
        self._env_steps += decisions
        wall_s = time.monotonic() - start
        names = list(TRAINING_COLUMNS)
        unknown = dict.fromkeys(names[names.index("episode_return") :], math.nan)
        return (
            unknown
            | columns
            | {
                "epoch": number,
                "env_steps": self._env_steps,
                "wall_s": wall_s,
                "env_steps_per_s": decisions / wall_s,
                "objective_validation": validation,
            }
        )

    def instances(self, number: int) -> list[Instance]:
        """Those of an epoch."""
        return draw_instances(self.trial, self.settings.instances, TRAINING, number)

    def _validate(self) -> float:
        """Score of the candidate on the validation instances; the best of those that may be chosen is kept."""
        instances = draw_instances(self.trial, self.settings.validation_instances, VALIDATION)
        self._base = self._base or self.play_rule(instances)
        candidate = self.candidate()
        played = self.play_validation(candidate, instances)
        score, may_be_chosen = self.compared(played, self._base, [instance.weight for instance in instances])
        if may_be_chosen and score < self.best_score:
            self.best, self.best_score = candidate, score
        return score

    def play_rule(self, instances: Sequence[Instance]) -> list[Outcomes]:
        """Outcomes of the rule that a candidate is measured by."""
        return self.spread(play_base, [(instance,) for instance in instances])

    def compared(
        self, played: Sequence[Outcomes], base: Sequence[Outcomes], weights: Sequence[float]
    ) -> tuple[float, bool]:
        """A candidate's score less that of the rule, on instances with weights, and whether it may be chosen."""
        own, rule = (float(scores(each, self.objective, weights)[0]) for each in (played, base))
        return own - rule, True

    def spread(self, play: Callable[..., Played], jobs: Sequence[tuple[Any, ...]]) -> list[Played]:
        """Results of `play` for each job, in order; computed here and in up to `workers` Ray tasks.

        The last argument of a job is its instance. Those with most servers start first.
        """
        task = ray.remote(num_cpus=1, max_retries=MAX_RESTARTS)(play)
        waiting = deque(sorted(range(len(jobs)), key=lambda j: -jobs[j][-1].env.cluster.num_rows))
        running: dict[Any, int] = {}
        results: dict[int, Played] = {}
        while waiting or running:
            while waiting and len(running) < self.workers:
                job = waiting.popleft()
                running[task.remote(*jobs[job])] = job
            if waiting:
                job = waiting.popleft()
                results[job] = play(*jobs[job])
            if running:
                # Without waiting, as long as this process has something to play.
                ended, _ = ray.wait(list(running), num_returns=len(running), timeout=0 if waiting else None)
                results |= {running.pop(reference): ray.get(reference) for reference in ended}
        return [results[job] for job in range(len(jobs))]

    def save(self, folder: Path) -> None:
        """Pickle the training state, in one piece: an optimizer refers to the weights of its network."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / STATE).write_bytes(pickle.dumps({name: getattr(self, name) for name in self.state}))

    def load(self, folder: Path) -> None:
        """Restore the state that `save` wrote."""
        vars(self).update(pickle.loads((folder / STATE).read_bytes()))


def seed_sequence(seed: int, stream: int, epoch: int = 0) -> np.random.SeedSequence:
    """Entropy for one random stream of a trial."""
    return np.random.SeedSequence((*words_of(seed), epoch), spawn_key=(stream,))


def draw_instances(trial: TrialConfig, count: int, stream: int, epoch: int = 0) -> list[Instance]:
    """Episodes that the trial's seed and the epoch determine; their loads, or kinds of a family, are stratified.

    The number of episodes is inversely proportional to the number of servers, and each number of servers has the same
    total weight. This minimises the standard error for a given time, as the cost of an episode grows with its servers
    and its variance falls.

    Workload seeds are random 63-bit numbers, so they differ from any seed that a person chooses.
    """
    generator = np.random.default_rng(seed_sequence(trial.seed, stream, epoch))
    loads = (generator.permutation(count) + generator.random(count)) / count
    seeds = generator.integers(2**63, size=count)
    problems = trial.algorithm.problems or ProblemsConfig()
    if problems.family is not None:
        first, drawn = float(generator.random()), int(generator.integers(2**63))
        envs = [draw_played(problems, trial.env, drawn, k, (k + first) / count) for k in range(count)]
        return [Instance(env, seed, 1 / count) for env, seed in zip(envs, seeds.tolist(), strict=True)]
    env = trial.env
    if env.on_replicas:
        env = env.with_part("validation" if stream == VALIDATION else "fitting")
    counts = shares(count, [1 / env.cluster.num_servers for env in problems.all(trial.env)])
    sizes = np.repeat(np.arange(len(counts)), counts)
    return [
        Instance(problems.draw(env, (size + 0.5) / len(counts), load), seed, 1 / (len(counts) * counts[size]))
        for size, load, seed in zip(sizes.tolist(), loads.tolist(), seeds.tolist(), strict=True)
    ]


def shares(count: int, weights: Sequence[float]) -> list[int]:
    """Positive integers that add up to `count`, approximately proportional to the weights (Jefferson's method).

    >>> shares(12, [1 / 8, 1 / 16, 1 / 32, 1 / 64])
    [7, 3, 1, 1]

    Raises:
        ValueError: there are more weights than `count`.
    """
    if len(weights) > count:
        raise ValueError(f"{count} cannot be {len(weights)} numbers of 1 and more")
    found = [1] * len(weights)
    for _ in range(count - len(weights)):
        found[max(range(len(weights)), key=lambda k: weights[k] / (found[k] + 1))] += 1
    return found


def scores(outcomes: Sequence[Outcomes], objective: str, weights: Sequence[float] | None = None) -> Floats:
    """(C,) mean of ln(objective [s]) over instances, for each candidate; instances without tasks are left out.

    Args:
        outcomes: of the candidates, one for each instance.
        objective: a key of OBJECTIVES.
        weights: of the instances; equal by default.

    Raises:
        RuntimeError: no instance has a task.
    """
    parts = [(weight, k) for k, weight in enumerate(OBJECTIVES[objective]) if weight > 0]
    nonempty = [i for i, played in enumerate(outcomes) if played.response_s[0] > 0]
    if not nonempty:
        raise RuntimeError("no task arrived in any episode of an epoch: the horizon is too short")
    of_each = [np.sum([weight * np.log(outcomes[i][k]) for weight, k in parts], axis=0) for i in nonempty]
    chosen = None if weights is None else [weights[i] for i in nonempty]
    return np.asarray(np.average(of_each, axis=0, weights=chosen))
