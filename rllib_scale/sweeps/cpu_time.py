"""Estimated CPU time of a sweep, from measured rates."""

from __future__ import annotations

import math

from rllib_scale.config import PPO, EnvConfig, Reinforce, TrialConfig
from rllib_scale.config.algorithms import Searched
from rllib_scale.config.plan import EvaluationUnit, Plan
from rllib_scale.errors import counted

MEASURED_ON = "two cores of an AMD EPYC"
SWEEP_S, START_S = 45.0, 9.0
"""CPU time of the driver, Ray and the report, as in the preset `smoke`; and of the start of a training."""
RATES = {
    "sampling": (0.108, 0.00024),
    "pass": (0.0134, 0.00024),
    "DQN": (1.55, 0.020),
    "SAC": (2.63, 0.038),
    "Imitation": (0.032, 0.0008),
    "Searched": (0.01, 0.0),
    "Reinforce": (1.93, 0.038),
    "rule": (0.1, 0.0),
    "policy": (0.106, 0.0021),
}
"""CPU seconds of 1000 units without servers, and more for each server, by `python -m benchmarks rates --rounds 1`.

A unit is an env step, and of searches, REINFORCE, rules and policies a task of an episode. PPO's network is that of
`scale`, and a pass is one of its `passes`; rules are the mean of four.
"""


def cpu_hours(plan: Plan) -> tuple[float, list[str]]:
    """CPU hours of a whole sweep, and the parts of unknown size that they leave out."""
    trainings = [_training_s(trial.config) for trial in plan.trials]
    evaluations = [_evaluation_s(unit) for unit in plan.units]
    left_out = [
        counted(seconds.count(None), noun)
        for seconds, noun in ((trainings, "training"), (evaluations, "evaluation"))
        if None in seconds
    ]
    known = [seconds for seconds in (*trainings, *evaluations) if seconds is not None]
    return (SWEEP_S + sum(known)) / 3600, left_out


def sentence(plan: Plan) -> str:
    """The CPU time of a sweep, for people."""
    hours, left_out = cpu_hours(plan)
    said = f"about {rough(hours)} if nothing of it is done (rates of {MEASURED_ON})"
    return f"{said}, without {' and '.join(left_out)} on given workloads, whose size is not known" if left_out else said


def rough(hours: float) -> str:
    """A CPU time with the digits that an estimate deserves.

    >>> rough(0.034), rough(3.14), rough(1234.5)
    ('2 CPU minutes', '3.1 CPU hours', '1,200 CPU hours')
    """
    number, unit = (hours, "hour") if hours >= 1 else (max(60 * hours, 1), "minute")
    tens = max(0, math.floor(math.log10(number)) - 1)
    shown = f"{number:.1f}".removesuffix(".0") if unit == "hour" and number < 9.95 else f"{round(number, -tens):,.0f}"
    return f"{shown} CPU {unit}{'' if shown == '1' else 's'}"


def units_per_epoch(trial: TrialConfig) -> float | None:
    """Units of work of an epoch: env steps, or tasks of the episodes that it plays; None if they cannot be known."""
    if trial.env_steps_per_epoch is not None:
        return float(trial.env_steps_per_epoch)
    algorithm, tasks = trial.algorithm, workload_tasks(trial.env)
    if tasks is None:
        return None
    copies = algorithm.population if isinstance(algorithm, Searched) else 1
    copies = algorithm.episodes if isinstance(algorithm, Reinforce) else copies
    assert isinstance(algorithm, Searched | Reinforce)
    return tasks * copies * algorithm.instances


def workload_tasks(env: EnvConfig) -> float | None:
    """Mean number of tasks that arrive in an episode; None for those of a trace, a table, user code or sessions."""
    if env.on_replicas or not env.workload.is_synthetic:
        return None
    seconds = min(env.episode.horizon_s, env.episode.arrivals_until_s or math.inf)
    return env.arrival_rate * seconds * (env.workload.min_tasks + env.workload.max_tasks) / 2


def _training_s(trial: TrialConfig) -> float | None:
    units, problems = units_per_epoch(trial), trial.algorithm.problems
    sizes = problems.sizes if problems is not None and problems.sizes else (trial.env.cluster.num_servers,)
    servers = sum(sizes) / len(sizes)
    if units is None:
        return None
    if isinstance(trial.algorithm, PPO):
        each = _rate("sampling", servers) + trial.algorithm.passes * _rate("pass", servers)
    else:
        kind = "Searched" if isinstance(trial.algorithm, Searched) else type(trial.algorithm).__name__
        each = _rate(kind, servers)
    return START_S + trial.stop_epochs * units * each


def _evaluation_s(unit: EvaluationUnit) -> float | None:
    tasks = workload_tasks(unit.env)
    kind = "policy" if unit.learned or unit.policy is not None else "rule"
    return None if tasks is None else unit.episodes * tasks * _rate(kind, unit.env.cluster.num_servers)


def _rate(kind: str, servers: float) -> float:
    """CPU seconds of a unit."""
    alone, more = RATES[kind]
    return (alone + more * servers) / 1000
