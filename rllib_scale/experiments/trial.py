"""One training as a Tune Trainable: a thin shell around an RLlib Algorithm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ray import tune

from rllib_scale.config import TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.experiments.session import quieten
from rllib_scale.experiments.storage import Location
from rllib_scale.files import write_json
from rllib_scale.policy import save_policy

CONTENTS = "contents.json"
EMPTY_ITERATIONS = 20


class SchedulingTrial(tune.Trainable):
    """Trains one cell; a step is one epoch. The trial's config is looked up by name, so that Tune's logs stay small.

    Args (of `setup`):
        config: {"trial": trial name}.
        trials: trial name -> TrialConfig as JSON.
        restore: trial name -> path or URI of a checkpoint to go on from, for those that have one.
        folder: path or URI of the folder with the runs of the sweep, Tune's storage.
    """

    def setup(self, config: dict[str, Any], trials: dict[str, str], restore: dict[str, str], folder: str) -> None:
        """Build the algorithm and, where there is a checkpoint, go on from it."""
        quieten()
        import torch

        from rllib_scale.rl.methods import build_algorithm_config

        torch.set_num_threads(1)
        self.folder = Location(folder)
        self.cell = TrialConfig.model_validate_json(trials[config["trial"]])
        algorithm_config = build_algorithm_config(self.cell)
        # As `build_algo` does, but with Tune's storage: without, RLlib leaves an empty folder in ~/ray_results.
        self.algorithm = algorithm_config.algo_class(config=algorithm_config, storage=self._storage)
        self.curve: list[dict[str, Any]] = []
        self.saved_epochs = 0
        if config["trial"] in restore:
            with Location(restore[config["trial"]]).reading() as checkpoint:
                self.load_checkpoint(checkpoint)

    def step(self) -> dict[str, Any]:
        """Train one epoch."""
        from rllib_scale.rl.methods import is_epoch, training_row

        for _ in range(EMPTY_ITERATIONS):
            result = self.algorithm.train()
            if is_epoch(self.algorithm, result, len(self.curve) + 1):
                break
        else:
            raise RuntimeError(f"no samples in {EMPTY_ITERATIONS} iterations: the environment runners stay dead")
        before = self.curve[-1]["wall_s"] if self.curve else 0.0
        row = training_row(result, len(self.curve) + 1, self.cell.training.steps_per_epoch)
        row["wall_s"] = before + result["time_this_iter_s"]
        row["env_steps_per_s"] = self.cell.training.steps_per_epoch / result["time_this_iter_s"]
        self.curve.append(row)
        return row | {"done": len(self.curve) >= self.cell.stop_epochs}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write algorithm, training curve and policy; the list of contents comes last and proves the rest whole."""
        folder = Path(checkpoint_dir)
        self.algorithm.save_to_path(str(folder / "algorithm"))
        write_json(folder / "curve.json", self.curve)
        save_policy(folder / "policy", self.algorithm.get_module().network, self.cell, epochs=len(self.curve))
        sizes = {str(p.relative_to(folder)): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()}
        write_json(folder / CONTENTS, {"epoch": len(self.curve), "sizes": sizes})
        self.saved_epochs = len(self.curve)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a folder that `save_checkpoint` wrote."""
        folder = Path(checkpoint).absolute()
        self.algorithm.restore_from_path(str(folder / "algorithm"))
        self.curve = json.loads((folder / "curve.json").read_text(encoding="utf-8"))
        self.saved_epochs = len(self.curve)

    def cleanup(self) -> None:
        """Save what no checkpoint holds yet, as after Ctrl-C, and stop the algorithm and its environment runners."""
        if len(self.curve) > self.saved_epochs and self._storage is not None:
            trial = self.folder / self._storage.experiment_dir_name / self._storage.trial_dir_name
            with (trial / f"checkpoint_stopped_{len(self.curve):06d}").writing() as folder:
                self.save_checkpoint(str(folder))
        self.algorithm.stop()


def epoch_of(checkpoint: Location | Path) -> int:
    """The epoch of a checkpoint folder; -1 where it is not whole."""
    checkpoint = Location(checkpoint)
    try:
        contents = json.loads((checkpoint / CONTENTS).read_text())
        sizes = {name: info.size for name, info in checkpoint.files().items()}
        whole = all(sizes.get(name) == size for name, size in contents["sizes"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return -1
    return int(contents["epoch"]) if whole else -1


def latest_checkpoint(trials: Location | Path, name: str) -> Location | None:
    """The whole checkpoint of a trial with the highest epoch, over all runs of the sweep."""
    latest, highest = None, -1
    for run in Location(trials).folders():
        trial = Location(trials) / run / name
        for checkpoint in (trial / folder for folder in trial.folders() if folder.startswith("checkpoint_")):
            epoch = epoch_of(checkpoint)
            if epoch > highest:
                latest, highest = checkpoint, epoch
    return latest


def publish(checkpoint: Location, target: Path) -> None:
    """Copy policy and curve of a finished training to the results, whole or not at all."""
    with checkpoint.reading(only=("policy/", "curve.json")) as folder:
        copy_policy(folder / "policy", target, folder / "curve.json")


def copy_policy(source: Path, target: Path, *more: Path) -> None:
    """Copy a policy folder, and more files into it, whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        shutil.copytree(source, temporary)
        for path in more:
            shutil.copy(path, temporary)
        temporary.rename(target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(f"{target}: cannot be written ({error.strerror})") from None
