"""The search for an instance on which one scheduler does badly against another: simulated annealing on Ray.

Source: J. Coleman, B. Krishnamachari, PISA: an adversarial approach to comparing task graph scheduling algorithms,
arXiv 2403.07120, 2024. There tasks and networks are annealed; here it is the settings by which a workload is drawn, the
cluster, and the draw itself, within RANGES, and several neighbours are played at once, of which the worst is taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play, played_to_its_end
from rllib_scale.evaluation.players import named_scheduler
from rllib_scale.files import write_atomic
from rllib_scale.sweeps.evolution import spread
from rllib_scale.workloads.generators import TOPOLOGIES, generate
from rllib_scale.workloads.model import Workload

METRICS = {"response": "response_mean_s", "makespan": "makespan_mean_s"}
RANGES: dict[str, tuple[float, float]] = {
    "offered_load": (0.3, 1.1),
    "min_tasks": (1, 6),
    "more_tasks": (0, 10),  # max_tasks less min_tasks
    "compute_mean": (2, 20),  # GFLOP, at least 1
    "compute_std": (0, 10),
    "memory_mean": (0.05, 0.6),  # of the largest server's
    "memory_std": (0, 0.4),
    "output_mean": (0.01, 5),  # GB
    "bandwidth": (0.5, 20),  # GB/s
    "topology": (0, len(TOPOLOGIES) - 1),
}
"""What is annealed, and between what limits; and of each tier how many servers it has, 1 to MOST_SERVERS."""
MOST_SERVERS = 8
ARRIVALS_S = 30.0
"""Workflows arrive for so long: instances that a person can look at."""
NEIGHBOURS = 8
"""Played in a generation."""
HOTTEST, STEP = 0.1, 0.15
"""Temperature of the first generation, of the logarithm of the ratio; deviation of a move, of a range."""
PLAYED_AS = (1000, 0)
"""Seed and episode of what is drawn while an instance is played: those of `simulate`."""

Point = NDArray[np.float64]


class Duel(NamedTuple):
    """An instance and what came of it."""

    ratio: float  # of the first scheduler's metric to the other's; 0 of an instance that either did not finish
    first: float
    other: float
    env: EnvConfig
    workload: Workload


def problem_of(base: EnvConfig, point: Point) -> EnvConfig:
    """The problem at a point of the unit cube, one coordinate for each of RANGES and each tier of `base`."""
    spans = [*RANGES.values(), *[(1.0, float(MOST_SERVERS))] * len(base.cluster.tiers)]
    values = [low + x * (high - low) for x, (low, high) in zip(point.tolist(), spans, strict=True)]
    at = dict(zip(RANGES, values, strict=False))
    largest = max(tier.memory_gb for tier in base.cluster.tiers)
    least = round(at["min_tasks"])
    data = base.model_dump(mode="json")
    data["cluster"]["bandwidth_gb_s"] = at["bandwidth"]
    for tier, count in zip(data["cluster"]["tiers"], values[len(RANGES) :], strict=True):
        tier["count"] = round(count)
    data["workload"] |= {
        "offered_load": at["offered_load"],
        "min_tasks": least,
        "max_tasks": least + round(at["more_tasks"]),
        "compute_gflop": {"mean": at["compute_mean"], "std": at["compute_std"], "low": 1.0, "bound": "truncate"},
        "memory_gb": {
            "mean": at["memory_mean"] * largest,
            "std": at["memory_std"] * largest,
            "low": min(1.0, largest),
            "high": largest,
        },
        "output_gb": {"mean": at["output_mean"], "std": 0.4 * at["output_mean"], "low": 0.01},
        "topology": TOPOLOGIES[round(at["topology"])],
    }
    data["episode"] |= {"arrivals_until_s": ARRIVALS_S}
    return EnvConfig.model_validate(data)


def duel(names: tuple[str, str], metric: str, base: EnvConfig, point: Point, seed: int) -> Duel:
    """Both schedulers on the workload that the problem at a point draws with a seed, to its end."""
    env = problem_of(base, point)
    workload = generate(env, seed, 0)
    env = played_to_its_end(env, workload)
    found = []
    for name in names:
        scheduler = named_scheduler(name, env, "argmax")
        metrics = play(scheduler, env, PLAYED_AS[0], [PLAYED_AS[1]], workload=workload).metrics()
        done = metrics["workflows_completed"] == workload.num_workflows > 0
        found.append(float(metrics[METRICS[metric]]) if done else math.nan)
    ratio = found[0] / found[1]
    return Duel(ratio if math.isfinite(ratio) else 0.0, found[0], found[1], env, workload)


class Adversary:
    """Simulated annealing for the worst ratio of one scheduler to another.

    All that is tried follows from the seed and the generation: how many processes play changes nothing.

    Args:
        first: the scheduler that is to do badly.
        other: the one that it is measured by.
        base: a problem of synthetic workflows, for all that is not annealed.
        metric: a key of METRICS.
        seed: decides every draw.
        remote: Ray tasks that play beside this process; 0 takes no Ray.

    Raises:
        UserError: the problem's workflows are not synthetic, or a scheduler is not known or cannot play it.
    """

    def __init__(self, first: str, other: str, base: EnvConfig, metric: str, seed: int, remote: int = 0) -> None:
        if not base.workload.drawn_on_arrival:
            raise UserError("adversary: the scenario's workflows are of a trace or a table; valid: synthetic ones")
        self.names, self.base, self.metric, self.seed, self.remote = (first, other), base, metric, seed, remote
        self.generation = 0
        self.best: Duel | None = None
        self._at: tuple[Point, int, float] | None = None  # point, workload's seed, ratio
        for name in self.names:
            scheduler = named_scheduler(name, base, "argmax")
            if hasattr(scheduler, "check"):
                scheduler.check(base)

    def step(self, progress: float) -> bool:
        """One generation, at a share of the search that is over; returns whether it found a new best."""
        rng = np.random.default_rng(np.random.SeedSequence((self.seed % 2**32, self.seed >> 32, self.generation)))
        size = len(RANGES) + len(self.base.cluster.tiers)
        tried: list[tuple[Point, int]] = []
        for _ in range(NEIGHBOURS):
            point, seed = rng.random(size), int(rng.integers(2**63))
            if self._at is not None:
                # Two settings in expectation move; a third of the neighbours are of the same draw.
                moves = STEP * rng.standard_normal(size) * (rng.random(size) < 2 / size)
                point = np.clip(self._at[0] + moves, 0.0, 1.0)
                seed = self._at[1] if rng.random() < 1 / 3 else seed
            tried.append((point, seed))
        jobs = [(self.names, self.metric, self.base, *one) for one in tried]
        played = spread(duel, jobs, self.remote)
        k = int(np.argmax([one.ratio for one in played]))
        temperature = HOTTEST * (1.0 - progress)
        if self._at is None or rng.random() < _acceptance(played[k].ratio, self._at[2], temperature):
            self._at = (*tried[k], played[k].ratio)
        self.generation += 1
        if played[k].ratio > (0.0 if self.best is None else self.best.ratio):
            self.best = played[k]
            return True
        return False

    def run(
        self, generations: int | None, seconds: float, output: Path, say: Callable[[str], None] = lambda line: None
    ) -> Duel:
        """Search until so many generations or seconds are over; every new best is written at once.

        Raises:
            UserError: no instance was found that both schedulers finish, or a file cannot be written.
        """
        start = time.monotonic()
        try:
            while (passed := time.monotonic() - start) < seconds and self.generation != generations:
                over = passed / seconds if generations is None else self.generation / generations
                if self.step(over) and self.best is not None:
                    self.write(output)
                    say(f"generation {self.generation}, {passed:.0f} s: {self._line()}")
                elif self.generation % 20 == 0:
                    say(f"generation {self.generation}, {passed:.0f} s: no worse one; so far {self._line()}")
        finally:  # also of a search that is broken off: both files are of one instance
            if self.best is not None:
                self.write(output)
        if self.best is None:
            raise UserError(f"adversary: no instance in {self.generation} generations that both schedulers finish")
        return self.best

    def _line(self) -> str:
        best = self.best
        return "nothing" if best is None else f"ratio {best.ratio:.3f}, {best.workload.num_tasks} tasks"

    def write(self, output: Path) -> None:
        """Write the best instance: its workload, and beside it `settings_file` with the problem to play it in."""
        if self.best is None:
            raise ValueError("nothing was found yet")
        first, other = self.names
        head = f"# {first} against {other}: {METRICS[self.metric]} {self.best.first!r} s and {self.best.other!r} s.\n"
        text = head + yaml.safe_dump(self.best.env.model_dump(mode="json"), sort_keys=False)
        self.best.workload.save(output)
        write_atomic(settings_file(output), lambda path: path.write_text(text, encoding="utf-8"))


def settings_file(output: Path) -> Path:
    """Where the settings of a workload file stand, as `simulate --config` takes them."""
    return output.with_suffix(".yaml")


def _acceptance(ratio: float, current: float, temperature: float) -> float:
    """Probability to go on from a candidate [Metropolis et al. 1953], of ratios by their logarithms."""
    if ratio >= current:
        return 1.0
    if ratio <= 0.0 or temperature <= 0.0:
        return 0.0
    return math.exp((math.log(ratio) - math.log(current)) / temperature)
