"""The server that a rule names for the task on offer, in compiled code: one task, a batch of them, or a whole round.

A rule compares servers by keys, the smallest first: the earlier keys decide, and ties go to the lowest index. Keys are
read from the observation as it is written, in float32; only execution times are float64.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rllib_scale.compiled import Direct, compiled, internal
from rllib_scale.config import DecisionMode, MaskMode, ObservationConfig
from rllib_scale.config.rules import NoParameters
from rllib_scale.observation.answers import OPEN, TAKEN
from rllib_scale.observation.feature_sets import (
    CAPACITY,
    DELAY,
    FEATURE_SETS,
    MEMORY,
    REMAINING,
    TASK_COMPUTE,
    TASK_MEMORY,
)
from rllib_scale.observation.policy import Batch
from rllib_scale.schedulers.base import Scheduler
from rllib_scale.simulator.handles import problem_of, state_of
from rllib_scale.simulator.outside_rounds import seen_in_round, step_on

(RANDOM, ROUND_ROBIN, FASTEST, EARLIEST_FINISH, LARGE_ONLY, BEST_FIT) = range(6)
(FINISH_WITH_TRANSFER, STICKY, POWER_OF_TWO, LEAST_LOADED, PREFIX_AFFINITY) = range(6, 11)
DRAWING = (RANDOM, POWER_OF_TWO, LEAST_LOADED, PREFIX_AFFINITY)
"""Those that need a random number for each server and task."""
WAY = np.dtype(
    [
        ("rule", "i8"),  # of the above
        ("masked", "i8"),  # only open servers are named, where there are any
        ("task", "i8"),  # column of the first candidate's features
        ("server", "i8"),  # column of the first server's features
        ("width", "i8"),  # features of a server
        ("free", "i8"),  # columns among those of a server; 0: the feature set has none, and the rule reads none
        ("wait", "i8"),
        ("load", "i8"),
        ("compute_unit", "f8"),  # GFLOP
        ("capacity_unit", "f8"),  # GFLOPS
        ("time_unit", "f4"),  # s
        ("delay_unit", "f4"),  # s
        ("waiting", "f4"),  # of FinishParameters
        ("imbalance", "f4"),  # of AffinityParameters
    ]
)
"""A rule's kind of choice, and the columns that it reads."""
DRAWN_AHEAD = 64
"""Tasks of a round for which random numbers are drawn at once."""


