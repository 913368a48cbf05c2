"""Rounds in the order of `adaptive-price` in which a network chooses the server of each task.

At each event the waiting tasks of every environment are visited in the order of the rule's keys. For a task that could
start now, a row of the feature set `relative` is written; the server that is chosen takes the task or is waited for, as
in `Visits`. Tasks that can only wait, and those behind the first MOST_ASKED of a round, get the server of least cost by
the rule: asking for each of a long queue would take many times as many decisions. An environment's round is over when
none of its servers is open or every task has been visited.
"""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.compiled import Direct, compiled, internal
from rllib_scale.config.network import CrossAttentionConfig
from rllib_scale.observation.relative import MOST_TAU, RELATIVE
from rllib_scale.observation.view import View
from rllib_scale.schedulers.adaptive_price import SHAPE, AdaptivePrice
from rllib_scale.schedulers.adaptive_terms import AdaptiveTerms
from rllib_scale.schedulers.visiting import (
    LEAST_COST,
    Way,
    can_start_on,
    choose,
    compiled_servers_in,
    cost_of,
    fits_on,
    terms_on,
)
from rllib_scale.schedulers.visits import (
    NUMBERS,
    add_inputs,
    answer,
    forget_inputs,
    keys_by_price,
    make_heap,
    room_for_shares,
    take_first,
)

MOST_ASKED = 8
"""Tasks of a round for which a server is chosen from outside."""
WAITING = 2.0
"""kappa of the rule without prices: the earliest finish, time that is waited counts twice."""
LEAST = 1e-6
"""Lower limit of arguments of a logarithm."""
ALPHA, KAPPA, PENALTY = NUMBERS.index("alpha"), NUMBERS.index("kappa"), NUMBERS.index("penalty")
ADAPTIVE = CrossAttentionConfig(name="cross-attention", skip="adaptive")
CONTEXT, HEAD, WIDTH = RELATIVE.context_dim, RELATIVE.head(), RELATIVE.server_dim


class AskedVisits:
    """The rounds of a batch of B environments of N servers.

    Args:
        num_envs: B.
        moves_take_time: as for `AdaptiveTerms`.
        network: its `scarce` decides the order of tasks. Costs are those of `adaptive-price`; with `skip` naive
            WAITING times the wait, the time there, and `penalty` tau for each server that is busy.

    Attributes:
        learned: what the rule has learned of each environment.
        rows: (B, 20 + 11 N) float32, features `relative` of the task that each environment visits.
        current: (B,) number of this task among those that wait; -1: the round is over.
    """

    def __init__(self, num_envs: int, moves_take_time: bool, network: CrossAttentionConfig = ADAPTIVE) -> None:
        weights = np.broadcast_to(AdaptivePrice().weights, (num_envs, *SHAPE))
        self.learned = AdaptiveTerms(weights, moves_take_time, network.scarce)
        self.current, self._size, self._asked = np.full((3, num_envs), -1)
        self._network, self._nobody = network, np.zeros(num_envs, dtype=np.int64)
        self._count, self._shares = np.zeros(1, dtype=np.int64), room_for_shares()
        self._key = self.rows = np.zeros((num_envs, 0))

    def begin(self, view: View) -> None:
        """Begin a round in every environment, and visit its first task."""
        numbers, prices = self.learned(view)
        if self._key.shape != view.waiting.shape:
            self._key, self._order = np.empty(view.waiting.shape), np.empty(view.waiting.shape, dtype=np.int64)
            self._answers = np.empty((view.waiting.size, 4), dtype=np.int64)
        if self.rows.shape[1] != RELATIVE.width(view.limit.shape[1]):
            self.rows = np.zeros((len(view.env), RELATIVE.width(view.limit.shape[1])), dtype=np.float32)
            self._stays = np.zeros(view.limit.shape[1])
        _keys(numbers, view, self._shares, self._key)
        means, inputs = self.learned.prices.means, self.learned.inputs
        if self._network.skip == "naive":
            numbers, prices = numbers.copy(), np.zeros_like(prices)
            numbers[:, KAPPA] = WAITING
            # For a task with the mean number of descendants, as the penalty of the rule.
            numbers[:, PENALTY] = self._network.penalty * means["tau"] * means["descendants"] ** numbers[:, ALPHA]
        _sort(view, self._key, self._order, self._size)
        self.current[:], self._asked[:], self._count[0] = -1, 0, 0
        state = (self._key, self._order, self._size, self._asked)
        out = (self.current, self._stays, self.rows, self._answers, self._count)
        self._round = (view, numbers, prices, means, inputs, *state, *out)
        _visit(self._nobody, *self._round)

    def choose(self, servers: np.ndarray) -> None:
        """Give server (B,) of each environment to the task that it visits, and go on to the next one."""
        _visit(servers, *self._round)

    def answers(self) -> np.ndarray:
        """(K, 4) of the round, as `Visits.by_price`."""
        return self._answers[: self._count[0]]


@compiled
def sort_waiting(view, keys, order, size):  # type: ignore[no-untyped-def]
    """Make a heap of the waiting tasks of each environment: `order` (B, R), of the `size` (B,) first entries."""
    for b in range(len(view.env)):
        size[b] = view.env[b].num_waiting
        make_heap(order[b], size[b], view.waiting[b], keys[b], False)


