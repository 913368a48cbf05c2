"""context-price: theta and decisions of literal instances, other clusters, and the constant rule, which is `price`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.rounds import PlainRounds
from rllib_scale.config import SCENARIOS, EnvConfig
from rllib_scale.config.schedulers import PriceParameters
from rllib_scale.evaluation.play import play
from rllib_scale.observation.view import ENDED, ENV, INPUT, MOST_SEEN, NEW, WAITING, View
from rllib_scale.schedulers.context import context_names, initial_weights, theta_names
from rllib_scale.schedulers.context_price import ContextPrice
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.cluster import SERVER
from rllib_scale.simulator.engine import Engine
from schedulers.instances import PROBLEMS, TWO
from small_moments import workload

SPEEDS = np.array([1.0, 2.0])
CONTEXT, THETA = context_names(2), theta_names(2)
GIVEN = workload((0, [(4, 5)], []), (1.5, [(6, 5), (3, 5)], [[0, 1]]))
"""One task at 0, and two in a row at 1.5."""


def constant(**theta: float) -> np.ndarray:
    """W whose theta is the same at all times; those not named are 0."""
    weights = np.zeros((len(THETA), 1 + len(CONTEXT)))
    for k, name in enumerate(THETA):
        value = theta.get(name, 0.0)
        weights[k, 0] = value if name in ("a", "b", "age", "alpha") else math.log(math.expm1(max(value, 1e-12)))
    return weights


class Remembering(ContextPrice):
    """Remembers when tasks waited, and the context and theta then."""

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        super().reset(seeds)
        self.account: list[list[tuple[float, np.ndarray, np.ndarray]]] = [[] for _ in seeds]

    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        found = super().terms(view)
        for b in np.flatnonzero(view.env["num_waiting"]).tolist():
            self.account[b].append((float(view.env["clock_s"][b]), self.context[b].copy(), self.theta[b].copy()))
        return found


def test_the_context_of_a_literal_instance() -> None:
    batch = Engine(TWO)
    batch.reset([0], [0], workload=GIVEN)
    scheduler = Remembering(constant(kappa=1.0), SPEEDS)
    scheduler.reset([(0, 0)])
    starts = scheduler.decide(batch.view())
    np.testing.assert_array_equal(starts, [[0, 0, 0, 1]])  # on the fast one, until 2
    batch.dispatch(starts)
    scheduler.decide(batch.view())
    seen = [dict(zip(CONTEXT, context.tolist(), strict=True)) for _, context, _ in scheduler.account[0]]

    assert [clock_s for clock_s, *_ in scheduler.account[0]] == [0.0, 1.5]
    waits = {"queue": 2 * math.log(1.5) - 0.6, "ready_work": math.log(1 + 4 / 3) - 0.7, "work": math.log(1 + 4 / 3) - 2}
    idle = {"idle_1": 1.4, "idle_2": 1.4, "queue_20": -0.6, "work_20": -2.0, "tasks": 1.5 * math.log(1.5) - 1.5}
    load = ((4 / 3 + 0.7 * 15) / 15 - 0.7) / 0.3
    assert seen[0] == pytest.approx({"size": -1.0, "load_30": load, "load_150": load} | waits | idle)
    work_30, work_150 = (4 / 3 * math.exp(-1.5 / tau) + 3.0 for tau in (30, 150))
    kept = math.exp(-1.5 / 20)
    assert seen[1] == pytest.approx(
        {
            "size": -1.0,
            "load_30": ((work_30 + 10.5) / (30 * (1 - math.exp(-1.5 / 30)) + 15) - 0.7) / 0.3,
            "load_150": ((work_150 + 10.5) / (150 * (1 - math.exp(-1.5 / 150)) + 15) - 0.7) / 0.3,
            "queue": 2 * math.log(1.5) - 0.6,
            "ready_work": math.log(1 + 6 / 3) - 0.7,
            "work": math.log(1 + 13 / 3) - 2,
            "idle_1": 1.4,
            "idle_2": -0.6,
            "queue_20": 2 * math.log(1 + (1 - kept) * 0.5) - 0.6,
            "work_20": math.log(1 + (1 - kept) * 4 / 3) - 2,
            "tasks": 1.5 * math.log(1 + 3 / 2) - 1.5,
        }
    )


@pytest.mark.parametrize(("sign", "row"), [(1, 0), (-1, 1)])
def test_a_price_that_follows_the_load_decides_where_a_task_goes(sign: int, row: int) -> None:
    # 4 s on slow against 2 s on fast and twice its price. The load is 0.79, so the price softplus(± 10 x 0.296).
    weights = constant(kappa=1.0)
    weights[THETA.index("price_2")] = 0.0
    weights[THETA.index("price_2"), 1 + CONTEXT.index("load_30")] = sign * 10.0
    schedule = play(ContextPrice(weights, SPEEDS), TWO, 0, [0], GIVEN).schedule()
    assert (schedule["server"][0], schedule["start_s"][0]) == (row, 0.0)


def test_a_penalty_keeps_a_task_from_waiting() -> None:
    # At 1.5 fast is busy until 2: 0.5 + 3 s there, 6 s on slow.
    for penalty, row, start in ((0.0, 1, 2.0), (2.4, 1, 2.0), (2.6, 0, 1.5)):
        played = play(ContextPrice(constant(kappa=1.0, penalty=penalty), SPEEDS), TWO, 0, [0], GIVEN).schedule()
        task = played[(played["workflow"] == 1) & (played["task"] == 0)]
        assert (task["server"].item(), task["start_s"].item()) == (row, start), penalty


def test_numbers_that_never_change_are_the_price_rule() -> None:
    env = SCENARIOS["steady-0.9"][0].at_scale(8)
    own = ContextPrice(initial_weights(PriceParameters(), 3), np.array([1.0, 2.0, 4.0]))
    price = make_scheduler("price", env.observation)
    schedules = [play(scheduler, env, 3, [0]).schedule() for scheduler in (own, price)]
    np.testing.assert_array_equal(*schedules)
    assert len(schedules[0]) > 100


def seen(speeds: list[float], capacity: list[float], idle: list[bool]) -> tuple[ContextPrice, np.ndarray]:
    """What the weights for `speeds`, with the prices 1 and 3, make of a cluster: their context, and its prices."""
    n, names = len(capacity), theta_names(len(speeds))
    weights = np.zeros((len(names), 1 + len(context_names(len(speeds)))))
    for name, value in {"price_2": 1.0, "price_3": 3.0}.items():
        weights[names.index(name), 0] = math.log(math.expm1(value))
    properties = np.zeros(n, dtype=SERVER)
    properties["max_concurrent"] = np.array(capacity) > 0
    view = View(
        env=np.zeros(1, dtype=ENV),
        waiting=np.zeros((1, 0), dtype=WAITING),
        inputs=np.zeros((1, 0), dtype=INPUT),
        new=np.zeros((1, 0), dtype=NEW),
        ended=np.zeros((1, 0), dtype=ENDED),
        unfinished=np.zeros((1, 1 + MOST_SEEN), dtype=np.int64),
        capacity=np.array(capacity),
        properties=properties,
        limit=np.where(np.array([capacity]) > 0, 10.0, -1.0),
        wait=np.zeros((1, n)),
        free_places=np.array([idle], dtype=np.int64),
        is_open=np.array([idle]),
        free=np.full((1, n), 10.0),
        next_end=np.full((1, n), np.inf),
    )
    rounds = ContextPrice(weights, np.array(speeds))
    rounds.reset([(0, 0)])
    prices = rounds.terms(view)[1][0]
    first = rounds.context.copy()
    rounds.terms(
        view._replace(is_open=~view.is_open)
    )  # asked again in the same round: what was seen when it began holds
    np.testing.assert_array_equal(rounds.context, first)
    return rounds, prices


@pytest.mark.parametrize(
    ("capacity", "prices"),
    [
        ([4.0, 1.0, 2.0, 0.0], [3, 0, 1, 0]),  # an empty row has none
        ([2.0, 4.0, 8.0], [0, 1, 3]),
        ([1.0, math.sqrt(8), 16.0], [0, 2, 3]),
        ([5.0, 5.0], [0, 0]),
    ],
)
def test_prices_go_by_relative_speed_on_a_cluster_of_other_classes(capacity: list[float], prices: list[float]) -> None:
    found = seen([1.0, 2.0, 4.0], capacity, [True] * len(capacity))[1]
    np.testing.assert_allclose(found, prices, atol=1e-12)


def test_idle_shares_of_a_cluster_of_other_classes_stand_between() -> None:
    context = seen([3.0, 3 * math.sqrt(2), 6.0], [1.0, 2.0], [False, True])[0].context[0]
    names = context_names(3)
    shares = [(context[names.index(f"idle_{k}")] + 0.6) / 2 for k in (1, 2, 3)]
    np.testing.assert_allclose(shares, [0, 0.5, 1])


def test_a_policy_for_other_classes_plays_a_cluster_or_is_refused() -> None:
    env = EnvConfig.model_validate(
        SCENARIOS["coding-agents-0.7"][0].model_dump() | {"episode": {"horizon_s": 120.0, "mask": "feasible"}}
    )
    for speeds in ((1.0, 2.0, 4.0), (0.57, 1.0, 1.64, 2.17), (1.0,)):
        scheduler = ContextPrice(initial_weights(PriceParameters(), len(speeds)), np.array(speeds))
        assert play(scheduler, env, 3, [0]).metrics()["completed"] > 10
    with pytest.raises(ValueError, match=r"\(8, 13\).*\(7, 12\)"):
        ContextPrice(np.zeros((8, 13)), SPEEDS)


@pytest.mark.parametrize("servers", [8, 64])
def test_clusters_of_other_sizes_are_as_the_nearest_that_was_searched_on(servers: int) -> None:
    env = SCENARIOS["steady-0.9"][0].at_scale(servers)
    weights, speeds = initial_weights(PriceParameters(), 3), np.array([1.0, 2.0, 4.0])
    weights += np.random.default_rng(2).normal(0, 0.5, (8, 13))
    folded = weights.copy()
    folded[:, 0] += weights[:, 1] * math.log2(min(max(servers, 16), 32) / 16) / 3
    folded[:, 1] = 0.0
    bounded, same, free = (
        play(scheduler, env, 1, [0]).schedule()["server"].tolist()
        for scheduler in (
            ContextPrice(weights, speeds, sizes=(16.0, 32.0)),
            ContextPrice(folded, speeds),
            ContextPrice(weights, speeds),
        )
    )
    assert bounded == same
    assert bounded != free


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_batch_is_decided_as_in_plain_code_by_the_weights_of_each(problem: str) -> None:
    env = EnvConfig.model_validate(PROBLEMS[problem])
    draws = np.random.default_rng(1).normal(0, 0.5, (3, 8, 13))
    scheduler = Remembering(initial_weights(PriceParameters(), 3) + draws, np.array([1.0, 2.0, 4.0]))
    batch, plain = play(scheduler, env, 11, [0, 0, 1]), PlainRounds(scheduler)
    single = play(plain, env, 11, [0, 0, 1])
    for b in range(3):
        assert batch.schedule(b).tobytes() == single.schedule(b).tobytes()
        assert [clock for clock, *_ in scheduler.account[b]] == [clock for clock, *_ in plain.account[b]]
        for at in (1, 2):  # the context, theta
            ours = [event[at] for event in scheduler.account[b]]
            np.testing.assert_allclose(ours, [event[at] for event in plain.account[b]], atol=1e-9)
    assert batch.schedule(0).tobytes() != batch.schedule(1).tobytes(), "one workload, two weights"
