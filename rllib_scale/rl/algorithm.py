"""Algorithms that the loss of a remote environment runner does not change, and whose checkpoints hold all samplers."""

from __future__ import annotations

import copy
import time
import traceback
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO
from ray.rllib.core import ALL_MODULES, COMPONENT_RL_MODULE
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

from rllib_scale.errors import UserError
from rllib_scale.rl.env_runner import COMPONENT_SAMPLER
from rllib_scale.rl.settings import refuse_unfollowed

COMPONENT_REMOTE_SAMPLERS = "remote_samplers"
MAX_REPEATS = 10
ROUNDS_BETWEEN_SNAPSHOTS = 16
"""Rounds of sampling that a lost environment runner repeats; a snapshot is several times as large as the episodes of
one round of DQN."""
RESTART_TIMEOUT_S = 180.0
"""Within which a lost environment runner must restart: Ray may have to notice the loss of a node first."""
NOT_BY_REPEATING = {"ignore_env_runner_failures": "restart_failed_env_runners"}
"""See `refuse_unfollowed`."""
Sample = Callable[[EnvRunner], list[SingleAgentEpisode]]


class Failure(NamedTuple):
    """An error in the process of an environment runner, as text: an exception of a user's may not travel."""

    message: str
    traceback: str
    is_users: bool

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """The failure of the exception that is being handled."""
        users = isinstance(error, UserError)
        return cls(str(error) if users else f"{type(error).__name__}: {error}", traceback.format_exc(), users)

    def again(self, runner: int) -> Exception:
        """An exception with the same message, to raise in the driver."""
        error = UserError(self.message) if self.is_users else RuntimeError(self.message)
        error.add_note(f"in the process of environment runner {runner}:\n{self.traceback.rstrip()}")
        return error


class Asking(Algorithm):
    """An algorithm that asks its remote environment runners for work and waits for lost ones."""

    runner_restarts = 0
    """Number of times that a remote environment runner was lost and came back."""

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        refuse_unfollowed(config, NOT_BY_REPEATING)
        super().setup(config)

    def remote_runners(self) -> set[int]:
        """Indices of the remote environment runners."""
        return set(range(1, self.env_runner_group.num_remote_workers() + 1))

    def ask(self, work: Callable[[EnvRunner], Any], runners: set[int]) -> list[tuple[int, str, Any]]:
        """Index, process and result of each of these runners that answers.

        An error in its work is a result, too, and is raised here: RLlib would end the process and start another one, in
        which the same happens again.
        """

        def answer(runner: Any) -> tuple[int, str, Any]:
            try:
                result = work(runner)
            except Exception as error:
                result = Failure.of(error)
            return runner.worker_index, ray.get_runtime_context().get_worker_id(), result

        if not runners:
            return []
        answers: list[tuple[int, str, Any]] = self.env_runner_group.foreach_env_runner(
            answer,
            local_env_runner=False,
            remote_worker_ids=sorted(runners),
            timeout_seconds=self.config.sample_timeout_s,
        )
        for index, _, result in answers:
            if isinstance(result, Failure):
                raise result.again(index)
        return answers

    def await_runners(self) -> None:
        """Wait until Ray has restarted the lost environment runners."""
        group, deadline = self.env_runner_group, time.monotonic() + RESTART_TIMEOUT_S
        while lost := group.num_remote_workers() - group.num_healthy_remote_workers():
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{lost} environment runners stay dead: none restarted within {RESTART_TIMEOUT_S:g} s"
                )
            time.sleep(0.5)
            self.restore_env_runners(group)


