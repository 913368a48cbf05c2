"""An algorithm of RLlib without gradients: environment runners play whole episodes of deterministic policies.

A generation: the update proposes weights, every candidate plays the same episodes, the update gets the scores. Jobs go
to the environment runners, their results are sorted by job, and those of a lost runner are repeated: the number of
runners, and the loss of one, change no digit.

The means of single generations scatter with their episodes. `EvolutionStrategies.average` is their average, in which
generation g of G has a weight of about (g / G)^3: O. Shamir and T. Zhang, ICML 2013, sec. 4.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule

from rllib_scale.rl.algorithm import MAX_REPEATS, Asking
from rllib_scale.rl.evolution.updates import CMA, ES, Floats, Update

Job = TypeVar("Job")
Played = TypeVar("Played")
AVERAGE_POWER = 3
"""Power of the generation in the weight of its mean."""
COMPONENT_EVOLUTION = "evolution"


class Search(Protocol):
    """Object of a search. It is sent to the environment runners.

    Attributes:
        initial: (W,) weights to begin with.
        steps: (W,) relative size of the initial steps.
        memory: state that `judge` keeps from one generation to the next.
    """

    initial: Floats
    steps: Floats
    memory: Any

    def jobs(self, generation: int) -> list[Any]:
        """Episodes of a generation, the same for all candidates; 1 is the first."""

    def play(self, weights: Floats, job: Any) -> Any:
        """Outcome of one of them with weights (C, W)."""

    def judge(self, played: list[Any], jobs: list[Any]) -> tuple[Floats, dict[str, float]]:
        """The score of each candidate, the least is best; and values to log for the generation."""


class EvolutionConfig(AlgorithmConfig):
    """Settings of `EvolutionStrategies`."""

    def __init__(self, algo_class: Any = None) -> None:
        super().__init__(algo_class=algo_class or EvolutionStrategies)
        self.search: Search | None = None
        self.update = "es"
        self.population, self.step = 20, 0.3
        self.update_settings: dict[str, Any] = {}
        self.entropy: Any = 0
        self.environment(Unplayed)
        self.learners(num_learners=0)

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """See `NoModule`."""
        return RLModuleSpec(module_class=NoModule)

    def get_default_learner_class(self) -> type[TorchLearner]:
        """See `NoGradients`."""
        return NoGradients

    def training(
        self,
        *,
        search: Any = NotProvided,
        update: Any = NotProvided,
        population: Any = NotProvided,
        step: Any = NotProvided,
        update_settings: Any = NotProvided,
        entropy: Any = NotProvided,
        **kwargs: Any,
    ) -> EvolutionConfig:
        """Set the search and its method.

        Args:
            search: a `Search`.
            update: "cma" or "es".
            population: candidates of a generation.
            step: initial step of each weight, in units of `Search.steps`.
            update_settings: further arguments of the update.
            entropy: of `numpy.random.default_rng`.
            **kwargs: of RLlib.
        """
        super().training(**kwargs)
        given = {"search": search, "update": update, "population": population, "step": step}
        for name, value in (given | {"update_settings": update_settings, "entropy": entropy}).items():
            if value is not NotProvided:
                setattr(self, name, value)
        return self


class EvolutionStrategies(Asking):
    """Evolution strategies; an iteration is a generation. Its state holds the update, with its moments, and `average`.

    `update.mean` (W,) are the current weights of the search.
    """

    @classmethod
    def get_default_config(cls) -> EvolutionConfig:
        """RLlib's default settings of the algorithm."""
        return EvolutionConfig()

    def setup(self, config: Any) -> None:
        """Build as RLlib does."""
        super().setup(config)
        self.search: Search = config.search
        self.generation = 0
        generator = np.random.default_rng(config.entropy)
        begin = self.search.initial, self.search.steps, generator, config.population, config.step
        kind = {"cma": CMA, "es": ES}[config.update]
        self.update: Update = kind(*begin, **config.update_settings)
        self.average = self.search.initial
        self.logged: dict[str, float] = {}
        """Values of the last generation."""

    def training_step(self) -> None:
        """Play a generation, and learn from it."""
        self.generation += 1
        search, candidates = self.search, self.update.ask()
        jobs = search.jobs(self.generation)
        played = self.spread(lambda job: search.play(candidates, job), jobs)
        scores, logged = search.judge(played, jobs)
        self.update.tell(candidates, scores)
        weight = (1 + AVERAGE_POWER) / (self.generation + AVERAGE_POWER)
        self.average = self.average + weight * (self.update.mean - self.average)
        self.logged = logged | {"objective": float(scores.mean()), "step_size": self.update.step}
        for name, value in self.logged.items():
            self.metrics.log_value((COMPONENT_EVOLUTION, name), value, window=1)

    def spread(self, play: Callable[[Job], Played], jobs: Sequence[Job]) -> list[Played]:
        """Results of `play` for each job, in their order, from all environment runners; without remote ones, here.

        Raises:
            RuntimeError: runners are lost again and again, or do not come back.
        """
        runners = sorted(self.remote_runners())
        if not runners:
            return [play(job) for job in jobs]
        results: dict[int, Played] = {}
        for _ in range(MAX_REPEATS):
            missing = [number for number in range(len(jobs)) if number not in results]
            if not missing:
                return [results[number] for number in range(len(jobs))]
            dealt = {runner: missing[first :: len(runners)] for first, runner in enumerate(runners)}

            def work(runner: Any, dealt: dict[int, list[int]] = dealt) -> list[tuple[int, Any]]:
                return [(number, play(jobs[number])) for number in dealt[runner.worker_index]]

            answers = self.ask(work, set(runners))
            for _, _, part in answers:
                results |= dict(part)
            if len(answers) < len(runners):
                self.runner_restarts += len(runners) - len(answers)
                self.await_runners()
        raise RuntimeError(f"environment runners were lost {MAX_REPEATS} times in a row")

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """RLlib's state; a complete one also has that of the search."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if components is None:
            own = {name: getattr(self, name) for name in ("generation", "update", "average")}
            state[COMPONENT_EVOLUTION] = copy.deepcopy((own, self.search.memory))
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume where `get_state` was called."""
        super().set_state(state)
        if COMPONENT_EVOLUTION in state:
            own, self.search.memory = copy.deepcopy(state[COMPONENT_EVOLUTION])
            for name, value in own.items():
                setattr(self, name, value)


class Unplayed(gym.Env):
    """Placeholder: RLlib asks an environment for its spaces, and a search plays whole episodes itself."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: Any = None) -> None: ...

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return a constant."""
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        """End immediately."""
        return np.zeros(1, np.float32), 0.0, True, False, {}


class NoModule(TorchRLModule):
    """Placeholder: the weights of a search are those of its update, not of a module."""

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        raise NotImplementedError("a search plays whole episodes")


class NoGradients(TorchLearner):
    """Placeholder: a search makes no gradient steps."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Configure none."""

    def compute_loss_for_module(self, **kwargs: Any) -> Any:
        """Never called."""
        raise NotImplementedError("a search has no loss")
