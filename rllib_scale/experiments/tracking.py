"""Training curves in MLflow and Weights & Biases, beside the tables, CSV and TensorBoard files that are always written.

Where nothing else is said, nothing leaves the machine: MLflow writes `mlflow.db` to the results folder unless
MLFLOW_TRACKING_URI names a server; W&B writes to `wandb/` there and is offline unless WANDB_MODE or WANDB_API_KEY says
otherwise. Credentials stay in the environment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rllib_scale.errors import UserError
from rllib_scale.experiments.plan import SweepConfig


def trackers(sweep: SweepConfig, folder: Path) -> list[Any]:
    """Tune's callbacks for what `tracking` of the sweep names.

    Raises:
        UserError: a package is not installed.
    """
    make = {"mlflow": _mlflow, "wandb": _wandb}
    found = []
    for name in sweep.tracking:
        try:
            __import__(name)
        except ImportError:
            raise UserError(f"tracking: {name} is not installed; pip install 'rllib-scale[tracking]'") from None
        found.append(make[name](sweep.name, folder))
    return found


def _mlflow(sweep: str, folder: Path) -> Any:
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}"
    return MLflowLoggerCallback(tracking_uri=uri, experiment_name=sweep)


def _wandb(sweep: str, folder: Path) -> Any:
    from ray.air.integrations.wandb import WandbLoggerCallback

    if "WANDB_API_KEY" not in os.environ:
        os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_SILENT", "true")
    return WandbLoggerCallback(project="rllib-scale", group=sweep, dir=str(folder))
