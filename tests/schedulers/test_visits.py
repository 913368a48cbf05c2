"""Servers chosen by kind are those chosen among all, also where costs are equal."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.observation.view import ENDED, ENV, INPUT, MOST_SEEN, NEW, WAITING, View
from rllib_scale.schedulers.visiting import EARLIEST_FINISH, FASTEST_OPEN
from rllib_scale.schedulers.visits import NUMBERS, SHARE, Visits, keys_by_price
from rllib_scale.simulator.cluster import SERVER
from rllib_scale.workloads.fitting import fits


def made_up_moments(generator: np.random.Generator, labelled: bool) -> View:
    """Of 2 environments and 9 servers of three kinds, with many ties, also of what is not quite the same."""
    b, n, r = 2, 9, 6
    env, waiting = np.zeros(b, dtype=ENV), np.zeros((b, r), dtype=WAITING)
    env["num_waiting"], env["clock_s"] = r, 5.0
    waiting["workflow"], waiting["task"] = generator.permutation(r), generator.integers(0, 3, (b, r))
    waiting["compute_gflop"] = generator.choice([1.0, 3.0, 1e6], (b, r))
    waiting["memory_gb"], waiting["descendants"] = generator.choice([1.0, 4.0, 20.0], (b, r)), 1
    waiting["first_input"], waiting["num_inputs"] = np.arange(r), generator.integers(0, 2, (b, r))
    inputs = np.zeros((b, r), dtype=INPUT)
    inputs["server"] = generator.integers(0, n, (b, r))
    inputs["transfer_s"] = generator.choice([0.0, 1e-9, 2.0], (b, r))
    limit = np.where(generator.random((b, n)) < 0.1, -1.0, np.repeat([4.0, 8.0, 8.0], 3))
    is_open = (generator.random((b, n)) < 0.3) & (limit >= 0)
    wait = np.where(is_open, 0.0, generator.choice([0.0, 1.0, 1.0 + 1e-12, 1.0 - 1e-12, 2.0], (b, n)))
    ones = np.zeros(n, dtype=SERVER)
    ones["max_concurrent"] = 1
    ones["labels"] = generator.integers(0, 4, n) if labelled else 0
    waiting["places"] = generator.choice([1, 1, 2], (b, r)) if labelled else 1
    waiting["labels"] = generator.choice([0, 0, 1, 3], (b, r)) if labelled else 0
    return View(
        env=env,
        waiting=waiting,
        inputs=inputs,
        new=np.zeros((b, 0), dtype=NEW),
        ended=np.zeros((b, 0), dtype=ENDED),
        unfinished=np.zeros((b, 1 + MOST_SEEN), dtype=np.int64),
        capacity=np.repeat([1.0, 2.0, 4.0], 3),
        properties=ones,
        limit=limit,
        wait=np.where(limit >= 0, wait, np.inf),
        free_places=is_open.astype(np.int64),
        is_open=is_open,
        free=np.where(is_open, limit, 0.0),
        next_end=np.where(is_open | (limit < 0), np.inf, wait),
    )


@pytest.mark.parametrize("waiting", [0.0, 0.5, 1.0, 2.0])
def test_servers_are_chosen_by_kind_as_among_all(waiting: float) -> None:
    """At equal costs the lowest one, also where costs are the same but for their rounding."""
    numbers, prices = (
        np.array([[1, -1, 0.1, 2, waiting, 0.5, 0, 10, 10]] * 2),
        np.repeat([[0.0, 0.5, 3.0]] * 2, 3, axis=1),
    )
    started = 0
    for seed in range(300):
        decided = []
        for by_kind_from in (1, 1000):
            rounds, answers = Visits(by_kind_from), []
            for decide in (
                lambda now, r=rounds: r.by_price(now, numbers, prices),
                lambda now, r=rounds: r.by_name(now, "first-ready", EARLIEST_FINISH, waiting),
                lambda now, r=rounds: r.by_name(now, "shortest-task", FASTEST_OPEN),
            ):
                view = made_up_moments(np.random.default_rng(seed), seed % 3 == 0)
                answers.append((decide(view).tolist(), view.wait.tolist()))
            decided.append(answers)
            started += len(answers[0][0])
        assert decided[0] == decided[1], seed
    assert started > 600


@pytest.mark.parametrize("kept", [1, 16])
def test_a_scarce_key_is_divided_by_the_share_of_capacity_that_the_task_fits(kept: int) -> None:
    """To the last bit, however few shares are kept: of servers that come and go, with labels and several places."""
    numbers, shares = np.zeros((2, len(NUMBERS))), np.zeros(kept, dtype=SHARE)
    numbers[:, [NUMBERS.index(name) for name in ("scarce", "compute_unit_gflop", "time_unit_s")]] = 1
    partial = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        now = made_up_moments(rng, True)
        now.capacity[:] = rng.random(9)
        now.properties["max_concurrent"] = rng.integers(1, 4, 9)
        now.waiting["memory_gb"] = rng.choice([4.0, 4.0 + 1e-9, 4.0 + 2e-9, *rng.uniform(0, 9, 3)], (2, 6))
        key = np.empty(now.waiting.shape)
        keys_by_price(numbers, now, shares, key)
        for b, i in np.ndindex(key.shape):
            task, able, whole = now.waiting[b, i], 0.0, 0.0
            for limit, speed, server in zip(now.limit[b], now.capacity, now.properties, strict=True):
                needs, places = (task["memory_gb"], task["places"], task["labels"]), server["max_concurrent"]
                if limit >= 0:
                    whole += speed * places
                    able += speed * places if fits(*needs, limit, places, server["labels"]) else 0.0
            if now.is_open[b].any():
                assert key[b, i] == (able / whole if able > 0 else 1.0) ** -1.0, (seed, b, i)
                partial += 0 < able < whole
    assert partial > 1000