@compiled
def visit_next(  # type: ignore[no-untyped-def]
    chosen, view, numbers, prices, means, inputs, keys, order, size, asked, current, stays, rows, answers, count
):  # fmt: skip
    """Answer for the task that each environment visits, if it does, by server `chosen` (B,); visit the next one.

    Scratch: `stays` (N,) s of a task's input that is on each server, 0 between calls.
    """
    for b in range(len(view.env)):
        waiting, servers = view.waiting[b], compiled_servers_in(view, b)
        if current[b] >= 0:
            task, j = waiting[current[b]], chosen[b]
            total = add_inputs(b, task, view, stays)
            answer(b, task, j, total, stays, servers, answers[count[0]])
            count[0] += 1
            forget_inputs(b, task, view, stays)
            current[b] = -1
        while size[b] > 0 and current[b] < 0 and servers.is_open.any():
            i = take_first(order[b], size[b], waiting, keys[b], False)
            size[b] -= 1
            task = waiting[i]
            total = add_inputs(b, task, view, stays)
            way = Way(LEAST_COST, numbers[b, KAPPA], task.descendants ** numbers[b, 3], numbers[b, PENALTY])
            if asked[b] < MOST_ASKED and _starts_somewhere(task, servers):
                current[b] = i
                asked[b] += 1
                _write_head(b, task, size[b], view, means[b], inputs[b], servers, rows[b])
                _write_servers(task, way, total, stays, servers, means[b], prices[b], rows[b])
            else:
                j = choose(way, task, total, stays, servers, prices[b])
                if j >= 0:
                    answer(b, task, j, total, stays, servers, answers[count[0]])
                    count[0] += 1
            forget_inputs(b, task, view, stays)


@internal
def _starts_somewhere(task, servers):  # type: ignore[no-untyped-def]
    for j in range(len(servers.limit)):  # noqa: SIM110 (compiled code knows no generators)
        if can_start_on(j, task, servers):
            return True
    return False


@internal
def _write_head(b, task, behind, view, means, inputs, servers, row):  # type: ignore[no-untyped-def]
    """Context and task."""
    now, has_room, can_start, there = view.env[b].clock_s, 0, 0, 0
    for j in range(len(servers.limit)):
        there += servers.limit[j] >= 0.0 and servers.capacity[j] > 0.0
        has_room += fits_on(j, task, servers)
        can_start += can_start_on(j, task, servers)
    for i in range(CONTEXT):
        row[i] = inputs[1 + i]
    row[CONTEXT] = math.log(max(LEAST, task.compute_gflop / means.compute))
    row[CONTEXT + 1] = math.log(max(LEAST, task.memory_gb / means.memory))
    row[CONTEXT + 2] = math.log(max(LEAST, task.descendants / means.descendants))
    row[CONTEXT + 3] = math.log1p((now - task.arrival_s) / (2.0 * means.tau))
    row[CONTEXT + 4] = math.log1p((now - task.ready_s) / means.tau)
    row[CONTEXT + 5] = math.log1p(behind / means.places)
    row[CONTEXT + 6], row[CONTEXT + 7] = has_room / there, can_start / there


@internal
def _write_servers(task, way, total, stays, servers, means, prices, row):  # type: ignore[no-untyped-def]
    """The servers; the two features that are relative to the best server are written in a second pass."""
    least = (np.inf, np.inf)
    for j in range(len(servers.capacity)):
        out = row[HEAD + j * WIDTH : HEAD + (j + 1) * WIDTH]
        out[:] = 0.0
        if not fits_on(j, task, servers):
            continue
        capacity = servers.capacity[j]
        can_start, ahead, lasts = terms_on(j, task, total, stays, servers)
        cost = cost_of(way, prices[j], ahead, lasts, capacity, can_start) / way.weight
        finish, cost = (ahead + lasts) / means.tau, cost / means.tau
        least = (min(least[0], finish), min(least[1], cost))
        out[0] = min(MOST_TAU, capacity * means.tau / means.compute)
        out[1] = math.log2(capacity / means.slowest) / 2.0
        out[2] = math.log(max(servers.limit[j], 1e-9) / means.memory)
        out[3] = min(MOST_TAU, (servers.limit[j] - task.memory_gb) / means.memory)
        out[4], out[5] = min(MOST_TAU, lasts / means.tau), min(MOST_TAU, ahead / means.tau)
        out[6] = 0.0 if can_start else 1.0
        out[7] = servers.free_places[j] / servers.properties[j].max_concurrent
        out[8], out[9], out[10] = finish, min(MOST_TAU, prices[j] / way.weight), cost
    for j in range(len(servers.capacity)):
        out = row[HEAD + j * WIDTH : HEAD + (j + 1) * WIDTH]
        if out[0] > 0.0:
            out[8] = min(MOST_TAU, out[8] - least[0])
            out[10] = min(MOST_TAU, out[10] - least[1])


_keys, _sort, _visit = Direct(keys_by_price), Direct(sort_waiting), Direct(visit_next)
