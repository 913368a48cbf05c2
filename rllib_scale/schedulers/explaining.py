"""Why a price rule lets a task start on a server or wait: the costs that its round has compared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rllib_scale.observation.view import View
from rllib_scale.schedulers.reserving import PricingDispatcher
from rllib_scale.schedulers.visiting import OPTION
from rllib_scale.schedulers.visits import NUMBERS, Visits


class Choice(NamedTuple):
    """What is decided for a task that is visited."""

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
