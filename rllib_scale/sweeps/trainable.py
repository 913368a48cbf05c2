"""One training as a Tune Trainable: a thin shell around an RLlib Algorithm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ray
from ray import tune

from rllib_scale.clusters.session import quieten
from rllib_scale.config import TrialConfig
from rllib_scale.config.search import SearchConfig, recent
from rllib_scale.config.yaml_files import set_path
from rllib_scale.files import write_json
from rllib_scale.policies.policy import save_policy
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checkpoints import seal
from rllib_scale.sweeps.stopping import SCORE, score_of

EMPTY_ITERATIONS = 20


class SchedulingTrial(tune.Trainable):
    """Trains one cell; a step is one epoch. The trial's config is looked up by name, so that Tune's logs stay small.

    Args (of `setup`):
        config: {"trial": trial name}, and with PBT the present values of what it changes, by config path.
        trials: trial name -> TrialConfig as JSON.
        targets: trial name -> epochs to train.
        restore: trial name -> path or URI of a checkpoint to go on from, for those that have one.
        folder: path or URI of the folder with the runs of the sweep, Tune's storage.
        search: SearchConfig as JSON: what a training's score is.
    """

    def setup(
        self,
        config: dict[str, Any],
        trials: dict[str, str],
        targets: dict[str, int],
        restore: dict[str, str],
        folder: str,
        search: str,
    ) -> None:
        """Build the algorithm and, where there is a checkpoint, go on from it."""
        quieten()
        import torch

        from rllib_scale.rl.methods import build_algorithm_config

        torch.set_num_threads(1)
        self.folder = Location(folder)
        self.search = SearchConfig.model_validate_json(search)
        self.target = targets[config["trial"]]
        content = json.loads(trials[config["trial"]])
        changed = {path: value for path, value in config.items() if path != "trial"}
        for path, value in changed.items():
            set_path(content, path, value)
        self.cell = TrialConfig.model_validate(content)
        self.settings = "; ".join(f"{path}={value}" for path, value in changed.items())
        algorithm_config = build_algorithm_config(self.cell)
        # As `build_algo` does, but with Tune's storage: without, RLlib leaves an empty folder in ~/ray_results.
        self.algorithm = algorithm_config.algo_class(config=algorithm_config, storage=self._storage)
        self.curve: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.restarts = 0
        self.saved_epochs = 0
        if config["trial"] in restore:
            with Location(restore[config["trial"]]).reading() as checkpoint:
                self.load_checkpoint(checkpoint)
        else:
            self._note_nodes()

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
        if self.settings:
            row["settings"] = self.settings
        self.curve.append(row)
        runners = self.algorithm.env_runner_group
        if self.algorithm.runner_restarts > self.restarts:
            self.restarts = self.algorithm.runner_restarts
            self._note_nodes()
        return row | {
            "done": len(self.curve) >= self.target,
            SCORE: score_of(self.curve, self.search),
            "response_recent_s": recent(self.curve, "response_mean_s", self.search.window),
            "runners": runners.num_remote_workers(),
            "runners_healthy": runners.num_healthy_remote_workers(),
            "runner_restarts": self.restarts,
        }

    def _note_nodes(self) -> None:
        """Note on which nodes learner and environment runners are from the next epoch on, where that has changed."""
        learner = ray.get_runtime_context().get_node_id()
        runners = self.algorithm.env_runner_group.foreach_env_runner(
            lambda _: ray.get_runtime_context().get_node_id(), local_env_runner=False
        )
        places = {"learner": learner, "env_runners": list(runners)}
        if not self.nodes or self.nodes[-1] | places != self.nodes[-1]:
            self.nodes.append({"from_epoch": len(self.curve) + 1, **places})

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write algorithm, training curve and policy; the list of contents comes last and proves the rest whole."""
        folder = Path(checkpoint_dir)
        self.algorithm.save_to_path(str(folder / "algorithm"))
        write_json(folder / "curve.json", self.curve)
        write_json(folder / "nodes.json", self.nodes)
        save_policy(folder / "policy", self.algorithm.get_module().network, self.cell, epochs=len(self.curve))
        seal(folder, len(self.curve))
        self.saved_epochs = len(self.curve)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a folder that `save_checkpoint` wrote."""
        folder = Path(checkpoint).absolute()
        self.algorithm.restore_from_path(str(folder / "algorithm"))
        self.curve = json.loads((folder / "curve.json").read_text(encoding="utf-8"))
        if (folder / "nodes.json").is_file():  # checkpoints of older versions have none
            self.nodes = json.loads((folder / "nodes.json").read_text(encoding="utf-8"))
        self.saved_epochs = len(self.curve)
        self._note_nodes()

    def cleanup(self) -> None:
        """Save what no checkpoint holds yet, as after Ctrl-C, and stop the algorithm and its environment runners."""
        try:
            if len(self.curve) > self.saved_epochs and self._storage is not None:
                trial = self.folder / self._storage.experiment_dir_name / self._storage.trial_dir_name
                with (trial / f"checkpoint_stopped_{len(self.curve):06d}").writing() as folder:
                    self.save_checkpoint(str(folder))
        finally:
            self.algorithm.stop()
