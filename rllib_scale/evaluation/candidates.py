"""Many candidates of a search on one workload, and the rule that the search is measured by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.evaluation.workflows import completions_s
from rllib_scale.observation.policy import Policy
from rllib_scale.schedulers.context import Floats
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.generators import generate

BASES = {"fixed": "fastest-idle", "replica": "lmetric:gate=1"}
"""Reference policy of a search by service of the problem; it is played in the problem's own mode."""


class Instance(NamedTuple):
    """One episode: the problem, what decides its workload, which is episode 0 of that seed, and how much it counts."""

    env: EnvConfig
    seed: int
    weight: float = 1.0


class Outcomes(NamedTuple):
    """Metrics of an instance, (C,) each. Unfinished work counts up to the end."""

    response_s: Floats  # mean over the tasks that arrived
    makespan_s: Floats  # mean over the workflows that arrived; on replicas over whole turns
    tail_s: Floats  # 95th percentile of the JCT; on replicas the mean time of the slowest hundredth of calls
    completed: Floats  # tasks
    decisions: Floats
    # On replicas, of calls and of turns: 99th percentile, open ones by their age.
    call_p99_s: Floats = np.zeros(0)
    turn_p99_s: Floats = np.zeros(0)


def play_base(instance: Instance, rule: str | None = None) -> Outcomes:
    """(1,) what comes of it with a rule, by default that of BASES."""
    env = instance.env
    rule = rule or BASES[env.service.name]
    return outcomes_of(make_scheduler(rule, env.observation, env.episode.mask), 1, instance)


def outcomes_of(player: Policy, copies: int, instance: Instance) -> Outcomes:
    """(C,) what comes of an instance with a player, in as many copies of the same episode, side by side.

    A player may decide otherwise in each copy, as `ContextPrice` with the weights of C candidates.
    """
    replicas = instance.env.on_replicas
    workload = None if replicas else generate(instance.env, instance.seed, 0)
    engine = play(player, instance.env, instance.seed, [0] * copies)
    rows = []
    for b in range(copies):
        metrics, end = engine.metrics(b), float(engine.clock[b])
        if workload is None:
            whole = ("response_censored_s", "jct_mean_s", "response_tail_s", "completed", "decisions")
            names = (*whole, "response_censored_p99_s", "jct_censored_p99_s")
            rows.append(tuple(metrics[name] for name in names))
            continue
        ends = np.minimum(completions_s(workload, engine.schedule(b)), end)
        makespans = (ends - workload.arrival_s)[workload.arrival_s <= end]
        rows.append(
            (
                metrics["response_censored_s"],
                *((makespans.mean(), np.quantile(makespans, 0.95)) if len(makespans) else (np.nan, np.nan)),
                metrics["completed"],
                metrics["decisions"],
            )
        )
    return Outcomes(*np.array(rows, dtype=np.float64).T)
