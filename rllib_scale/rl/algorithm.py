"""Algorithms whose checkpoints hold the state of remote environment runners too."""

from __future__ import annotations

import pickle
import time
from collections.abc import Collection
from typing import Any

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO

from rllib_scale.rl.env_runner import COMPONENT_SAMPLER

COMPONENT_REMOTE_SAMPLERS = "remote_samplers"
MAX_REPEATS = 10
BACK_WITHIN_S = 180.0
"""Within which a lost environment runner is to be back: Ray may have to notice the loss of a node first."""


class RemoteSamplers(Algorithm):
    """Algorithms to which the loss of a remote environment runner makes no difference.

    RLlib trains on what the others deliver, or on nothing, and a restarted runner begins its workloads anew; one that
    was lost and restarted while nobody called it is not even noticed. Here an iteration in which a runner was lost does
    not count: once all are back, everything is set to the state before it, samplers included, and it is done again. The
    result is bit for bit that of a training without the loss. What RLlib saves, the local runner's state, is completed
    by the sampler of each remote one.
    """

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        self._samplers: dict[int, dict[str, Any]] = {}  # worker index -> its newest known sampler
        self._processes: dict[int, str] = {}  # worker index -> Ray's id of the process that has this sampler
        self.runner_restarts = 0
        """How often a remote environment runner was lost and came back."""
        super().setup(config)
        self._processes = {index: process for index, process, _ in self._ask_runners()}

    def step(self) -> dict[str, Any]:
        """One iteration with all environment runners.

        Raises:
            RuntimeError: they do not come back, or are lost again and again.
        """
        group = self.env_runner_group
        if group is None or group.num_remote_workers() == 0:
            return dict(super().step())
        before = pickle.dumps(self.get_state())
        for _ in range(MAX_REPEATS):
            restarts = group.num_remote_worker_restarts()
            result: dict[str, Any] = super().step()
            if self._remember_samplers() and group.num_remote_worker_restarts() == restarts:
                return result
            self._await_runners()
            self._go_back(pickle.loads(before))
        raise RuntimeError(f"environment runners were lost in {MAX_REPEATS} iterations on end")

    def _all_there(self) -> bool:
        group = self.env_runner_group
        return bool(group.num_healthy_remote_workers() == group.num_remote_workers())

    def _await_runners(self) -> None:
        """Wait until Ray has restarted the lost environment runners."""
        deadline = time.monotonic() + BACK_WITHIN_S
        while not self._all_there():
            if time.monotonic() > deadline:
                group = self.env_runner_group
                lost = group.num_remote_workers() - group.num_healthy_remote_workers()
                raise RuntimeError(f"{lost} environment runners stay dead: none came back within {BACK_WITHIN_S:g} s")
            time.sleep(0.5)
            self.restore_env_runners(self.env_runner_group)

    def _go_back(self, state: dict[str, Any]) -> None:
        """Set an earlier state: RLlib keeps weights that it takes for newer than those it is given, and any metrics."""

        def forget_age(holder: Any) -> None:
            holder._weights_seq_no = 0

        self.learner_group.foreach_learner(forget_age)
        self.env_runner_group.foreach_env_runner(forget_age)
        self.metrics.reset()
        self.set_state(state)

    def _ask_runners(self, *samplers: dict[str, Any]) -> list[tuple[int, str, dict[str, Any]]]:
        """Index, process and state of the sampler of each remote runner that answers, after it took its own of these.

        RLlib's own runner has no sampler: its state is empty.
        """

        def answer(runner: Any) -> tuple[int, str, dict[str, Any]]:
            for sampler in samplers:  # each takes its own
                runner.set_state({COMPONENT_SAMPLER: sampler})
            state = runner.get_state(components=[COMPONENT_SAMPLER])
            return runner.worker_index, ray.get_runtime_context().get_worker_id(), state

        if self.env_runner_group is None or self.env_runner_group.num_remote_workers() == 0:
            return []
        return list(
            self.env_runner_group.foreach_env_runner(
                answer, local_env_runner=False, timeout_seconds=self.config.sample_timeout_s
            )
        )

    def _remember_samplers(self) -> bool:
        """Note the sampler of each remote runner; says whether all are there, in the processes that they were in."""
        found = self._ask_runners()
        for index, process, state in found:
            if process == self._processes.get(index) and COMPONENT_SAMPLER in state:
                self._samplers[index] = state[COMPONENT_SAMPLER]
        return {index: process for index, process, _ in found} == self._processes

    def _hand_samplers_out(self) -> None:
        """Show every runner all samplers: each takes its own, in whatever process it is now."""
        for index, process, _ in self._ask_runners(*self._samplers.values()):
            self.runner_restarts += process != self._processes[index]
            self._processes[index] = process

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
            self._remember_samplers()
            state[COMPONENT_REMOTE_SAMPLERS] = [{COMPONENT_SAMPLER: sampler} for sampler in self._samplers.values()]
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where `get_state` was called."""
        super().set_state(state)
        if COMPONENT_REMOTE_SAMPLERS in state:
            samplers = [runner[COMPONENT_SAMPLER] for runner in state[COMPONENT_REMOTE_SAMPLERS]]
            self._samplers = {sampler["worker_index"]: sampler for sampler in samplers}
            self._hand_samplers_out()


class SchedulingPPO(RemoteSamplers, PPO):
    """RLlib's PPO, restored exactly."""
