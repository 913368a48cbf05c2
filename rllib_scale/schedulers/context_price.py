"""`context-price`: the price rule whose numbers are a linear function of what is seen at each event.

At each event theta = link(W [1, context]), and the tasks that wait are visited as `price` visits them, by
n^a (c/10)^b + age (s since the workflow arrived)/10, each to the server of least

    n^alpha (kappa wait + p) + mu_k p + (penalty where it has to be waited for)

with n its descendants, itself included, c its demand [GFLOP], p its time on a server of class k [s] and `wait` the time
until a place there is free [s] (`visiting`). A class is the servers of one speed; the slowest has price 0, so K classes
have K - 1 prices. analysis/studies/beyond/README.md has every formula.
"""

from __future__ import annotations

import numpy as np

from rllib_scale.observation.view import View
from rllib_scale.schedulers.context import ANY_SIZE, Floats, context_names, interpolation, speeds_of, theta_names
from rllib_scale.schedulers.context_terms import MEMORY, write
from rllib_scale.schedulers.reserving import PricingDispatcher
from rllib_scale.schedulers.visits import NUMBERS, UNITS


class ContextPrice(PricingDispatcher):
    """Prices by a linear function of load, queue, work, idle shares and size, recomputed at each event.

    Its reservations are its own (`visiting`), so that it answers with starts alone.

    Args:
        weights: W (5 + K, 10 + K); rows `theta_names`, columns 1 and then `context_names`. Or (B, 5 + K, 10 + K), one
            for each environment of a batch.
        speeds: (K,) of the classes that W is for [GFLOPS], slowest first.
        sizes: fewest and most places that the entry `size` distinguishes. Beyond, it is that of the nearest of them: a
            line through what was seen at 8 to 64 of them says something about 128 and nothing about 1024.

    Attributes:
        context: (B, 9 + K) of the last event.
        theta: (B, 5 + K) of the last event.
    """

    name = "context-price"
    description = "prices of time on fast servers, a linear function of load, queue and idle places at each event"

    def __init__(self, weights: Floats, speeds: Floats, sizes: tuple[float, float] = ANY_SIZE) -> None:
        super().__init__()
        self.weights = np.asarray(weights, dtype=np.float64)
        self.speeds, self.sizes = (np.asarray(given, dtype=np.float64) for given in (speeds, sizes))
        classes = len(self.speeds)
        if self.weights.shape[-2:] != (shape := (len(theta_names(classes)), 1 + len(context_names(classes)))):
            raise ValueError(f"weights {self.weights.shape}: for {classes} classes of speed they must be {shape}")

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        of_each = np.broadcast_to(self.weights, (len(seeds), *self.weights.shape[-2:]))
        self._of_each = np.array(of_each, order="C")  # a copy: a view of one row would be read-only, another type
        self.context = np.zeros((len(seeds), self.weights.shape[-1] - 1))
        self.theta = np.zeros(of_each.shape[:2])
        self._memory = np.zeros(len(seeds), dtype=MEMORY)
        self._memory["clock_s"] = -1.0
        self._numbers = np.zeros((len(seeds), len(NUMBERS)))
        self._numbers[:, -len(UNITS) :] = UNITS
        self._prices = np.zeros((0, 0))

    def change_servers(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.change_servers`; the averages are kept."""
        self._prices = np.zeros((0, 0))
        self._memory["is_changed"] = 1

    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """See `PricingDispatcher.terms`."""
        if self._prices.shape != view.limit.shape:
            own = speeds_of(view.capacity)
            classes = np.where(view.capacity > 0, np.searchsorted(own, view.capacity), -1)
            idle, counts = np.zeros((2, len(own)))
            self._classes = classes, idle, counts, interpolation(self.speeds, own), interpolation(own, self.speeds)
            self._prices = np.zeros(view.limit.shape)
        results = (self.context, self.theta, self._numbers, self._prices)
        write(view, self._of_each, self.sizes, *self._classes, self._memory, *results)
        return self._numbers, self._prices
