"""All changes of a cluster in an episode, as the engine draws them: the reference and the tests are given them."""

from __future__ import annotations

import numpy as np

from rllib_scale.config import ClusterConfig
from rllib_scale.simulator.changes import (
    EVENTS,
    FIRST_STREAM,
    _event_of,
    _following,
    _next_loss,
    at_random,
    rates,
    scheduled,
)
from rllib_scale.workloads.random_numbers import seed_stream


def change_events(config: ClusterConfig, seed: int, episode: int, until_s: float) -> list[tuple[float, str, int]]:
    """Time, event (EVENTS) and server of all changes of an episode until then, in the order in which they happen."""
    failure_rate, departure_rate, repair, notice, return_after = rates(config)
    order = 0
    rows: list[tuple[float, int, int, str, int]] = []
    for order, change in enumerate(scheduled(config).tolist()):
        rows.append((change[0], 0, order, EVENTS[change[1]], change[2]))
    rng = np.empty(4, dtype=np.uint64)
    for server in np.flatnonzero(at_random(config)).tolist():
        seed_stream(rng, seed, episode, FIRST_STREAM + server)
        time, phase = _next_loss(rng, 0.0, failure_rate, departure_rate)
        while time <= until_s:
            rows.append((time, 1, server, EVENTS[_event_of(phase)], server))
            time, phase = _following(rng, time, phase, failure_rate, departure_rate, repair, notice, return_after)
    return [(time, event, server) for time, _, _, event, server in sorted(rows) if time <= until_s]
