"""An evaluation episode looked into, decision by decision: what was chosen, what came of it, what the network saw."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.envs.gantt import draw_gantts, film, save_film
from rllib_scale.evaluation.replay import Episode, Replay
from rllib_scale.observation.answers import CLOSED, OPEN, TAKEN
from rllib_scale.observation.feature_sets import first_candidate, view
from rllib_scale.schedulers.base import Scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

STARTED = "started"
NO_FIT = "invalid: too small, or an empty row"
AVOIDABLE = "invalid: busy, while an idle one fits"
UNAVOIDABLE = "invalid: busy, and no idle one fits"
WAITS = "waits for it"
DECISION = np.dtype(
    [
        ("clock_s", "f8"),
        ("workflow", "i8"),  # of the task that is decided on
        ("task", "i8"),
        ("server", "i8"),
        ("outcome", "U40"),  # STARTED, or the cause of an invalid decision
    ]
)
IDLE, BUSY, TOO_SMALL, EMPTY = "idle and fits", "busy", "too small", "empty row"


MOST_BYTES = 2**28
"""Limit of the kept observations of one episode."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """The decisions of an episode. Shapes: K decisions, N servers.

    Attributes:
        episode: it, played to its end.
        workload: the workflows that arrived.
        decisions: (K,) DECISION. A dispatcher decides on many tasks at once: its starts count as decisions.
        observations: (K, W) what each was decided on; none of a dispatcher, or with more than MOST_BYTES of them.
        fit: (K, N) how each server was for the task; none where there are no observations.
    """

    episode: Episode
    workload: Workload
    decisions: NDArray[Any]
    observations: NDArray[np.float32] | None = None
    fit: NDArray[np.uint8] | None = None

    @property
    def is_dispatched(self) -> bool:
        """Whether a dispatcher played."""
        return not self.episode.player.per_task

    def servers(self, decision: int) -> NDArray[np.str_] | None:
        """(N,) IDLE, BUSY, TOO_SMALL or EMPTY for the task of a decision, as its scheduler saw them."""
        player: Any = self.episode.player
        if self.observations is None or self.fit is None or self.is_dispatched:
            return None
        seen = view(self.observations[decision, None], self.fit[decision, None, None], player.observation)
        state = np.where(seen.feasible[0], IDLE, BUSY)
        state[~seen.fits[0]] = TOO_SMALL
        state[seen.capacity[0] == 0] = EMPTY
        return state


@dataclass(frozen=True, eq=False)
class DecisionView:
    """One decision of a trained policy.

    Attributes:
        probabilities: (N,) by which it would draw a server; argmax takes the largest.
        attention: (L, H, N) weights of each block and head over the servers; none where the network has no
            cross-attention.
    """

    probabilities: NDArray[np.float64]
    attention: NDArray[np.float64] | None


def inspect_episode(replay: Replay, row: Mapping[str, Any]) -> Inspection:
    """Play the episode of a row of `episodes` again and note every decision.

    Raises:
        UserError: see `Replay.episode`.
    """
    recorders: list[_Recorder] = []

    def recorded(player: Any) -> Any:
        if not player.per_task:
            return player
        recorders.append(_Recorder(player))
        return recorders[0]

    episode = replay.episode(row, recorded)
    workload = generate(episode.unit.env, episode.unit.seed, episode.episode)
    if not recorders:
        schedule = episode.schedule
        decisions = np.empty(len(schedule), dtype=DECISION)
        decisions["clock_s"], decisions["outcome"] = schedule["start_s"], STARTED
        for name in ("workflow", "task", "server"):
            decisions[name] = schedule[name]
        return Inspection(episode, workload, decisions)
    decided, seen = np.array(recorders[0].decisions, dtype=DECISION), recorders[0].seen
    kept = (None, None) if seen is None else map(np.array, zip(*seen, strict=True))
    return Inspection(episode, workload, decided, *kept)


def film_of(inspected: Inspection) -> bytes:
    """The schedule of the episode as it comes about: a GIF."""
    unit, written = inspected.episode.unit, io.BytesIO()
    title = f"{unit.scheduler} on {unit.scenario}, seed {unit.seed}, episode {inspected.episode.episode}"
    figure = draw_gantts([inspected.episode.chart(title)])
    save_film(film(figure), written)
    return written.getvalue()


def look(inspected: Inspection, decision: int) -> DecisionView | None:
    """Attention and probabilities at a decision, counted from 0; none of a heuristic, which has no network."""
    policy: Any = inspected.episode.player
    if inspected.observations is None or not hasattr(policy, "network"):
        return None
    import torch

    from rllib_scale.networks.cross_attention import CrossAttentionPointer

    network = policy.network
    observation = torch.from_numpy(inspected.observations[decision])
    mask = None
    if (policy.mask == "feasible" or policy.reserves) and inspected.fit is not None:
        # As a scheduler it masks outside its network.
        feasible = inspected.fit[decision] >= (TAKEN if policy.reserves else OPEN)
        mask = torch.from_numpy(feasible) if feasible.any() else None
    if isinstance(network, CrossAttentionPointer):
        weights, probabilities = network.attention_at(observation, mask)
        return DecisionView(probabilities.double().numpy(), weights.double().numpy())
    with torch.no_grad():
        probabilities = torch.softmax(network(observation[None], None if mask is None else mask[None])[1][0], -1)
    return DecisionView(probabilities.double().numpy(), None)


class _Recorder:
    """Plays as a scheduler does, and notes what it decides on, and what comes of it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.problem, self.reset = scheduler.problem, scheduler.reset
        self.decisions: list[tuple[float, int, int, int, str]] = []  # DECISION
        self.seen: list[tuple[NDArray[np.float32], NDArray[np.uint8]]] | None = []  # observation and fit of each

    def advance(self, engine: Engine) -> None:
        """See `Policy.advance`."""
        observation, fit = first_candidate(engine.observation, engine.fit, self.scheduler.observation)
        servers = self.scheduler(engine.observation, engine.fit)
        (workflow, task), server = engine.offers(0)[0], int(servers[0])
        outcome = _outcome(fit[0, 0], server, engine.config.decision.on_busy == "reserve")
        self.decisions.append((float(engine.clock[0]), workflow, task, server, outcome))
        if observation.nbytes * len(self.decisions) > MOST_BYTES:
            self.seen = None
        if self.seen is not None:
            self.seen.append((observation[0].copy(), fit[0, 0].copy()))
        engine.step(servers)


def _outcome(fit: NDArray[np.uint8], chosen: int, waits: bool) -> str:
    """Outcome of a decision, as the engine counts it; `fit` (N,) is the state of each server for the task."""
    if fit[chosen] == CLOSED:
        return NO_FIT
    if fit[chosen] == OPEN:
        return STARTED
    if waits:
        return WAITS
    return AVOIDABLE if (fit == OPEN).any() else UNAVOIDABLE
