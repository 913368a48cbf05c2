"""What the methods that decide in reserving rounds bring along: how they decide, see, are rewarded and discount."""

from __future__ import annotations

from typing import Any

from rllib_scale.config.problem import EnvConfig
from rllib_scale.errors import UserError

REPLACED: dict[str, Any] = {
    "env.decision.on_busy": "reserve",
    "env.decision.offer": "startable",
    "env.episode.mask": "none",
    "env.episode.horizon_is_terminal": False,
    "env.reward": {"name": "tasks-in-system"},
}
"""Settings of the problem that such a method replaces, whatever they are; of `env.reward` it reads the name alone."""
OWN_VALUES: dict[str, Any] = {
    "training.time_unit_s": 0.5,
    "training.reward_unit": 50.0,
    "training.lambda_by": "time",
    "network.skip": "price",
}
"""What the training of such a method has where its config leaves it unset."""
REPLACED_VALUES: dict[str, Any] = {
    "env.decision.order": "longest-hop",
    "env.observation.feature_set": "paper",
    **dict.fromkeys(OWN_VALUES),
}
"""Values, those of the paper's problem and what is unset, in whose place such a method takes its own."""


def without_paper_mode(name: str) -> str:
    """Why a policy that decides for all tasks that wait is not played in the paper's mode."""
    return (
        f"{name} decides for all waiting tasks at each event, and in the paper's mode (mask none, on_busy step) an "
        "answer that starts none costs clock_step_s; valid: mask feasible, or decision.on_busy reserve"
    )


def in_rounds(env: EnvConfig) -> EnvConfig:
    """A problem as such a method trains on it.

    A round at each event: tasks by descendants per work, that some row is open for, and each may wait for any
    row that fits: no answer is invalid, and the scenario's mask has nothing to say. The others only could wait, and to
    ask for them costs many times as many decisions. The reward is what is evaluated; a cut is no terminal state.

    Raises:
        ValueError: the order is open.
    """
    decision, observation = env.decision, env.observation
    if decision.order == "open":
        raise ValueError("env.decision.order open: the methods for rounds answer for one task at a time; leave it out")
    order = "descendants-per-work" if decision.order == "longest-hop" else decision.order
    features = "pairs" if observation.feature_set == "paper" else observation.feature_set
    return env.model_copy(
        update={
            "decision": decision.model_copy(update={"on_busy": "reserve", "order": order, "offer": "startable"}),
            "episode": env.episode.model_copy(update={"mask": "none", "horizon_is_terminal": False}),
            "observation": observation.model_copy(update={"feature_set": features}),
            "reward": env.reward.model_copy(update={"name": "tasks-in-system"}),
        }
    )


def in_own_rounds(name: str, own: EnvConfig, env: EnvConfig) -> EnvConfig:
    """A problem as a policy that was trained on `own` plays it: in the rounds of that, where it reserves.

    Raises:
        UserError: it reserves, and in `env` it costs time to name a busy server.
    """
    if own.decision.on_busy == "step":
        return env
    if env.costs_time:
        raise UserError(without_paper_mode(name))
    episode = env.episode.model_copy(update={"mask": own.episode.mask})
    return env.model_copy(update={"decision": own.decision, "episode": episode})
