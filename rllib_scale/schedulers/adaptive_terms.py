"""Context and theta of `adaptive-price` for all environments of a batch in one compiled call, from their `View`.

analysis/studies/any-cluster/README.md has every formula.
"""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.compiled import Direct, compiled, internal
from rllib_scale.observation.view import MOST_SEEN, View
from rllib_scale.schedulers.context import LIMIT, LOAD_UNIT, PRIOR_LOAD
from rllib_scale.schedulers.context_terms import MEMORY, convert_seconds, observed_load
from rllib_scale.schedulers.estimates import Estimates, followers_of, hidden_of, no_estimates, observe
from rllib_scale.schedulers.online_prices import Prices, no_prices, price_at, update_prices
from rllib_scale.schedulers.visits import NUMBERS

THETA = ("a", "b", "age", "alpha", "kappa", "price_2", "price_4", "penalty")
"""Rows of the map. Prices are those of servers twice and four times as fast as the slowest."""
CONTEXT = (
    *("size", "load_6", "load_30", "queue", "ready_work", "work"),
    *("idle_slow", "idle_fast", "queue_4", "work_4", "tasks", "revealed"),
)
"""State that changes from event to event; numbers are times, in tau, with which averages decay."""
INPUTS = ("1", *CONTEXT)
"""Columns of the map."""
FAST, SLOW, AVERAGE, PRIOR = 6.0, 30.0, 4.0, 3.0
"""Times, in tau, of the averages of the load, of queue and work, and of the prior of the load."""
FEWEST, MOST = 6.0, 128.0
"""Places that the entry `size` distinguishes."""
SHARPNESS = 8.0
"""Sharpness of the softplus that keeps nonnegative numbers above 0."""
SCARCE = 0.7
"""Share of its places in use, lately, from which on a class has its full price: what is not scarce has no price."""
KAPPA, PENALTY = 2.0, 0.2
"""Parameters of the rule without the map; the penalty in tau."""
SEARCHED, BEYOND = 48, 0.1
"""Servers of the largest cluster in the search, and what the penalty grows by with each doubling beyond: one of many
busy servers is always about to be free, and every waiting task counts on it."""


