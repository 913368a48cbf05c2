"""The update of one epoch without RLlib's batches and connectors, and the same numbers as with them.

RLlib turns episodes into a batch by a pipeline over Python objects, and passes every minibatch through several
containers. Here the rows are cut from the episodes' arrays once, and a minibatch is an index into them. Rows, their
order and the random numbers drawn are those of RLlib's path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from torch import Tensor

from rllib_scale.compiled import compiled
from rllib_scale.rl.env_runner import GROUP_ADVANTAGE

Batch = dict[str, Tensor]


@torch.no_grad()
def train_batch(
    episodes: Sequence[SingleAgentEpisode], values_of: Callable[[Batch], Tensor], gamma: float, lambda_: float
) -> Batch:
    """All T steps of some episodes, or pieces of them, one after the other, as rows with the columns of the loss.

    Args:
        episodes: single-agent episodes with `action_logp` and `action_dist_inputs`.
        values_of: the critic, a batch of observations (T + E, width) to values (T + E,).
        gamma: discount.
        lambda_: of generalised advantage estimation.
    """
    # Every piece has one observation more than steps: its value replaces the rewards after the piece.
    observations = torch.from_numpy(_concatenate([episode.get_observations() for episode in episodes], np.float32))
    lengths = np.array([len(episode) for episode in episodes])
    rewards = _concatenate([episode.get_rewards() for episode in episodes], np.float64)
    values = values_of({Columns.OBS: observations}).double().numpy()
    terminated = np.array([episode.is_terminated for episode in episodes])
    advantages, targets = advantage_estimates(rewards, values, lengths, terminated, gamma, lambda_)
    if all(GROUP_ADVANTAGE in episode.extra_model_outputs for episode in episodes):
        advantages = _concatenate([each.get_extra_model_outputs(GROUP_ADVANTAGE) for each in episodes], np.float64)
    # All but the last observation of each piece, which only bootstraps.
    is_step = np.ones(len(observations), dtype=bool)
    is_step[np.cumsum(lengths + 1) - 1] = False
    outputs = {
        key: _concatenate([episode.get_extra_model_outputs(key) for episode in episodes], np.float32)
        for key in (Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS)
    }
    return {
        Columns.OBS: observations[torch.from_numpy(is_step)],
        Columns.ACTIONS: torch.from_numpy(_concatenate([episode.get_actions() for episode in episodes], np.int64)),
        Columns.ACTION_LOGP: torch.from_numpy(outputs[Columns.ACTION_LOGP]),
        Columns.ACTION_DIST_INPUTS: torch.from_numpy(outputs[Columns.ACTION_DIST_INPUTS]),
        Postprocessing.ADVANTAGES: torch.from_numpy(advantages.astype(np.float32)),
        Postprocessing.VALUE_TARGETS: torch.from_numpy(targets.astype(np.float32)),
    }


@partial(compiled, allocates=True)
def advantage_estimates(rewards, values, lengths, terminated, gamma, lambda_):  # type: ignore[no-untyped-def]
    """Generalised advantage estimation over E pieces of episodes.

    Args:
        rewards: (T,) of all pieces, one after the other.
        values: (T + E,), those of a piece followed by the value of its last observation.
        lengths: (E,) steps of each piece; they sum to T.
        terminated: (E,) whether nothing comes after the piece, so that its last value counts as 0.
        gamma: discount.
        lambda_: share of the next step's advantage.

    Returns:
        Advantages (T,) and value targets (T,).
    """
    advantages = np.empty_like(rewards)
    targets = np.empty_like(rewards)
    start = 0
    for e in range(len(lengths)):
        following = 0.0 if terminated[e] else values[start + e + lengths[e]]
        advantage = 0.0
        # From the back: A_t = r_t + gamma V(s_t+1) - V(s_t) + gamma lambda A_t+1.
        for t in range(start + lengths[e] - 1, start - 1, -1):
            # Each piece before this one has one value more than steps.
            value = values[t + e]
            advantage = rewards[t] + gamma * following - value + gamma * lambda_ * advantage
            advantages[t], targets[t] = advantage, advantage + value
            following = value
        start += lengths[e]
    return advantages, targets


def minibatches(batch: Batch, size: int, passes: int, shuffle: bool = True) -> Iterator[Batch]:
    """The batch in pieces of `size` rows, `passes` times over.

    With `shuffle`, each pass after the first has a new order, drawn like that of RLlib's iterator: from numpy's global
    generator, after every pass including the last.
    """
    for _ in range(passes):
        for pieces in zip(*(column.split(size) for column in batch.values()), strict=True):
            yield dict(zip(batch, pieces, strict=True))
        # Also after the last pass, where RLlib draws and drops it: the generator must be in the same state.
        if shuffle:
            order = torch.from_numpy(np.random.permutation(len(batch[Columns.OBS])))  # noqa: NPY002
            batch = {name: column[order] for name, column in batch.items()}


def _concatenate(parts: Sequence[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype=dtype) for part in parts])
