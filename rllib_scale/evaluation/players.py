"""Whoever is to play, by name."""

from __future__ import annotations

from rllib_scale.config import EnvConfig
from rllib_scale.config.heuristics import is_heuristic, is_policy
from rllib_scale.errors import UserError, choice_error
from rllib_scale.evaluation.play import Player
from rllib_scale.plugins import entry_points
from rllib_scale.schedulers.rules import SCHEDULERS, make_scheduler


def named_scheduler(name: str, env: EnvConfig, decision: str, trust: bool = False) -> Player:
    """A heuristic by its name, the policy in a folder, or `zoo:NAME`; `trust` as for `load_policy`.

    Raises:
        UserError: it is neither.
    """
    if not is_policy(name):
        if not is_heuristic(name):
            valid = [*SCHEDULERS, *entry_points("scheduler")]
            raise UserError(f"{choice_error('scheduler', name, valid)}; and no policy folder of that name")
        return make_scheduler(name, env.observation, env.episode.mask, decision)  # type: ignore[arg-type]
    from rllib_scale.policies.policy import load_policy  # late: it takes torch along

    return load_policy(name, env.episode.mask, decision, trust)  # type: ignore[arg-type]
