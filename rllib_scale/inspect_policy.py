"""An evaluation episode looked into, decision by decision: what was chosen, what came of it, what the network saw."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.experiments.replay import Episode, Replay
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.heuristics import SCHEDULERS
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.workflow import Workload
from rllib_scale.simulator.workload import generate

STARTED = "started"
NO_FIT = "invalid: too small, or an empty slot"
AVOIDABLE = "invalid: busy, while an idle one fits"
UNAVOIDABLE = "invalid: busy, and no idle one fits"
DECISION = np.dtype(
    [
        ("clock_s", "f8"),
        ("workflow", "i8"),  # of the task that is decided on
        ("task", "i8"),
        ("server", "i8"),
        ("outcome", "U40"),  # STARTED, or the cause of an invalid decision
    ]
)
IDLE, BUSY, TOO_SMALL, EMPTY = "idle and fits", "busy", "too small", "empty slot"


@dataclass(frozen=True, eq=False)
class Inspection:
    """The decisions of an episode. Shapes: K decisions, N server slots.

    Attributes:
        episode: it, played to its end.
        workload: the workflows that arrived.
        decisions: (K,) DECISION. A dispatcher decides on many tasks at once: its starts stand for decisions.
        observations: (K, 5 + 5N) what each was decided on; none of a dispatcher.
        servers: (K, N) IDLE, BUSY, TOO_SMALL or EMPTY for the task that is decided on; none of a dispatcher.
    """

    episode: Episode
    workload: Workload
    decisions: NDArray[Any]
    observations: NDArray[np.float32] | None = None
    servers: NDArray[np.str_] | None = None


@dataclass(frozen=True, eq=False)
class DecisionView:
    """What a trained policy made of one decision.

    Attributes:
        probabilities: (N,) by which it would draw a server; argmax takes the largest.
        attention: (L, H, N) weights of each block and head over the servers; none where the network has no
            cross-attention.
    """

    probabilities: NDArray[np.float64]
    attention: NDArray[np.float64] | None


def inspect_episode(replay: Replay, row: Mapping[str, Any]) -> Inspection:
    """Play the episode of a row of episodes.parquet again and note every decision.

    Raises:
        UserError: see `Replay.episode`.
    """
    watched = _Watched([], [], [])
    episode = replay.episode(row, watch=watched)
    workload = generate(episode.unit.env, episode.unit.seed, episode.episode)
    player, schedule = episode.player, episode.schedule
    if isinstance(player, Dispatcher):
        decisions = np.empty(len(schedule), dtype=DECISION)
        decisions["clock_s"], decisions["outcome"] = schedule["start_s"], STARTED
        for name in ("workflow", "task", "server"):
            decisions[name] = schedule[name]
        return Inspection(episode, workload, decisions)
    decisions = np.array(watched.tasks, dtype=DECISION)
    # The engine tells nothing of a choice that it refused. Asked again from the start, a scheduler chooses the same.
    player.reset([(episode.unit.seed, episode.episode)])
    decisions["server"] = [int(player(observation[None])[0]) for observation in watched.observations]
    states = np.array(watched.servers, dtype=np.str_).reshape(len(decisions), -1)
    decisions["outcome"] = [_outcome(*both) for both in zip(states, decisions["server"].tolist(), strict=True)]
    return Inspection(episode, workload, decisions, np.array(watched.observations), states)


def look(inspected: Inspection, decision: int) -> DecisionView | None:
    """Attention and probabilities at a decision, counted from 0; none of a heuristic, which has no network."""
    policy = inspected.episode.player
    if inspected.observations is None or policy.name in SCHEDULERS:
        return None
    import torch

    from rllib_scale.models.attention import attention
    from rllib_scale.models.cross_attention import CrossAttentionPointer
    from rllib_scale.policy import TrainedPolicy

    assert isinstance(policy, TrainedPolicy)
    network = copy.deepcopy(policy.network)
    network.inputs.mask_infeasible = policy.mask == "feasible"  # as a scheduler it masks outside its network
    observation = torch.from_numpy(inspected.observations[decision])
    if isinstance(network, CrossAttentionPointer):
        seen = attention(network, observation)
        return DecisionView(seen.probabilities.double().numpy(), seen.weights.double().numpy())
    with torch.no_grad():
        probabilities = torch.softmax(network(observation[None])[1][0], -1)
    return DecisionView(probabilities.double().numpy(), None)


@dataclass
class _Watched:
    """Is shown the engine before each decision and keeps what there is to decide on."""

    observations: list[NDArray[np.float32]]
    tasks: list[tuple[float, int, int, int, str]]  # DECISION, the last two open
    servers: list[NDArray[np.str_]]

    def __call__(self, engine: Engine) -> None:
        system = engine.system(0)
        task = system.ready[0]
        state = np.where(system.idle, IDLE, BUSY)
        state[system.memory_gb < task["memory_gb"]] = TOO_SMALL
        state[system.capacity_gflops == 0] = EMPTY
        self.observations.append(engine.observation[0].copy())
        self.tasks.append((system.clock_s, int(task["workflow"]), int(task["task"]), -1, ""))
        self.servers.append(state)


def _outcome(servers: NDArray[np.str_], chosen: int) -> str:
    """What comes of a decision, as the engine counts it."""
    if servers[chosen] == IDLE:
        return STARTED
    if servers[chosen] != BUSY:
        return NO_FIT
    return AVOIDABLE if (servers == IDLE).any() else UNAVOIDABLE
