"""The places on which the attempts of a schedule run: lanes of a chart, threads of a trace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import ClusterConfig


def first_places(cluster: ClusterConfig) -> NDArray[np.int64]:
    """(num_servers + 1,) the first place of each server, places numbered server by server, then their number."""
    places = [tier.max_concurrent for tier in cluster.tiers for _ in range(tier.count)]
    return np.cumsum([0, *places], dtype=np.int64)


def places_of(schedule: np.ndarray, cluster: ClusterConfig) -> NDArray[np.int64]:
    """(S,) the place of each attempt: the lowest of its server that is free at its start, as the simulator takes it.

    Where none is free, as measured times of a live cluster may say, the one that is free next.

    Args:
        schedule: (S,) attempts with server, start_s and finish_s (NaN: not finished).
        cluster: its servers.
    """
    first = first_places(cluster)
    free_s, places = np.full(first[-1], -np.inf), np.empty(len(schedule), dtype=np.int64)
    finish_s = np.where(np.isnan(schedule["finish_s"]), np.inf, schedule["finish_s"])
    for attempt in np.argsort(schedule["start_s"], kind="stable"):
        start, server = schedule["start_s"][attempt], schedule["server"][attempt]
        own = free_s[first[server] : first[server + 1]]
        place = np.argmin(np.maximum(own, start))
        own[place], places[attempt] = finish_s[attempt], first[server] + place
    return places


def with_places(schedule: np.ndarray, cluster: ClusterConfig) -> ClusterConfig:
    """The cluster with as many places for each server as one of them ever needs: replicas batch what they have."""
    times = np.concatenate([schedule["start_s"], schedule["finish_s"]])
    change = np.repeat([1, -1], len(schedule))
    order = np.lexsort((change, times, np.tile(schedule["server"], 2)))
    most = int(np.cumsum(change[order]).max(initial=1))
    tiers = tuple(tier.model_copy(update={"max_concurrent": most}) for tier in cluster.tiers)
    return cluster.model_copy(update={"tiers": tiers})
