"""A trial of a policy on a recorded workload: the problem that draws from it, and its episodes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate, played_to_its_end
from rllib_scale.observation.policy import Policy
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.summary import recorded_load

RULES = {
    "fixed": ("non-blocking", "reserve", "hungarian", "dual-price", "adaptive-price"),
    "replica": ("lmetric", "session-affinity:gate=1", "cache-aware", "weighted-scores", "least-outstanding"),
}
"""Policies to compare with by service of the problem, besides the rule of BASES."""
FEWEST, MOST = 100, 500
"""About this number of workflows arrive in an episode; between the two as many as are drawn from."""
SAY_EVERY_S = 10.0


def hashed_seed(seed: int) -> int:
    """The seed of the episodes, to which no training and no other evaluation counts up."""
    return int.from_bytes(hashlib.sha256(f"tryout {seed}".encode()).digest()[:8], "big") >> 1


def load_of(env: EnvConfig, recorded: Workload) -> float:
    """Work of a recorded workload over the capacity of the cluster while it arrives.

    Raises:
        UserError: it arrives all at once, or has no work.
    """
    check_work(recorded)
    load = recorded_load(recorded, env.cluster.total_gflops)
    if load is None:
        raise UserError("--workload: arrives all at once; give its load by --set workload.offered_load=LOAD")
    return load


def check_work(workload: Workload) -> None:
    """Refuse workflows without any work, which are no load.

    Raises:
        UserError: `compute_gflop` is 0 in all of them.
    """
    if workload.mean_gflop <= 0:
        raise UserError(f"--workload: compute_gflop is 0 in all tasks of {workload.num_workflows:,} workflows: no work")


def with_time_to_end(env: EnvConfig, drawn_from: Workload, load: float) -> EnvConfig:
    """The problem with arrivals of FEWEST to MOST workflows, which are that load, and time to finish them."""
    count = min(max(drawn_from.num_workflows, FEWEST), MOST)
    until = count * drawn_from.mean_gflop / (load * env.cluster.total_gflops)
    allowed = played_to_its_end(env, drawn_from).episode.horizon_s * 2 * max(1.0, count / drawn_from.num_workflows)
    clock = {"arrivals_until_s": until, "horizon_s": 2 * until + allowed, "max_decisions": None}
    return env.model_copy(update={"episode": env.episode.model_copy(update=clock)})


def play_beside(
    policies: Sequence[Policy], env: EnvConfig, seed: int, episodes: int, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Rows of `evaluate` of each policy, whose name is their `method`; `say` receives lines about the progress."""
    said = time.monotonic()

    def watch(engine: Engine) -> None:
        nonlocal said
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            say(f"{policy.name}: {int(engine.done.sum())} of {episodes} episodes done")

    for number, policy in enumerate(policies, start=1):
        for row in evaluate(policy, env, seed, episodes, watch):
            yield {"method": policy.name} | row
        say(f"{policy.name} has played: {number} of {len(policies)} schedulers")