class AdaptiveTerms:
    """Writes the numbers and prices by which a round visits, and remembers what each environment has shown.

    Args:
        weights: (B, 8, 13) the map U of each environment, rows THETA and columns INPUTS.
        moves_take_time: otherwise what is moved counts nothing.
        scarce: see `AdaptivePriceParameters`.

    Attributes:
        inputs: (B, 13) of the last event.
        theta: (B, 8) of the last event; prices above those of the linear program.
        prices: what has been solved for.
    """

    def __init__(self, weights: np.ndarray, moves_take_time: bool = True, scarce: float = 0.0) -> None:
        count = len(weights)
        self._moves_take_time = moves_take_time
        self.weights = np.array(
            weights, dtype=np.float64, order="C"
        )  # a copy: a view of one row would be read-only, another type
        self.inputs, self.theta = np.zeros((count, len(INPUTS))), np.zeros((count, len(THETA)))
        self.estimates: Estimates = no_estimates(count)
        self._memory = np.zeros(count, dtype=MEMORY)
        self._memory["clock_s"] = -1.0
        self.forget_servers()
        self._numbers = np.zeros((count, len(NUMBERS)))
        self._numbers[:, NUMBERS.index("scarce")] = scarce

    def forget_servers(self) -> None:
        """There are others from now on, of any number; what was learned of the workload is kept."""
        self.prices: Prices = no_prices(len(self.weights), 0)
        self._memory["is_changed"] = 1

    def __call__(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """NUMBERS (B, 9) and prices (B, N) for `Visits.by_price`; writes estimated followers into the view."""
        if self.prices.limit.shape != view.limit.shape:
            self.prices, self._server_prices = no_prices(*view.limit.shape), np.zeros(view.limit.shape)
        results = (self.inputs, self.theta, self._numbers, self._server_prices)
        moves = self._moves_take_time
        _adapt(moves, view, self.weights, self._memory, self.estimates, self.prices, *results)
        return self._numbers, self._server_prices


@compiled
def adapt(moves_take_time, view, weights, memory, estimates, prices, inputs, theta, numbers, server_prices):  # type: ignore[no-untyped-def]
    """Learn from what every environment shows, and write the numbers of its round; see `AdaptiveTerms`."""
    for b in range(len(view.env)):
        shown, kept = view.env[b], memory[b]
        if not moves_take_time:
            for i in range(shown.num_inputs):
                view.inputs[b, i].transfer_s = 0.0
        if shown.is_revealed:
            for i in range(shown.num_waiting):
                view.waiting[b, i].descendants = followers_of(view.waiting[b, i].seen, estimates.followers[b])
        if shown.clock_s == kept.clock_s:
            continue  # asked again in the same round: what was seen when it began holds
        ready = observe(b, view, kept.clock_s, estimates)
        update_prices(b, view, estimates, prices)
        if prices.means[b].solved_at == 0 or prices.means[b].num_classes == 0:
            kept.clock_s = shown.clock_s
            continue  # no task has been seen yet, or no server is there
        _average_use(b, view, kept.clock_s, prices)
        _write_context(b, view, ready, kept, estimates, prices, inputs[b])
        _write_theta(weights[b], inputs[b], prices.means[b].servers, theta[b])
        _write_numbers(b, inputs[b], theta[b], prices, numbers[b], server_prices[b])


@internal
def _write_context(b, view, ready, kept, estimates, prices, x):  # type: ignore[no-untyped-def]
    """Write the entries of the context, and move the averages to now."""
    shown, means, sizes = view.env[b], prices.means[b], estimates.sizes[b]
    tau, now, passed = means.tau, shown.clock_s, shown.clock_s - kept.clock_s
    arrived, hidden, waiting, idle_slow, idle_fast = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(shown.num_waiting):
        waiting += view.waiting[b, i].compute_gflop * view.waiting[b, i].places
    convert_seconds(kept, means.capacity)
    # Offered load: work that arrives, in seconds of all places, in two exponential averages. 1/phi of a workflow's work
    # counts at its arrival and the rest when its tasks become ready (phi = stay): a deep workflow does not offer all of
    # its work at once.
    fast, slow = math.exp(-passed / (FAST * tau)), math.exp(-passed / (SLOW * tau))
    kept.work_fast_s *= fast
    kept.work_slow_s *= slow
    for i in range(shown.num_new):
        new = view.new[b, i]
        arrived = new.work_gflop
        if shown.is_revealed:
            # Its tasks that are not seen yet, each of mean demand.
            arrived += means.compute * hidden_of(new.num_tasks, sizes)
        arrived /= means.stay * means.capacity
        # It has decayed since it arrived, which was before this event.
        kept.work_fast_s += arrived * math.exp(-(now - new.arrival_s) / (FAST * tau))
        kept.work_slow_s += arrived * math.exp(-(now - new.arrival_s) / (SLOW * tau))
    kept.work_fast_s += ready / means.capacity * (1.0 - 1.0 / means.stay)
    kept.work_slow_s += ready / means.capacity * (1.0 - 1.0 / means.stay)
    if shown.is_revealed:
        for seen in range(1, MOST_SEEN + 1):
            if view.unfinished[b, seen] > 0:
                hidden += view.unfinished[b, seen] * hidden_of(seen, sizes)
    for j in range(view.limit.shape[1]):
        if prices.of[b, j] >= 0 and view.is_open[b, j]:
            # Places that a mean task could take now: as many as the memory leaves room for.
            open_places = float(view.free_places[b, j])
            if view.properties[j].max_concurrent > 1:
                open_places = min(open_places, view.free[b, j] / means.memory)
            idle_slow += open_places if view.capacity[j] == means.common else 0.0
            idle_fast += open_places if view.capacity[j] == means.fastest else 0.0
    # `common` is the slowest speed that a mean task fits, so a slow server that nothing fits is not idle.
    places_slow, places_fast = 0.0, 0.0
    for k in range(means.num_classes):
        server = prices.classes[b, k]
        places_slow += server.places if server.capacity == means.common else 0.0
        places_fast += server.places if server.capacity == means.fastest else 0.0

    # GFLOP to seconds of the whole cluster in units of tau / 5: the map was searched with tau = 5 s.
    second = 5.0 / (means.capacity * tau)  # tau is 5 s on the paper's cluster
    queue = shown.num_waiting / means.places
    work = (shown.work_in_system_gflop + hidden * means.compute) * second / means.stay
    # Averages over time of queue and work: each had its held value since the event before.
    keeps = math.exp(-passed / (AVERAGE * tau))
    kept.queue = keeps * kept.queue + (1.0 - keeps) * kept.held_queue
    kept.work_s = keeps * kept.work_s + (1.0 - keeps) * kept.held_work_s
    kept.held_queue, kept.held_work_s, kept.clock_s = queue, work, now

    # The entries in the order of INPUTS, by offsets and factors of the order of 1.
    x[0] = 1.0
    x[1] = math.log2(min(max(means.places, FEWEST), MOST) / 16.0) / 3.0  # size
    # load_6, load_30
    x[2] = (observed_load(kept.work_fast_s, now, FAST * tau, PRIOR * tau) - PRIOR_LOAD) / LOAD_UNIT
    x[3] = (observed_load(kept.work_slow_s, now, SLOW * tau, PRIOR * tau) - PRIOR_LOAD) / LOAD_UNIT
    x[4] = 2.0 * math.log1p(queue) - 0.6  # queue
    x[5] = math.log1p(waiting * second) - 0.7  # ready_work
    x[6] = math.log1p(work) - 2.0  # work
    x[7] = 2.0 * idle_slow / places_slow - 0.6  # idle_slow
    x[8] = 2.0 * idle_fast / places_fast - 0.6  # idle_fast
    x[9] = 2.0 * math.log1p(kept.queue) - 0.6  # queue_4
    x[10] = math.log1p(kept.work_s) - 2.0  # work_4
    # tasks
    x[11] = 1.5 * math.log1p((shown.tasks_in_system + hidden) / (means.places * means.stay)) - 1.5
    x[12] = float(shown.is_revealed)  # revealed
    for i in range(1, len(x)):
        x[i] = min(LIMIT, max(-LIMIT, x[i]))


@internal
def _average_use(b, view, since_s, prices):  # type: ignore[no-untyped-def]
    """Move the averages of the share of each class's places in use to now."""
    means, used = prices.means[b], prices.used[b]
    # The share in use since the event before, which held until now, enters the average first.
    keeps = math.exp(-(view.env[b].clock_s - max(0.0, since_s)) / (AVERAGE * means.tau))
    for k in range(means.num_classes):
        used[k, 0] = keeps * used[k, 0] + (1.0 - keeps) * used[k, 1]
        # Then the share from now on: all places are in use but for the free ones of open servers.
        used[k, 1] = 1.0
    for j in range(view.limit.shape[1]):
        k = prices.of[b, j]
        if k >= 0 and view.is_open[b, j]:
            used[k, 1] -= view.free_places[b, j] / (prices.classes[b, k].servers * view.properties[j].max_concurrent)


@internal
def _write_theta(weights, x, servers, theta):  # type: ignore[no-untyped-def]
    """The numbers without the map, which are Smith's order and the dual prices alone, and what the map adds."""
    for r in range(len(theta)):
        theta[r] = 0.0
        for i in range(len(x)):
            theta[r] += weights[r, i] * x[i]
    # Smith's order: descendants first, work last; the weight of a second grows with the descendants (alpha = 1).
    theta[0] += 1.0  # a: descendants per work
    theta[1] -= 1.0  # b
    theta[3] += 1.0  # alpha
    theta[4] = _above_0(KAPPA + theta[4])
    theta[7] = _above_0(PENALTY + BEYOND * math.log2(max(1.0, servers / SEARCHED)) + theta[7])


@internal
def _above_0(value):  # type: ignore[no-untyped-def]
    """Softplus."""
    value *= SHARPNESS
    return (max(value, 0.0) + math.log1p(math.exp(-abs(value)))) / SHARPNESS


@internal
def _write_numbers(b, x, theta, prices, numbers, server_prices):  # type: ignore[no-untyped-def]
    """The numbers in the units of the cluster."""
    means, load = prices.means[b], PRIOR_LOAD + LOAD_UNIT * x[3]
    weight = means.descendants ** theta[3]
    for r in range(5):
        numbers[r] = theta[r]
    # The key has (n/n_mean)^a and NUMBERS n^a: the common factor n_mean^a moves to the age, to the same order.
    numbers[2] *= means.descendants ** theta[0]
    # Likewise the cost: penalty and prices are multiplied by n_mean^alpha in place of dividing n by n_mean.
    numbers[5] = theta[7] * means.tau * weight
    numbers[7], numbers[8] = means.compute, 2.0 * means.tau
    for j in range(len(server_prices)):
        k = prices.of[b, j]
        server_prices[j] = 0.0
        if k >= 0:
            # Complementary slackness: a class that is not full has no price; in between its price grows in proportion.
            price = _price(prices.classes[b, k], prices.curves[b, k], means, load, theta)
            server_prices[j] = weight * price * min(1.0, prices.used[b, k, 0] / SCARCE)


@internal
def _price(server, curve, means, load, theta):  # type: ignore[no-untyped-def]
    """Cost of a second on a server of a class for a task with the mean number of descendants."""
    price, doublings = price_at(load, curve), math.log2(server.capacity / means.slowest)
    if doublings == 0.0:
        return max(0.0, price)
    # The map's two prices are at twice and four times the slowest speed: linear in doublings from 0 at the slowest,
    # constant beyond four times.
    share = min(1.0, max(0.0, doublings - 1.0))
    return _above_0(price + min(1.0, doublings) * (theta[5] + share * (theta[6] - theta[5])))


_adapt = Direct(adapt)
