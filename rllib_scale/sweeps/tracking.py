"""Training curves in MLflow and Weights & Biases, beside the tables, CSV and TensorBoard files that are always written.

Where nothing else is said, nothing leaves the machine: MLflow writes `mlflow.db` to the results folder unless
MLFLOW_TRACKING_URI names a server; W&B writes to `wandb/` there and is offline unless WANDB_MODE or WANDB_API_KEY says
otherwise. Credentials stay in the environment.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ray import tune

from rllib_scale.config import digest
from rllib_scale.config.plan import Cell
from rllib_scale.errors import UserError
from rllib_scale.sweeps.sweep import Sweep


class Tracker(tune.Callback):
    """Passes the rows of each training on. One that fails is told of once and then left alone: the trainings go on.

    Args:
        sweep: whose trainings they are. The same training of the same folder is the same run, however often it goes on.
        cells: those of its trainings that run.
    """

    package: str

    def __init__(self, sweep: Sweep, cells: Sequence[Cell]) -> None:
        self.sweep = sweep
        self.cells = {cell.trial.name: cell for cell in cells}
        self.failed = False
        self.runs: dict[str, Any] = {}

    @abstractmethod
    def begin(self, name: str, key: str) -> Any:
        """A run of the tracker, new or gone on with; `key` tells it from every other."""

    @abstractmethod
    def log(self, run: Any, epoch: int, row: dict[str, float]) -> None:
        """One epoch of a run."""

    @abstractmethod
    def end(self, run: Any, status: str) -> None:
        """The run is FINISHED, FAILED or, with the sweep unfinished, KILLED."""

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        """Pass on what is a number."""
        row = {key: float(value) for key, value in result.items() if _is_number(value)}
        self._safely(lambda: self.log(self._run(str(trial.config["trial"])), int(result["epoch"]), row))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """A training ended."""
        self._end(str(trial.config["trial"]), "FINISHED")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """A training failed for good."""
        self._end(str(trial.config["trial"]), "FAILED")

    def on_experiment_end(self, trials: list[Any], **_: Any) -> None:
        """All trainings ended, or Ctrl-C did it."""
        for name in list(self.runs):
            self._end(name, "KILLED")

    def _run(self, name: str) -> Any:
        if name not in self.runs:
            self.runs[name] = self.begin(name, digest({"folder": str(self.sweep.folder), "trial": name}))
        return self.runs[name]

    def _end(self, name: str, status: str) -> None:
        if name in self.runs:
            self._safely(lambda: self.end(self.runs.pop(name), status))

    def _safely(self, act: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            act()
        except Exception as error:  # whatever it is, a server that is gone or a fault of the package: no training ends
            self.failed = True
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self.sweep.say(f"tracking: {self.package} failed and is left out from here on: {first}")


class MLflowTracker(Tracker):
    """A run for each training, in an experiment of the sweep's name."""

    package = "mlflow"
    client: Any = None

    def begin(self, name: str, key: str) -> Any:
        """The run's id and the last epoch that it holds."""
        if self.client is None:
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # with 7 the sweep would stand for minutes
            logging.getLogger("mlflow").setLevel(logging.WARNING)
            logging.getLogger("alembic").setLevel(logging.WARNING)
            from mlflow import MlflowClient

            server = os.environ.get("MLFLOW_TRACKING_URI")
            self.client = MlflowClient(server or f"sqlite:///{self.sweep.folder / 'mlflow.db'}")
            experiment = self.client.get_experiment_by_name(self.sweep.config.name)
            self.experiment = (
                experiment.experiment_id if experiment else self.client.create_experiment(self.sweep.config.name)
            )
        found = self.client.search_runs([self.experiment], f"tags.training = '{key}'")
        if found:
            run = found[0].info.run_id
            self.client.update_run(run, status="RUNNING")
            return run, max((entry.step for entry in self.client.get_metric_history(run, "epoch")), default=0)
        run = self.client.create_run(self.experiment, run_name=name, tags={"training": key, "trial": name}).info.run_id
        cell = self.cells[name]
        for setting, value in {**cell.identity, **dict(cell.overrides)}.items():
            self.client.log_param(run, setting, value)
        return run, 0

    def log(self, run: Any, epoch: int, row: dict[str, float]) -> None:
        """All metrics of an epoch at once, unless they are there from before a restore."""
        from mlflow.entities import Metric

        name, last = run
        if epoch > last:
            now = int(time.time() * 1000)
            self.client.log_batch(name, metrics=[Metric(key, value, now, epoch) for key, value in row.items()])

    def end(self, run: Any, status: str) -> None:
        """Close the run."""
        self.client.set_terminated(run[0], status)


class WandbTracker(Tracker):
    """A run for each training, in project rllib-scale, grouped by sweep."""

    package = "wandb"

    def begin(self, name: str, key: str) -> Any:
        """A run of its own beside those of the other trainings."""
        if "WANDB_API_KEY" not in os.environ:
            os.environ.setdefault("WANDB_MODE", "offline")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        return wandb.init(
            project="rllib-scale",
            group=self.sweep.config.name,
            name=name,
            id=key,
            dir=str(self.sweep.folder),
            config=self.cells[name].trial.model_dump(mode="json"),
            reinit="create_new",
            resume=None if os.environ.get("WANDB_MODE") == "offline" else "allow",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log(self, run: Any, epoch: int, row: dict[str, float]) -> None:
        """One step of the run; W&B leaves out one that it has."""
        run.log(row, step=epoch)

    def end(self, run: Any, status: str) -> None:
        """Close the run."""
        run.finish(exit_code=0 if status == "FINISHED" else 1)


TRACKERS: dict[str, type[Tracker]] = {"mlflow": MLflowTracker, "wandb": WandbTracker}


def trackers(sweep: Sweep, cells: Sequence[Cell]) -> list[Tracker]:
    """Tune's callbacks for what `tracking` of the sweep names.

    Raises:
        UserError: a package is not installed.
    """
    for name in sweep.config.tracking:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"tracking: {name} is not installed; pip install 'rllib-scale[tracking]'")
    return [TRACKERS[name](sweep, cells) for name in sweep.config.tracking]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
