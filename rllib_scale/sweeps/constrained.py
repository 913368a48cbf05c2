"""The objective of a search on replicas: the least mean of calls, with tails no longer than those of a rule.

The mean is by Little's integral, with open calls; the tails are the 99th percentiles of calls and of turns, open ones
by their age. All are ln of the ratio to the rule on the same episode, so that no episode counts for its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rllib_scale.evaluation.candidates import Outcomes
from rllib_scale.schedulers.context import Floats

MULTIPLIERS = np.array([4.0, 2.0])
"""Weights of the excess of the tails of calls and of turns, in the first generation: with 1 the search first gives up
the tail of calls, and most of its generations win it back."""
RATE = 1.0
"""Step of a multiplier for each unit of excess."""
MARGIN = np.array([0.08, 0.0])
"""The tails must be shorter by this, in training and to be chosen, so that they are not longer on other sessions."""


class Compared(NamedTuple):
    """Outcomes of one instance."""

    own: Outcomes  # (C,) of the candidates
    rule: Outcomes  # (1,)


def ratios(played: Sequence[Compared], weights: Sequence[float]) -> Floats:
    """(3, C) ln of the ratios of candidates to the rule: mean of calls, and the tails of calls and of turns."""
    names = ("response_s", "call_p99_s", "turn_p99_s")
    of_each = [[np.log(getattr(each.own, name) / getattr(each.rule, name)) for name in names] for each in played]
    return np.asarray(np.average(of_each, axis=0, weights=weights))


def penalised(found: Floats, multipliers: Floats) -> Floats:
    """(C,) the mean, and what the tails exceed by its multipliers."""
    return np.asarray(found[0] + multipliers @ np.maximum(0.0, found[1:] + MARGIN[:, None]))


def raised(found: Floats, multipliers: Floats) -> Floats:
    """(2,) multipliers of the next generation: dual ascent by the median of the candidates."""
    return np.maximum(0.0, multipliers + RATE * (np.median(found[1:], axis=1) + MARGIN))


def is_allowed(found: Floats) -> bool:
    """Whether the tails of one candidate are shorter than those of the rule, by MARGIN."""
    return bool((found[1:] <= -MARGIN).all())