class ChoosingRule(Scheduler):
    """A rule of this package. Its choices are compiled, and so are whole rounds of a live cluster or a router.

    It plays any problem: with `on_busy: step` it waits by naming a busy server, with `on_busy: reserve` that one is
    reserved, and with `mask: feasible` it chooses among the open ones.

    Attributes:
        rule: which; of RANDOM to PREFIX_AFFINITY.
    """

    rule: ClassVar[int]

    def __init__(
        self,
        observation: ObservationConfig,
        mask: MaskMode = "none",
        decision: DecisionMode = "argmax",
        parameters: NoParameters | None = None,
    ) -> None:
        super().__init__(observation, mask, decision, parameters)
        self._way, unit = np.zeros(1, dtype=WAY), self.observation
        features = FEATURE_SETS[unit.feature_set]
        columns = {feature.name: at for at, feature in enumerate(features.server)}
        for name, value in (
            *(("rule", self.rule), ("masked", mask == "feasible")),
            *(("task", features.context_dim), ("width", features.server_dim)),
            *((name, columns.get(name, 0)) for name in ("free", "wait", "load")),
            *(("compute_unit", unit.task_compute_max_gflop), ("capacity_unit", unit.server_compute_max_gflops)),
            *(("time_unit", unit.time_unit_s), ("delay_unit", unit.delay_unit_s)),
            *self.parameters,  # the rules without them read none
        ):
            self._way[name] = value
        self._head = features.head
        self._last = self._no_draws = np.zeros(0)
        self._draws = self.rule in DRAWING

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self._last = np.full(len(seeds), -1)  # the server that was named last and was open

    def advance(self, batch: Batch) -> None:
        """See `Policy.advance`."""
        batch.decide(self)

    def scores(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
        """(B, N): 1 for the server that is chosen, as if it were asked for it."""
        return np.eye(fit.shape[2])[self(observation, fit)]

    def __call__(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
        """See `Scheduler.__call__`."""
        (rows, candidates, servers), chosen = fit.shape, np.empty(len(fit), dtype=np.int64)
        self._way["server"] = self._head(candidates)
        if len(self._last) != rows:
            self._last = np.full(rows, -1)
        draws = self.draw(servers) if self._draws else self._nothing_drawn(rows, servers)
        seen = np.ascontiguousarray(observation, dtype=np.float32), np.ascontiguousarray(fit, dtype=np.uint8)
        _choose_all(self._way, *seen, draws, self._last, chosen)
        return chosen

    def answer_round(self, asks: int, shape: tuple[int, int], outcomes: np.ndarray, table: np.ndarray) -> None:
        """Answer for one task after another of a round of events from outside, until no answer is wanted.

        Each random number is the one that the task would get if the rule were asked for it alone.

        Args:
            asks: maximum number of tasks to ask about.
            shape: K candidates and N servers.
            outcomes: (6,) how often each of `answers.OUTCOMES` came of an answer; added to.
            table: of state and problem, see simulator.handles.
        """
        self._way["server"] = self._head(shape[0])
        wanted = True
        while wanted and asks > 0:
            count = min(asks, DRAWN_AHEAD) if self._draws else asks
            if self._draws:
                generator = self.generators[0].bit_generator
                before, draws = generator.state, self.generators[0].random((count, shape[1]))
            else:
                draws = self._nothing_drawn(1, shape[1])
            answered, wanted = _choose_on(self._way, count, draws, self._last, outcomes, table)
            asks -= answered
            if self._draws and answered < count:  # as if the others had not been drawn
                generator.state = before
                self.generators[0].random((answered, shape[1]))

    def _nothing_drawn(self, rows: int, servers: int) -> np.ndarray:
        if self._no_draws.shape != (rows, servers):
            self._no_draws = np.zeros((rows, servers))
        return self._no_draws


# ---------------------------------------------------------------------- one choice


@internal
def _precedes(a, b):  # type: ignore[no-untyped-def]
    """Whether keys `a` come before keys `b`; equal ones do not."""
    if a[0] != b[0]:
        return a[0] < b[0]
    if a[1] != b[1]:
        return a[1] < b[1]
    if a[2] != b[2]:
        return a[2] < b[2]
    return a[3] < b[3]


@internal
def _drawn(j, fit, only_open, draw):  # type: ignore[no-untyped-def]
    """Sort key to draw two servers: those that cannot be chosen come last, in their order."""
    there = fit[j] == OPEN if only_open else fit[j] >= TAKEN
    return -draw[j] if there else 1.0


@internal
def _choose(way, row, fit, draw, last):  # type: ignore[no-untyped-def]
    """Server that a rule names for the first candidate of one observation.

    `row` (W,) float32, `fit` (N,) of that candidate, `draw` (N,) uniform in [0, 1), `last` server that it named.
    """
    servers, count, rule = row[way.server :], len(fit), way.rule
    some_open = False
    for j in range(count):
        some_open |= fit[j] == OPEN
    # With a mask servers are compared among those that are open, where there are any.
    only_open = way.masked != 0 and some_open
    # What is compared over all servers. Without one that fits, the least is inf and the most is 0.
    highest, least_moved, most_moved, least_load, most_load = 0.0, np.inf, 0.0, 1.0, 0.0
    first, second = -1, -1  # of those to draw from, the two of the largest numbers
    for j in range(count):
        at = way.width * j
        highest = max(highest, np.float64(servers[at + CAPACITY]) * way.capacity_unit)
        if fit[j] >= TAKEN:
            moved, load = np.float64(servers[at + DELAY] * way.delay_unit), np.float64(servers[at + way.load])
            least_moved, most_moved = min(least_moved, moved), max(most_moved, moved)
            least_load, most_load = min(least_load, load), max(most_load, load)
        if rule in (POWER_OF_TWO, PREFIX_AFFINITY):
            drawn = _drawn(j, fit, only_open, draw)
            if first < 0 or drawn < _drawn(first, fit, only_open, draw):
                first, second = j, first
            elif second < 0 or drawn < _drawn(second, fit, only_open, draw):
                second = j
    # What moving the input takes at most; 0 where it is the same to all, as of a task without input.
    moving = np.float32(most_moved - min(least_moved, most_moved))
    is_balanced = np.float32(most_load - least_load) <= way.imbalance
    stays = False
    if rule == STICKY and moving > 0.0:
        wait_at_home = np.inf
        for j in range(count):
            at = way.width * j
            if fit[j] >= TAKEN and np.float64(servers[at + DELAY] * way.delay_unit) == least_moved:
                wait_at_home = min(wait_at_home, np.float64(servers[at + way.wait] * way.time_unit))
        stays = wait_at_home <= moving
    best, least = -1, (np.inf, np.inf, np.inf, np.inf)
    for j in range(count):
        if only_open and fit[j] != OPEN:
            continue
        at = way.width * j
        has_room, is_open = fit[j] >= TAKEN, fit[j] == OPEN
        in_pool = is_open if only_open else has_room
        awaited, moved = servers[at + way.wait] * way.time_unit, servers[at + DELAY] * way.delay_unit
        remaining = np.float64(servers[at + REMAINING] * way.time_unit)
        wait, load = np.float64(awaited), np.float64(servers[at + way.load])
        capacity = np.float64(servers[at + CAPACITY]) * way.capacity_unit
        is_home = has_room and np.float64(moved) == least_moved
        lasts = np.inf
        if capacity > 0.0:
            lasts = np.float64(row[way.task + TASK_COMPUTE]) * way.compute_unit / capacity
        finish = np.float64(way.waiting * awaited + moved) + lasts
        by_two = rule == POWER_OF_TWO or (rule == PREFIX_AFFINITY and not is_balanced)
        keys = (0.0, 0.0, 0.0, 0.0)
        if by_two:
            keys = (0.0 if in_pool else 1.0, 0.0 if j in (first, second) else 1.0, wait, 0.0 if j == first else 1.0)
        elif rule == PREFIX_AFFINITY and moving > 0.0:
            keys = (0.0 if is_home else 1.0, 0.0 if in_pool else 1.0, wait, draw[j])
        elif rule == PREFIX_AFFINITY:
            used = np.float64(servers[at + MEMORY] - servers[at + way.free])
            keys = (0.0 if in_pool else 1.0, used, wait, draw[j])
        elif rule == LEAST_LOADED:
            preferred = is_open if some_open else has_room
            keys = (0.0 if preferred else 1.0, load if is_open else 0.0, wait, draw[j])
        elif rule == STICKY and stays:
            keys = (0.0 if is_home else 1.0, 0.0 if has_room else 1.0, finish, 0.0)
        elif rule == STICKY:
            keys = (0.0 if has_room else 1.0, finish, 0.0, 0.0)
        elif rule in (RANDOM, ROUND_ROBIN, FASTEST, BEST_FIT):
            key = 0.0
            if rule == RANDOM:
                key = -draw[j]
            elif rule == ROUND_ROBIN:
                key = float((j - last - 1) % count)
            elif rule == FASTEST:
                key = -capacity
            else:
                key = np.float64(servers[at + MEMORY] - row[way.task + TASK_MEMORY])
            keys = (0.0 if is_open else 1.0, key if is_open else 0.0, 0.0, 0.0)
        else:
            key = remaining + lasts
            if rule == LARGE_ONLY:
                # Slower ones only where no fastest one may be named: far behind all times, the fastest first.
                key = remaining if capacity == highest else 1e9 - capacity
            elif rule == FINISH_WITH_TRANSFER:
                key = finish
            keys = (0.0 if has_room else 1.0, key if has_room else 0.0, 0.0, 0.0)
        if best < 0 or _precedes(keys, least):
            best, least = j, keys
    return best


# ---------------------------------------------------------------------- batches and rounds


@compiled
def choose_all(way, observation, fit, draws, last, chosen):  # type: ignore[no-untyped-def]
    """Write the server of each of B observations to `chosen` (B,); `fit` (B, K, N), `draws` (B, N)."""
    for b in range(len(chosen)):
        chosen[b] = _choose(way[0], observation[b], fit[b, 0], draws[b], last[b])
        if fit[b, 0, chosen[b]] == OPEN:
            last[b] = chosen[b]


@compiled
def choose_on(way, most, draws, last, outcomes, table):  # type: ignore[no-untyped-def]
    """Answer for at most `asks` tasks of a round; returns how many were, and whether another answer is wanted.

    `draws` has a row for each of them, or one for all. `outcomes` is added to.
    """
    state, problem = state_of(table), problem_of(table)
    for count in range(most):
        row, fit = seen_in_round(state, problem)
        j = _choose(way[0], row, fit, draws[min(count, len(draws) - 1)], last[0])
        if fit[j] == OPEN:
            last[0] = j
        wanted = step_on(j, state, problem)
        outcomes[state.outcome[0]] += 1
        if not wanted:
            return count + 1, False
    return most, True


_choose_all, _choose_on = Direct(choose_all), Direct(choose_on)
