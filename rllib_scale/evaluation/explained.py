"""Why a price rule decides as it does at a moment of an episode: the costs that its first round then compares."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.replay import Episode
from rllib_scale.observation.policy import Policy
from rllib_scale.observation.view import View
from rllib_scale.schedulers.reserving import PricingDispatcher
from rllib_scale.schedulers.visiting import OPTION
from rllib_scale.schedulers.visits import NUMBERS, Visits
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload

COLUMNS = {
    "task": "task",
    "decision": "decision",
    "weight": "weight",
    "wait (s)": "wait_s",
    "time (s)": "lasts_s",
    "price": "price",
    "penalty": "penalty",
    "cost ↓": "cost",
    "next best": "other",
    "its wait (s)": "other_wait_s",
    "its time (s)": "other_lasts_s",
    "its price": "other_price",
    "its penalty": "other_penalty",
    "its cost": "other_cost",
}
"""Heading -> key of `Moment.rows`."""


class Choice(NamedTuple):
    """The decision for a visited task."""

    workflow: int
    task: int
    starts: bool
    options: np.ndarray  # OPTION of the chosen server, and of the best other one where the task fits another


class Explanation(NamedTuple):
    """One round of one environment."""

    numbers: dict[str, float]  # by NUMBERS
    prices: np.ndarray  # (N,) of a second on each server
    choices: list[Choice]  # in the order of visits
    left: int  # waiting tasks that are not visited, as no server is open any more


class Moment(NamedTuple):
    """A round: time, numbers by NUMBERS, prices of a second by speed, a row a visited task, and how many more wait."""

    clock_s: float
    numbers: dict[str, float]
    prices: dict[float, float]
    rows: list[dict[str, Any]]
    left: int


def explain_played(played: Episode, at: float) -> Moment | None:
    """`explain_at` for a played episode; its policy's state is unchanged."""
    if not isinstance(played.player, PricingDispatcher):
        return None
    return explain_at(deepcopy(played.player), played.unit.env, played.unit.seed, played.episode, at)


def explain_at(
    policy: Policy, env: EnvConfig, seed: int, episode: int, at: float, workload: Workload | None = None
) -> Moment | None:
    """The first round at or after a time of the episode (seed, episode), which is played up to it.

    None: the policy is no price rule.

    Raises:
        UserError: the episode ends before.
    """
    if not isinstance(policy, PricingDispatcher):
        return None
    engine = Engine(policy.problem(env))
    engine.reset([seed], [episode], workload=workload)
    policy.reset([(seed, episode)])
    while not engine.done[0] and engine.clock[0] < at:
        policy.advance(engine)
    if engine.done[0]:
        raise UserError(f"--at {at:g}: the episode ends at {engine.clock[0]:.4g} s; valid: an earlier time")
    view = engine.view()
    found, rows = explain(policy, view), []
    for choice in found.choices:
        best, *others = ({name: option[name].item() for name in OPTION.names or ()} for option in choice.options)
        server, wait = best["server"], best["wait_s"]
        decision = f"starts on {server}" if choice.starts else f"waits {wait:.2f} s for {server}"
        row = {"task": f"{choice.workflow}.{choice.task}", "decision": decision} | best
        for other in others:
            row |= {f"other_{key}".removesuffix("_server"): value for key, value in other.items() if key != "weight"}
        rows.append(row)
    # A speed all of whose servers are away has a price, too, which applies to no task.
    speeds = np.unique(view.capacity[(view.capacity > 0) & (view.limit[0] >= 0)]).tolist()
    prices = {speed: float(found.prices[(view.capacity == speed) & (view.limit[0] >= 0)].mean()) for speed in speeds}
    return Moment(float(engine.clock[0]), found.numbers, prices, rows, found.left)


def explain(policy: PricingDispatcher, view: View) -> Explanation:
    """The round that the policy would play in a batch of one; it changes neither the view nor the round.

    Args:
        policy: was reset for one environment.
        view: of it.
    """
    numbers, prices = policy.terms(view)
    waiting = int(view.env["num_waiting"][0])
    options = np.zeros((max(1, waiting), 2), dtype=OPTION)
    answers = Visits().by_price(View(*(array.copy() for array in view)), numbers, prices, options)
    choices = [
        Choice(workflow, task, server >= 0, of[of["server"] >= 0])
        for (_, workflow, task, server), of in zip(answers.tolist(), options, strict=False)
    ]
    named = dict(zip(NUMBERS, numbers[0].tolist(), strict=True))
    return Explanation(named, prices[0].copy(), choices, waiting - len(choices))
