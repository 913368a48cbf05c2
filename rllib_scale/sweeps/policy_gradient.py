"""The training of `decima` and `deeprm`: Ray plays the workloads of an epoch, Adam takes one step."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from rllib_scale.config import TrialConfig
from rllib_scale.evaluation.candidates import Instance, Outcomes, outcomes_of, play_base
from rllib_scale.files import write_atomic
from rllib_scale.policies.dispatch_policy import DispatchPolicy, build_dispatch_network
from rllib_scale.policies.policy import save_policy
from rllib_scale.rl.reinforce import learn_from, reinforce_of
from rllib_scale.sweeps.evolution import STATE, TRAINING, VALIDATION, draw_instances, epoch_row, largest_first, scores

Weights = Mapping[str, np.ndarray]


def play_policy(weights: Weights, trial: TrialConfig, instance: Instance) -> Outcomes:
    """(1,) what comes of an instance with the policy of these weights, without draws."""
    torch.set_num_threads(1)
    network = build_dispatch_network(trial)
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    return outcomes_of(DispatchPolicy(network, trial, 0), 1, instance)


def learn(weights: Weights, trial: TrialConfig, entropy_coefficient: float, instance: Instance) -> Any:
    """What one instance teaches: `learn_from`."""
    return learn_from(weights, trial, instance.env, instance.seed, entropy_coefficient)


class PolicyGradient:
    """REINFORCE with Adam; one epoch plays `reinforce.instances` workloads several times each.

    Every draw is decided by the training's seed and the epoch, and gradients are added in the order of the workloads:
    how many processes play changes nothing.

    Args:
        trial: of a method that REINFORCE trains.
    """

    def __init__(self, trial: TrialConfig) -> None:
        self.trial = trial
        self.network = build_dispatch_network(trial)
        self._optimizer = torch.optim.Adam(self.network.parameters(), reinforce_of(trial).learning_rate)
        self._env_steps = 0
        self.best, self.best_score = self._weights(), math.inf
        self._base: float | None = None
        self.restarts = 0

    @property
    def runners(self) -> tuple[int, int]:
        """See `Learner`; what Ray loses it plays again."""
        return self.trial.resources.env_runners, self.trial.resources.env_runners

    def epoch(self, number: int) -> dict[str, Any]:
        """See `Learner`."""
        settings, start = reinforce_of(self.trial), time.monotonic()
        if number == 1:
            self._validate()
        instances = draw_instances(self.trial, settings.instances, TRAINING, number)
        share = min(1.0, (number - 1) / max(1, settings.epochs - 1))
        entropy_coefficient = settings.entropy_coefficient * (1 - share) + settings.final_entropy_coefficient * share
        weights = self._weights()
        jobs = [(weights, self.trial, entropy_coefficient, instance) for instance in instances]
        lessons = largest_first(learn, jobs, self.trial.resources.env_runners)
        norm = self._step([lesson.gradients for lesson in lessons], [instance.weight for instance in instances])
        validation = math.nan
        if number % settings.validate_every == 0 or number == self.trial.stop_epochs:
            validation = self._validate()
        decisions = sum(lesson.decisions for lesson in lessons)
        self._env_steps += decisions
        wall_s = time.monotonic() - start
        return epoch_row(
            epoch=number,
            env_steps=self._env_steps,
            wall_s=wall_s,
            env_steps_per_s=decisions / wall_s,
            completed=float(np.mean([lesson.completed for lesson in lessons])),
            response_mean_s=float(np.nanmean([lesson.response_s for lesson in lessons])),
            entropy=float(np.mean([lesson.entropy for lesson in lessons])),
            policy_loss=float(np.mean([lesson.policy_loss for lesson in lessons])),
            gradient_norm=norm,
            learning_rate=settings.learning_rate,
            objective=float(np.nanmean([np.log(lesson.response_s) for lesson in lessons])),
            objective_validation=validation,
        )

    def _step(self, gradients: list[list[np.ndarray]], weights: list[float]) -> float:
        """One step of Adam along the mean of the workloads' gradients; returns its norm before clipping."""
        shares = np.array(weights) / sum(weights)
        for at, parameter in enumerate(self.network.parameters()):
            total = sum(share * of_one[at].astype(np.float64) for share, of_one in zip(shares, gradients, strict=True))
            parameter.grad = torch.from_numpy(np.asarray(total, dtype=np.float32))
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), reinforce_of(self.trial).gradient_clip)
        if not torch.isfinite(norm):
            raise RuntimeError(f"the gradient of {self.trial.name} is not finite")
        self._optimizer.step()
        return float(norm)

    def _validate(self) -> float:
        """Mean ln(response) on the validation instances less that of fastest-idle; the weights are kept if the best."""
        instances = draw_instances(self.trial, reinforce_of(self.trial).validation_instances, VALIDATION)
        counts = [instance.weight for instance in instances]
        remote, weights = self.trial.resources.env_runners, self._weights()
        if self._base is None:
            base = largest_first(play_base, [(instance,) for instance in instances], remote)
            self._base = float(scores(base, "response", counts)[0])
        played = largest_first(play_policy, [(weights, self.trial, instance) for instance in instances], remote)
        score = float(scores(played, "response", counts)[0]) - self._base
        if score < self.best_score:
            self.best, self.best_score = weights, score
        return score

    def _weights(self) -> dict[str, np.ndarray]:
        """A copy of the network's weights by name."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self.network.state_dict().items()}

    def save(self, folder: Path) -> None:
        """See `Learner`."""
        optimizer = self._optimizer.state_dict()
        state = (self._weights(), optimizer, self._env_steps, self.best, self.best_score)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / STATE, lambda path: path.write_bytes(pickle.dumps(state)))

    def load(self, folder: Path) -> None:
        """See `Learner`."""
        weights, optimizer, self._env_steps, self.best, self.best_score = pickle.loads((folder / STATE).read_bytes())
        self.network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        self._optimizer.load_state_dict(optimizer)

    def save_policy(self, folder: Path, epochs: int) -> None:
        """Export the weights that were best in validation."""
        network = build_dispatch_network(self.trial)
        network.load_state_dict({name: torch.from_numpy(array) for name, array in self.best.items()})
        save_policy(folder, network, self.trial, epochs)

    def places(self) -> dict[str, Any]:
        """The node of the learner; its episodes are Ray tasks, played wherever there is room."""
        return {"learner": ray.get_runtime_context().get_node_id(), "env_runners": []}

    def stop(self) -> None:
        """Nothing is left running between two epochs."""
