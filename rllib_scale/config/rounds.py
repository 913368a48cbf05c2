"""Policies that decide in rounds where tasks may wait for busy servers: in what problems they play."""

from __future__ import annotations

from rllib_scale.config.problem import EnvConfig
from rllib_scale.errors import UserError


def without_paper_mode(name: str) -> str:
    """Why a policy that decides for all waiting tasks does not play the paper's mode."""
    return (
        f"{name} decides for all waiting tasks at each event, and in the paper's mode (mask none, on_busy step) an "
        "answer that starts none costs clock_step_s; valid: mask feasible, or decision.on_busy reserve"
    )


def in_own_rounds(name: str, own: EnvConfig, env: EnvConfig) -> EnvConfig:
    """The problem `env` with the decision rounds of `own`, on which a policy was trained, if it reserves servers.

    Raises:
        UserError: the policy reserves servers, and in `env` naming a busy server costs time.
    """
    if own.decision.on_busy == "step":
        return env
    if env.costs_time:
        raise UserError(without_paper_mode(name))
    episode = env.episode.model_copy(update={"mask": own.episode.mask})
    return env.model_copy(update={"decision": own.decision, "episode": episode})
