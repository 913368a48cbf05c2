"""Algorithms whose checkpoints hold the state of remote environment runners too."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO

from rllib_scale.rl.env_runner import COMPONENT_SAMPLER

COMPONENT_REMOTE_SAMPLERS = "remote_samplers"


class RemoteSamplers(Algorithm):
    """RLlib saves the local environment runner alone; a restored training is to go on with every runner's next step."""

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """RLlib's state, and the sampler of each remote `ArrayEnvRunner`."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(COMPONENT_REMOTE_SAMPLERS, components, not_components):
            runners = self.env_runner_group.foreach_env_runner(
                lambda runner: runner.get_state(components=[COMPONENT_SAMPLER]), local_env_runner=False
            )
            state[COMPONENT_REMOTE_SAMPLERS] = [
                {COMPONENT_SAMPLER: runner[COMPONENT_SAMPLER]} for runner in runners if COMPONENT_SAMPLER in runner
            ]
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where `get_state` was called."""
        super().set_state(state)
        samplers = state.get(COMPONENT_REMOTE_SAMPLERS)
        if samplers:
            # Every runner is shown all of them and takes its own.
            self.env_runner_group.foreach_env_runner(
                lambda runner: [runner.set_state(sampler) for sampler in samplers], local_env_runner=False
            )


class SchedulingPPO(RemoteSamplers, PPO):
    """RLlib's PPO, restored exactly."""
