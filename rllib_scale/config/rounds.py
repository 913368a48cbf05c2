"""Methods that decide in decision rounds with reservations: their decisions, observations, rewards and discounts."""

from __future__ import annotations

from rllib_scale.config.problem import EnvConfig, RewardConfig
from rllib_scale.errors import UserError


def without_paper_mode(name: str) -> str:
    """Why a policy that decides for all waiting tasks does not play the paper's mode."""
    return (
        f"{name} decides for all waiting tasks at each event, and in the paper's mode (mask none, on_busy step) an "
        "answer that starts none costs clock_step_s; valid: mask feasible, or decision.on_busy reserve"
    )


def in_rounds(env: EnvConfig) -> EnvConfig:
    """The problem on which such a method trains.

    A decision round at each event offers the tasks for which some server is open, by descendants per work. A task may
    wait for any server that fits, so that no answer is invalid. Tasks that could only wait are not offered: that would
    take many times as many decisions. The reward is the evaluated metric; the horizon is not a terminal state.

    Raises:
        ValueError: the order is open.
    """
    decision, observation = env.decision, env.observation
    if decision.order == "open":
        raise ValueError("env.decision.order open: methods for decision rounds answer for one task; leave it out")
    order = "descendants-per-work" if decision.order == "longest-hop" else decision.order
    features = "pairs" if observation.feature_set == "paper" else observation.feature_set
    return env.model_copy(
        update={
            "decision": decision.model_copy(update={"on_busy": "reserve", "order": order, "offer": "startable"}),
            "episode": env.episode.model_copy(update={"mask": "none", "horizon_is_terminal": False}),
            "observation": observation.model_copy(update={"feature_set": features}),
            "reward": RewardConfig(name="tasks-in-system", energy_power=env.reward.energy_power),
        }
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
