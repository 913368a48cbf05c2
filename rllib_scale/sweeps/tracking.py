"""Training curves in MLflow and Weights & Biases, by Ray's callbacks.

By default nothing leaves the machine. MLflow writes `mlflow.db` to the results folder (of results in a store: to
results/SWEEP on this machine) unless MLFLOW_TRACKING_URI names
a server. W&B writes to `wandb/` there and is offline unless WANDB_MODE or WANDB_API_KEY is set. Credentials stay in the
environment.
"""

from __future__ import annotations

import logging
import os

from ray.tune.logger import LoggerCallback

from rllib_scale.errors import UserError
from rllib_scale.sweeps.sweep import Sweep


def trackers(sweep: Sweep) -> list[LoggerCallback]:
    """Tune's callbacks for the trackers that `tracking` names.

    Raises:
        UserError: no server answers, or a key is missing.
    """
    callbacks = []
    for name in sweep.config.tracking:
        callback = _mlflow(sweep) if name == "mlflow" else _wandb(sweep)
        try:
            callback.setup()  # Tune repeats it, where an error would end in a traceback
        except Exception as error:
            raise UserError(f"tracking: {name} cannot be used: {str(error).strip().splitlines()[0]}") from None
        callbacks.append(callback)
    return callbacks


def _mlflow(sweep: Sweep) -> LoggerCallback:
    """A run for each training, in an experiment of the sweep's name."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # the default of 7 takes minutes
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    sweep.folder.mkdir(parents=True, exist_ok=True)
    server = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{sweep.folder / 'mlflow.db'}"
    return MLflowLoggerCallback(tracking_uri=server, experiment_name=sweep.config.name)


def _wandb(sweep: Sweep) -> LoggerCallback:
    """A run for each training, in project rllib-scale, grouped by sweep."""
    if "WANDB_API_KEY" not in os.environ:
        os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb
    from ray.air.integrations.wandb import WandbLoggerCallback

    return WandbLoggerCallback(
        project="rllib-scale",
        group=sweep.config.name,
        dir=str(sweep.folder),
        mode=os.environ.get("WANDB_MODE"),
        settings=wandb.Settings(silent=True, console="off"),
    )
