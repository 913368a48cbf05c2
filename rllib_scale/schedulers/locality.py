"""Rules that know where a task's input is, and those by which routers share out load.

They read the feature set `rounds`, and play any problem: with `on_busy: step` they wait as every rule does, with
`on_busy: reserve` a busy server they name is reserved, and with `mask: feasible` they choose among the open ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_scale.observation.feature_sets import ObservationView
from rllib_scale.schedulers.base import Rule


class LocalityRule(Rule):
    """A rule over the feature set `rounds`, whatever the problem's is."""

    feature_set = "rounds"

    def pool(self, v: ObservationView) -> np.ndarray:
        """(B, N) bool: servers to choose from: those that fit, with a mask those that are open, where there are any."""
        if self.mask == "none":
            return v.fits
        return np.where(v.feasible.any(axis=1, keepdims=True), v.feasible, v.fits)


class EarliestFinishTransfer(LocalityRule):
    """The server that would finish the task first, its tasks awaited and the input moved."""

    name = "earliest-finish-transfer"
    description = "the server that would finish the task first, its tasks awaited and the task's input moved"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        return np.where(v.fits, -_finish(v, self.parameters.waiting), -np.inf)


class Sticky(LocalityRule):
    """The server where the task's input is, unless the wait there is longer than moving it; else as earliest finish."""

    name = "sticky"
    description = "where the task's input is, unless the wait is longer than moving it; else earliest-finish-transfer"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        home, moving = _home(v)
        wait = np.min(v.wait, axis=1, where=home, initial=np.inf, keepdims=True)
        finish = _finish(v, self.parameters.waiting)
        stays = (moving > 0) & (wait <= moving)
        return np.where(stays, _ranked(~v.fits, finish, first=home), _ranked(finish, first=v.fits))


class PowerOfTwo(LocalityRule):
    """Of two random servers the one that is available earlier.

    Source: M. Mitzenmacher, The power of two choices in randomized load balancing, IEEE TPDS 12(10), 2001.
    """

    name = "power-of-two"
    description = "of two random servers that fit the one that is available earlier"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        return _of_two(v, self.pool(v), self.draw(v.capacity.shape[1]))


class LeastLoaded(LocalityRule):
    """The server with the smallest share of busy places; an open one, where there is one."""

    name = "least-loaded"
    description = "the open server with the smallest share of busy places, ties at random; else the next free"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        first = np.where(v.feasible.any(axis=1, keepdims=True), v.feasible, v.fits)
        load = np.where(v.feasible, v.load, 0.0)
        return _ranked(load, v.wait, self.draw(v.capacity.shape[1]), first=first)


class PrefixAffinity(LocalityRule):
    """The server that holds the prefix, unless the load is out of balance: as Ray Serve's PrefixCacheAffinityRouter.

    The prefix of a task, its KV cache, is where its first predecessor ran. The load of a server is the share of its
    places that are busy. Where two servers' loads differ by more than `imbalance`, power-of-two decides. A task without
    a prefix goes to the server with the least memory in use. (Ray Serve 2.60 counts requests, not shares, and compares
    prefixes by their text: with less than a tenth in common it takes the server that holds the fewest characters.)
    """

    name = "prefix-affinity"
    description = "the server with the prefix (KV cache), unless loads differ too much, then power-of-two"

    def rate(self, v: ObservationView) -> np.ndarray:
        """See `Rule.rate`."""
        random = self.draw(v.capacity.shape[1])
        pool = self.pool(v)
        home, moving = _home(v)
        highest = np.max(v.load, axis=1, where=v.fits, initial=0.0, keepdims=True)
        lowest = np.min(v.load, axis=1, where=v.fits, initial=1.0, keepdims=True)
        balanced = highest - lowest <= self.parameters.imbalance
        used = v.memory - v.free
        least_used = _ranked(used, v.wait, random, first=pool)
        calm = np.where(moving > 0, _ranked(~pool, v.wait, random, first=home), least_used)
        return np.where(balanced, calm, _of_two(v, pool, random))


def _finish(v: ObservationView, waiting: float) -> np.ndarray:
    """(B, N) seconds until a server would have finished the task; those of waiting count so many times."""
    return waiting * v.wait + v.transfer + v.execution_s


def _home(v: ObservationView) -> tuple[np.ndarray, np.ndarray]:
    """(B, N) servers that fit with the least to be moved there; (B, 1) what moving elsewhere takes more, at most."""
    lowest = np.min(v.transfer, axis=1, where=v.fits, initial=np.inf, keepdims=True)
    highest = np.max(v.transfer, axis=1, where=v.fits, initial=0.0, keepdims=True)
    return v.fits & (v.transfer == lowest), highest - np.minimum(lowest, highest)


def _of_two(v: ObservationView, pool: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Scores (B, N): the two of the pool with the largest random numbers, first the one with the shorter wait."""
    drawn = np.argsort(np.argsort(np.where(pool, -random, 1.0), axis=1, kind="stable"), axis=1, kind="stable")
    return _ranked(drawn >= 2, v.wait, drawn, first=pool)


def _ranked(*keys: Any, first: np.ndarray) -> np.ndarray:
    """Scores (B, N) by keys, the smallest first, the earlier keys decide; those of `first` above all others."""
    shape = first.shape
    order = np.lexsort([*(np.broadcast_to(key, shape) for key in reversed(keys)), ~first], axis=-1)
    scores = np.empty(shape)
    np.put_along_axis(scores, order, -np.arange(shape[1], dtype=np.float64)[None, :], axis=1)
    return scores
