"""One training as a Tune Trainable around a `Learner`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune

from rllib_scale.clusters.session import quieten
from rllib_scale.config import PPO, Reinforce, TrialConfig, TrialResources
from rllib_scale.config.algorithms import Searched
from rllib_scale.config.search import SearchConfig, recent
from rllib_scale.files import write_json
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checkpoints import Checkpoint, newest_in, reading, writing
from rllib_scale.sweeps.history import MEMBER, SETTINGS

if TYPE_CHECKING:
    from rllib_scale.sweeps.learners import Learner  # imports torch, which the driver does without

RESOURCES = "resources."
"""Prefix of the paths of settings of resources."""


class SchedulingTrial(tune.Trainable):
    """Trains one trial; a step is one epoch. Tune's config holds the trial's name, so that its logs stay small.

    Args (of `setup`):
        config: {"trial": trial name, "settings": for logs and resources}, and with PBT or Optuna the current
            values of the settings that it chooses, by config path.
        trials: trial name -> TrialConfig as JSON.
        targets: trial name -> epochs to train.
        restore: trial name -> epoch, and path or URI, of the checkpoint to resume from, if there is one.
        folder: path or URI of the folder with the runs of the sweep, Tune's storage.
        search: SearchConfig as JSON, which defines the score.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Resources of a training: its own process, then environment runners and remote learners.

        Tune loads the class several times for each training: it keeps no state of trainings.
        """
        own = {path: value for path, value in config["settings"].items() if path.startswith(RESOURCES)}
        resources = TrialResources.model_validate({path.removeprefix(RESOURCES): own[path] for path in own})
        workers = resources.env_runners + resources.learners
        return tune.PlacementGroupFactory([{"CPU": resources.cpus}, *[{"CPU": 1.0}] * workers])

    def setup(
        self,
        config: dict[str, Any],
        trials: dict[str, str],
        targets: dict[str, int],
        restore: dict[str, tuple[int, str]],
        folder: str,
        search: str,
    ) -> None:
        """Build the learner and restore its checkpoint, if there is one."""
        quieten()
        import torch

        # The driver, which imports this module, needs no torch.

        torch.set_num_threads(1)
        print(f"training {config['trial']}", flush=True)  # in the process's log, which Ray's dashboard shows
        self.folder = Location(folder)
        self.search = SearchConfig.model_validate_json(search)
        self.target = targets[config["trial"]]
        self.trial_config = TrialConfig.model_validate_json(trials[config["trial"]])
        changed = {path: value for path, value in config.items() if path not in ("trial", "settings")}
        if changed:
            own = {"population": ""} if self.search.algorithm == "optuna" else {}  # it is a training as any other
            self.trial_config = self.trial_config.changed(changed | own)
        self.trained_as = {SETTINGS: changed, MEMBER: config["trial"]} if changed else {}
        self.learner = make_learner(self.trial_config, self._storage)
        self.curve: list[dict[str, Any]] = []
        self.saved_epochs = 0
        if config["trial"] in restore:
            epoch, file = restore[config["trial"]]
            self._load(Checkpoint(epoch, Location(file)))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another training in this process, which saves imports and compilation."""
        self.learner.stop()
        self.setup(new_config)  # type: ignore[call-arg]  # Tune passes the other arguments; `setup` replaces all state
        return True

    def step(self) -> dict[str, Any]:
        """Train one epoch."""
        row = self.learner.epoch(len(self.curve) + 1)
        row["wall_s"] += self.curve[-1]["wall_s"] if self.curve else 0.0
        row |= self.trained_as
        self.curve.append(row)
        return (
            row
            | self.learner.runners()
            | {
                "done": len(self.curve) >= self.target,
                **self.search.scores(self.curve),
                "response_recent_s": recent(self.curve, "response_mean_s", self.search.window),
            }
        )

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write learner, training curve and policy."""
        with writing(Path(checkpoint_dir), len(self.curve)) as folder:
            self.learner.save(folder / "algorithm")
            write_json(folder / "curve.json", self.curve)
            self.learner.save_policy(folder / "policy", len(self.curve))
        self.saved_epochs = len(self.curve)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the state that `save_checkpoint` wrote to a folder."""
        found = newest_in(checkpoint)
        assert found is not None, f"{checkpoint}: no complete checkpoint"
        self._load(found)

    def _load(self, checkpoint: Checkpoint) -> None:
        with reading(checkpoint) as folder:
            self.learner.load(folder / "algorithm")
            self.curve = json.loads((folder / "curve.json").read_text(encoding="utf-8"))
        self.saved_epochs = len(self.curve)

    def cleanup(self) -> None:
        """Save epochs that no checkpoint holds yet, as after Ctrl-C, and stop the learner."""
        try:
            if len(self.curve) > self.saved_epochs and self._storage is not None:
                trial = self.folder / self._storage.experiment_dir_name / self._storage.trial_dir_name
                with (trial / f"checkpoint_stopped_{len(self.curve):06d}").writing() as folder:
                    self.save_checkpoint(str(folder))
        finally:
            self.learner.stop()


def make_learner(trial: TrialConfig, storage: Any) -> Learner:
    """The untrained learner of a trial, whose libraries are imported here; `storage` is Tune's."""
    if isinstance(trial.algorithm, Searched):
        from rllib_scale.sweeps.evolution import PriceSearch

        return PriceSearch(trial, storage)
    if isinstance(trial.algorithm, Reinforce):
        from rllib_scale.sweeps.policy_gradient import PolicyGradient

        return PolicyGradient(trial)
    if isinstance(trial.algorithm, PPO) and trial.algorithm.validation_instances:
        from rllib_scale.sweeps.selected import SelectedLearner

        return SelectedLearner(trial, storage)
    from rllib_scale.sweeps.learners import RLlibLearner

    return RLlibLearner(trial, storage)
