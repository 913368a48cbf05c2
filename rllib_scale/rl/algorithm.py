"""Algorithms that the loss of a remote environment runner does not change, and whose checkpoints hold all samplers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO
from ray.rllib.core import ALL_MODULES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)

from rllib_scale.rl.env_runner import COMPONENT_SAMPLER
from rllib_scale.rl.settings import refuse_unfollowed

COMPONENT_REMOTE_SAMPLERS = "remote_samplers"
MAX_REPEATS = 10
RESTART_TIMEOUT_S = 180.0
"""Within which a lost environment runner must restart: Ray may have to notice the loss of a node first."""
NOT_BY_EXACT_SAMPLING = {"ignore_env_runner_failures": "restart_failed_env_runners"}
"""See `refuse_unfollowed`."""


class ExactSampling(Algorithm):
    """Algorithms to which the loss of a remote environment runner makes no difference.

    RLlib trains on what the other runners deliver, or on nothing, and a restarted runner begins its workloads anew. It
    does not notice a runner that was lost and restarted while nobody called it. Here a round of sampling in which a
    runner was lost does not count: once all runners are back, they get the samplers that they had before it, and the
    round is repeated. The result is bit for bit that of a training without the loss. Every round returns the samplers
    with its episodes, so that this costs no call. RLlib's checkpoints hold the state of the local runner alone; they
    are completed by the sampler of each remote one.
    """

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        refuse_unfollowed(config, NOT_BY_EXACT_SAMPLING)
        self._samplers: dict[int, dict[str, Any]] = {}  # worker index -> its state after the last round
        self._processes: dict[int, str] = {}  # worker index -> Ray's id of the process that has this state
        self.runner_restarts = 0
        """How often a remote environment runner was lost and came back."""
        super().setup(config)
        self._note([answer[1:] for answer in self._ask_runners(lambda _: None)])

    def sample_round(
        self, sample: Callable[[EnvRunner], list[SingleAgentEpisode]]
    ) -> tuple[list[SingleAgentEpisode], list[Any]]:
        """The episodes of all environment runners, in the order of their indices, and the metrics of each.

        Args:
            sample: calls for the episodes of one runner, in its process.

        Raises:
            RuntimeError: lost runners do not come back, or runners are lost again and again.
        """
        runner = self.env_runner_group.local_env_runner
        if self.env_runner_group.num_remote_workers() == 0:
            return sample(runner), [runner.get_metrics()]

        def work(runner: EnvRunner) -> tuple[list[SingleAgentEpisode], Any]:
            return sample(runner), runner.get_metrics()

        for _ in range(MAX_REPEATS):
            answers = self._ask_runners(work)
            if {index: process for _, index, process, _ in answers} == self._processes:
                self._note([answer[1:] for answer in answers])
                results = [result for result, *_ in answers]
                return [episode for episodes, _ in results for episode in episodes], [metrics for _, metrics in results]
            self._await_runners()
            self._hand_samplers_out()
        raise RuntimeError(f"environment runners were lost in {MAX_REPEATS} rounds of sampling on end")

    def _ask_runners(self, work: Callable[[EnvRunner], Any]) -> list[tuple[Any, int, str, dict[str, Any]]]:
        """Result, index, process and sampler of each remote runner that answers; RLlib's own runner has no sampler."""

        def answer(runner: Any) -> tuple[Any, int, str, dict[str, Any]]:
            result = work(runner)
            process = ray.get_runtime_context().get_worker_id()
            return result, runner.worker_index, process, runner.get_state(components=[COMPONENT_SAMPLER])

        if self.env_runner_group is None or self.env_runner_group.num_remote_workers() == 0:
            return []
        answers = self.env_runner_group.foreach_env_runner(
            answer, local_env_runner=False, timeout_seconds=self.config.sample_timeout_s
        )
        return sorted(answers, key=lambda each: each[1])

    def _note(self, runners: list[tuple[int, str, dict[str, Any]]]) -> None:
        for index, process, state in runners:
            self._processes[index] = process
            if COMPONENT_SAMPLER in state:
                self._samplers[index] = state

    def _await_runners(self) -> None:
        """Wait until Ray has restarted the lost environment runners, and give them the weights."""
        group, deadline = self.env_runner_group, time.monotonic() + RESTART_TIMEOUT_S
        while lost := group.num_remote_workers() - group.num_healthy_remote_workers():
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{lost} environment runners stay dead: none came back within {RESTART_TIMEOUT_S:g} s"
                )
            time.sleep(0.5)
            self.restore_env_runners(group)
        group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)

    def _hand_samplers_out(self) -> None:
        """Set every runner to its sampler, in whatever process it is now."""
        states = self._samplers

        def take(runner: EnvRunner) -> None:
            if runner.worker_index in states:
                runner.set_state(states[runner.worker_index])

        for _, index, process, _ in self._ask_runners(take):
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
            state[COMPONENT_REMOTE_SAMPLERS] = list(self._samplers.values())
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume where `get_state` was called."""
        super().set_state(state)
        if COMPONENT_REMOTE_SAMPLERS in state:
            self._samplers = {
                runner[COMPONENT_SAMPLER]["worker_index"]: runner for runner in state[COMPONENT_REMOTE_SAMPLERS]
            }
            self._hand_samplers_out()


class SchedulingPPO(ExactSampling, PPO):
    """RLlib's PPO with exact sampling."""

    def training_step(self) -> None:
        """As `PPO.training_step`, whose samples are here those of all environment runners."""
        config, metrics = self.config, self.metrics
        episodes: list[SingleAgentEpisode] = []
        results: list[Any] = []
        with metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            while sum(map(len, episodes)) < config.total_train_batch_size:
                sampled, of_runners = self.sample_round(lambda runner: runner.sample())
                episodes += sampled
                results += of_runners
            metrics.aggregate(results, key=ENV_RUNNER_RESULTS)
        trained = (LEARNER_RESULTS, ALL_MODULES, NUM_MODULE_STEPS_TRAINED_LIFETIME)
        with metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            learned = self.learner_group.update(
                episodes=episodes,
                timesteps={
                    NUM_ENV_STEPS_SAMPLED_LIFETIME: metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)),
                    NUM_MODULE_STEPS_TRAINED_LIFETIME: metrics.peek(trained, default=0),
                },
                num_epochs=config.num_epochs,
                minibatch_size=config.minibatch_size,
                shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
            )
            metrics.aggregate(learned, key=LEARNER_RESULTS)
        with metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group,
                policies=set(learned[0]) - {ALL_MODULES},
                inference_only=True,
            )
