"""Why a price rule lets a task start on a server or wait: the costs that it compares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rllib_scale.observation.starting import Servers, give_one
from rllib_scale.observation.view import View
from rllib_scale.schedulers.reserving import PricingDispatcher
from rllib_scale.schedulers.rounds import NUMBERS, Rounds
from rllib_scale.schedulers.visiting import servers_in
from rllib_scale.workloads.fitting import fits


class Option(NamedTuple):
    """One server for a task, and what it would cost."""

    server: int
    wait_s: float  # until a place is free
    lasts_s: float  # transfer and execution
    price: float  # of a second there
    penalty: float  # 0 where the task can start now
    cost: float


class Choice(NamedTuple):
    """What is decided for a task that is visited."""

    workflow: int
    task: int
    weight: float  # of a second of this task: n^alpha
    starts: bool
    options: list[Option]  # the chosen one, and the best other


class Explanation(NamedTuple):
    """One round of one environment."""

    numbers: dict[str, float]  # by NUMBERS
    prices: np.ndarray  # (N,) of a second on each server
    choices: list[Choice]  # in the order of visits
    left: int  # waiting tasks that are not visited, as no server is open any more


def explain(policy: PricingDispatcher, view: View) -> Explanation:
    """The round that the policy would play in a batch of one; it changes neither the view nor the round.

    Args:
        policy: was reset for one environment.
        view: of it.
    """
    numbers, prices = policy.terms(view)
    for_round, now = (View(*(array.copy() for array in view)) for _ in range(2))
    named = dict(zip(NUMBERS, numbers[0].tolist(), strict=True))
    waiting, servers = now.waiting[0, : int(now.env["num_waiting"][0])], servers_in(now, 0)
    choices = []
    for _, workflow, task, answer in Rounds().by_price(for_round, numbers, prices).tolist():
        row = waiting[(waiting["workflow"] == workflow) & (waiting["task"] == task)][0]
        choices.append(_choice(row, max(answer, -2 - answer), now, servers, named, prices[0]))
    return Explanation(named, prices[0].copy(), choices, len(waiting) - len(choices))


def _choice(
    task: np.void, server: int, view: View, servers: Servers, numbers: dict[str, float], prices: np.ndarray
) -> Choice:
    """The costs of a task as the servers are now; then the chosen one is given to it."""
    inputs = view.inputs[0, task["first_input"] : task["first_input"] + task["num_inputs"]]
    stays = np.bincount(inputs["server"], inputs["transfer_s"], len(prices))
    has_room = fits(task["memory_gb"], servers.limit) & (servers.capacity > 0)
    speed = np.where(servers.capacity > 0, servers.capacity, 1.0)
    lasts = np.maximum(0.0, inputs["transfer_s"].sum() - stays) + task["compute_gflop"] / speed
    can_start = servers.is_open & fits(task["memory_gb"], servers.free)
    ahead = np.where(servers.is_open & ~can_start & np.isfinite(servers.next_end), servers.next_end, servers.wait)
    weight, penalty = float(task["descendants"] ** numbers["alpha"]), np.where(can_start, 0.0, numbers["penalty"])
    cost = np.where(has_room, weight * (numbers["kappa"] * ahead + lasts) + prices * lasts + penalty, np.inf)
    others = [int(j) for j in np.argsort(cost, kind="stable") if j != server and np.isfinite(cost[j])]
    columns = (ahead, lasts, prices, penalty, cost)
    options = [Option(j, *(float(column[j]) for column in columns)) for j in [server, *others[:1]]]
    starts = bool(give_one(servers, server, float(task["memory_gb"]), float(lasts[server])))
    return Choice(int(task["workflow"]), int(task["task"]), weight, starts, options)
