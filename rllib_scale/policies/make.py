"""Builds a policy from its spec. The only code that makes a policy from a name, wherever it plays."""

from __future__ import annotations

from rllib_scale import plugins
from rllib_scale.config import DecisionMode, EnvConfig
from rllib_scale.config.schedulers import PolicySpec, RuleSpec, SchedulerSpec, check_service, parse_scheduler
from rllib_scale.errors import UserError
from rllib_scale.loading import resolve
from rllib_scale.observation.policy import Policy
from rllib_scale.schedulers.rules import make_scheduler


def make_policy(
    spec: SchedulerSpec | str,
    env: EnvConfig,
    decision: DecisionMode = "argmax",
    trust: bool | str | None = False,
    key: str = "scheduler",
) -> Policy:
    """A rule, a user-defined scheduler or an exported policy, for a problem.

    Args:
        spec: as `parse_scheduler` gives it, or its text, which is then the name of the policy.
        env: the problem; a policy that the network has learned decides under its mask.
        decision: argmax, or sample for a policy that has learned probabilities.
        trust: as for `load_policy`.
        key: where the spec was given, for messages.

    Raises:
        UserError: there is none, it has changed since it was resolved, or it cannot decide in that way.
    """
    shown = spec if isinstance(spec, str) else spec.label
    found = resolve(parse_scheduler(spec) if isinstance(spec, str) else spec)
    check_service(found, env)
    if not isinstance(found, PolicySpec):
        made = make_scheduler(found, env.observation, env.episode.mask, decision)
        if env.on_replicas and not (isinstance(found, RuleSpec) or made.per_task):
            raise UserError(f"{shown}: decides for any waiting task, and service replica asks call by call")
        made.name = plugins.unpinned(shown)
        return made
    from rllib_scale.policies.policy import policy_files, policy_from_bytes  # late: it imports torch

    policy = policy_from_bytes(policy_files(found.folder(key)), shown, env.episode.mask, decision, trust)
    policy.name = shown  # as typed, in tables and refusals
    return policy
