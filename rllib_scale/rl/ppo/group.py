"""The baseline over copies: an estimator of advantages for RLlib's PPO that needs no critic.

The same stochastic policy plays G copies of one episode (the same cluster, the same arrivals).
The advantage of a decision of copy g at time t is the discounted return of g from t on, less the mean over the other
copies of theirs from the same moment t on:

    A_g(t) = R_g(t) - 1/(G - 1) sum_{k != g} R_k(t),    R(t) = sum over later rewards of exp(-(time - t) / horizon)

The baseline does not depend on what copy g decides, as copies draw independently, so sum_t A_g(t) grad log pi is an
unbiased estimate of the gradient; and it takes out what all copies share, which is nearly all of the variance: the
problem and its arrivals. Sources: H. Mao et al., ICLR 2019 (arXiv 1807.02264), input-dependent baselines, aligned by
time; W. Kool et al., 2019, the mean of the other samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from rllib_scale.compiled import compiled


def group_advantages(
    rewards: Sequence[np.ndarray], elapsed_s: Sequence[np.ndarray], horizon_s: float | None
) -> list[np.ndarray]:
    """Advantages (T_g,) of the decisions of each copy of one episode.

    Args:
        rewards: (T_g,) of each copy: earned from each decision until the next one, evenly over this time.
        elapsed_s: (T_g,) of each copy: this time [s]. The first decisions of all copies are at the same moment.
        horizon_s: time after which a reward has a weight of 1/e; None: all rewards count alike.
    """
    lengths = np.array([len(each) for each in rewards])
    flat = [np.concatenate(parts).astype(np.float64) for parts in (rewards, elapsed_s)]
    found = advantages_over_others(*flat, lengths, 0.0 if horizon_s is None else 1.0 / horizon_s)
    return np.split(found, np.cumsum(lengths)[:-1])


@partial(compiled, allocates=True)
def advantages_over_others(rewards, elapsed, lengths, rate):  # type: ignore[no-untyped-def]
    """(T,) advantages of all copies, one after the other; see `group_advantages`. `rate` is 1 / horizon [1/s]."""
    copies, total = len(lengths), len(rewards)
    starts = np.zeros(copies + 1, dtype=np.int64)
    returns, times = np.zeros(total + copies), np.zeros(total + copies)  # one more for each copy: its end
    for g in range(copies):
        starts[g + 1] = starts[g] + lengths[g]
        for i in range(lengths[g]):
            times[starts[g] + g + i + 1] = times[starts[g] + g + i] + elapsed[starts[g] + i]
        for i in range(lengths[g] - 1, -1, -1):
            at, lasts = starts[g] + g + i, elapsed[starts[g] + i]
            returns[at] = _spread(rewards[starts[g] + i], lasts, rate) + math.exp(-rate * lasts) * returns[at + 1]
    advantages = np.empty(total)
    for g in range(copies):
        for i in range(lengths[g]):
            advantages[starts[g] + i] = returns[starts[g] + g + i]
        for k in range(copies):
            if k == g:
                continue
            j, last = starts[k] + k, starts[k] + k + lengths[k]
            for i in range(lengths[g]):
                t = times[starts[g] + g + i]
                while j < last and times[j + 1] <= t:
                    j += 1
                if j == last:
                    break  # copy k has ended: no more rewards
                left = times[j + 1] - t
                reward = rewards[j - k] * left / (times[j + 1] - times[j])
                later = _spread(reward, left, rate) + math.exp(-rate * left) * returns[j + 1]
                advantages[starts[g] + i] -= later / (copies - 1)
    return advantages


@partial(compiled, inline=True)
def _spread(reward, lasts, rate):  # type: ignore[no-untyped-def]
    """The discounted value of a reward that is earned evenly over the next `lasts` s."""
    return reward * -math.expm1(-rate * lasts) / (rate * lasts) if rate * lasts > 0.0 else reward
