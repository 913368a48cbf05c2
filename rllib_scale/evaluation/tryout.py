"""A trial of a policy on a trace of one's own: the problem that resamples it, and its episodes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate, played_to_its_end
from rllib_scale.observation.policy import Policy
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

BASE = "fastest-idle"
RULES = (BASE, "non-blocking", "reserve", "hungarian", "dual-price")
"""What a policy is played beside."""
FEWEST, MOST = 100, 500
"""An episode has about as many workflows as are drawn from, within these limits."""
SAY_EVERY_S = 10.0


def hashed_seed(seed: int) -> int:
    """The seed of the episodes, to which no training and no other evaluation counts up."""
    return int.from_bytes(hashlib.sha256(f"tryout {seed}".encode()).digest()[:8], "big") >> 1


def workflow_rate(trace: Workload) -> float:
    """Workflows per second of a recorded trace.

    Raises:
        UserError: all of them arrive at once, so that it has no rate.
    """
    lasts = float(trace.arrival_s[-1] - trace.arrival_s[0])
    if lasts <= 0:
        raise UserError("workload: its workflows arrive at one time; say how fast they come by workload.offered_load")
    return (trace.num_workflows - 1) / lasts


def at_recorded_load(env: EnvConfig, trace: Workload) -> EnvConfig:
    """The problem at the load that the recorded trace is for its cluster.

    Raises:
        UserError: see `workflow_rate`.
    """
    load = workflow_rate(trace) * trace.mean_gflop / env.cluster.total_gflops
    if not 0 < load <= 1000:
        raise UserError(f"workload: is a load of {load:.3g} for this cluster; valid: above 0, at most 1000")
    return env.model_copy(update={"workload": env.workload.model_copy(update={"offered_load": load})})


def with_whole_episodes(env: EnvConfig, drawn_from: Workload, rate: float, seed: int, episodes: int) -> EnvConfig:
    """The problem with arrivals of as many workflows as are drawn from, about, and time to finish them.

    Args:
        env: draws from a trace.
        drawn_from: the part of the trace that it draws from.
        rate: at which workflows arrive [1/s].
        seed: of the episodes.
        episodes: that are to be played.
    """
    until = min(max(drawn_from.num_workflows, FEWEST), MOST) / rate
    clock = {"arrivals_until_s": until, "horizon_s": 2 * until, "max_decisions": None}
    env = env.model_copy(update={"episode": env.episode.model_copy(update=clock)})
    test = env.for_evaluation()
    ends = [played_to_its_end(env, generate(test, seed, b)).episode.horizon_s for b in range(episodes)]
    clock["horizon_s"] = max(*ends, 2 * until)
    return env.model_copy(update={"episode": env.episode.model_copy(update=clock)})


def play_beside(
    policies: list[Policy], env: EnvConfig, seed: int, episodes: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Rows of `evaluation.play.evaluate` of each policy on the same episodes, with the policy's name as `method`.

    `say` receives a line when a policy has played, and how far it is every SAY_EVERY_S.
    """
    rows = []
    for number, policy in enumerate(policies, start=1):
        said = time.monotonic()

        def watch(engine: Engine, policy: Policy = policy) -> None:
            nonlocal said
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                say(f"{policy.name}: {int(engine.done.sum())} of {episodes} episodes done")

        played = evaluate(policy, env, seed, episodes, watch)
        rows += [{"method": policy.name, **row} for row in played]
        say(f"{number} of {len(policies)} schedulers: {policy.name} has played {episodes} episodes")
    return rows