class ExactSampling(Asking):
    """Algorithms whose results do not change when a remote environment runner is lost.

    RLlib trains on what the other runners deliver, or on nothing, and a restarted runner starts its workloads from the
    beginning. It does not notice a runner that was lost and restarted between two calls. Here a lost runner, once it is
    back, gets the sampler of the last snapshot, repeats the rounds of sampling since then with the weights of each, and
    then samples what the others have sampled. The result is bit for bit that of a training without the loss. RLlib's
    checkpoints hold the state of the local runner alone; they are completed by the sampler of each remote one.
    """

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        self._processes: dict[int, str] = {}  # worker index -> Ray's id of its process
        self._samplers: dict[int, dict[str, Any]] = {}  # worker index -> its state at the last snapshot
        self._rounds: list[tuple[dict[str, Any], Sample]] = []  # since then: weights, and what was called
        super().setup(config)
        self._catch_up(self.remote_runners())
        self._take_snapshot()

    def sample_round(self, sample: Sample) -> tuple[list[SingleAgentEpisode], list[Any]]:
        """The episodes of all environment runners, in the order of their indices, and the metrics of each.

        Args:
            sample: calls for the episodes of one runner, in its process.

        Raises:
            RuntimeError: lost runners do not come back, or runners are lost again and again.
        """
        runner = self.env_runner_group.local_env_runner
        if not self.remote_runners():
            return sample(runner), [runner.get_metrics()]
        if len(self._rounds) == ROUNDS_BETWEEN_SNAPSHOTS:
            self._take_snapshot()
        # Samples and metrics in one call: a runner that is lost between two would be counted and not learned from.
        results = self._ask_all(lambda runner: (sample(runner), runner.get_metrics()))
        self._rounds.append((self._weights(), sample))
        return [episode for episodes, _ in results for episode in episodes], [metrics for _, metrics in results]

    def _weights(self) -> dict[str, Any]:
        """A copy of those that the environment runners act by."""
        return copy.deepcopy(self.env_runner_group.local_env_runner.get_state(components=[COMPONENT_RL_MODULE]))

    def _ask_all(self, work: Callable[[EnvRunner], Any]) -> list[Any]:
        """The result of each remote runner, in the order of their indices; lost ones are brought up to date first."""
        results: dict[int, Any] = {}
        for _ in range(MAX_REPEATS):
            missing = self.remote_runners() - set(results)
            # Only those without a result are asked again: the others have gone on with their workloads.
            answers = self.ask(work, missing)
            # Another process answers for a runner that was restarted unnoticed: its workloads start from the beginning.
            results |= {index: result for index, process, result in answers if process == self._processes.get(index)}
            missing -= set(results)
            if not missing:
                return [result for _, result in sorted(results.items())]
            self.await_runners()
            self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)
            self._catch_up(missing)
        raise RuntimeError(f"environment runners were lost in {MAX_REPEATS} rounds of sampling in a row")

    def _take_snapshot(self) -> None:
        """Keep the samplers of all remote runners as they are; RLlib's own runner has none."""
        states = self._ask_all(lambda runner: runner.get_state(components=[COMPONENT_SAMPLER]))
        self._samplers = {index: state for index, state in enumerate(states, 1) if COMPONENT_SAMPLER in state}
        self._rounds.clear()

    def _catch_up(self, runners: set[int]) -> None:
        """Bring runners, which may be in new processes, to the end of the last round."""
        samplers = {index: state for index, state in self._samplers.items() if index in runners}
        rounds, weights = list(self._rounds), self._weights()

        def repeat(runner: Any) -> None:
            if runner.worker_index in samplers:
                runner.set_state(samplers[runner.worker_index])
                for weights_then, sample in rounds:
                    # With the weights of that time, so that it draws the same actions.
                    runner.set_state(weights_then)
                    sample(runner)
                runner.set_state(weights)
                # Repeated rounds were learned from before the loss.
                runner.get_metrics()  # have been counted

        for index, process, _ in self.ask(repeat, runners):
            self.runner_restarts += process != self._processes.get(index, process)
            self._processes[index] = process

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """RLlib's state; a complete one also has the sampler of each remote `ArrayEnvRunner`."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        # A snapshot is a point from which all can be repeated, so the rounds before it are not needed any more.
        if components is None:
            self._take_snapshot()
            state[COMPONENT_REMOTE_SAMPLERS] = list(self._samplers.values())
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume where `get_state` was called."""
        super().set_state(state)
        if COMPONENT_REMOTE_SAMPLERS in state:
            self._samplers = {
                runner[COMPONENT_SAMPLER]["worker_index"]: runner for runner in state[COMPONENT_REMOTE_SAMPLERS]
            }
            self._rounds.clear()
            self._catch_up(self.remote_runners())


class SchedulingPPO(ExactSampling, PPO):
    """RLlib's PPO with exact sampling."""

    def training_step(self) -> None:
        """Like `PPO.training_step`, but with the samples of all environment runners."""
        config, metrics = self.config, self.metrics
        episodes: list[SingleAgentEpisode] = []
        results: list[Any] = []
        with metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            # Ordered by runner, not by arrival: the training data do not depend on the speed of runners.
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
