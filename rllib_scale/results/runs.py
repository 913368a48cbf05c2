"""Runs on a live cluster, each with its simulation: what ran where and when, in runs/NAME.json of a results folder.

Metrics of both are in `episodes`, in the rows that `Side.key` names. Free of ray.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from rllib_scale.config.cluster import ClusterConfig
from rllib_scale.config.identity import content_id
from rllib_scale.errors import UserError
from rllib_scale.results.columns import EPISODE_KEY
from rllib_scale.results.storage import Location

FOLDER = "runs"


class Side(BaseModel):
    """A run, or its simulation.

    Attributes:
        key: of its row in `episodes`.
        end_s: clock at the end [s of the workload].
        attempts: column -> values, of `rllib_scale.simulator.record.SCHEDULE`; None for NaN.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: dict[str, Any]
    end_s: float
    attempts: dict[str, list[Any]]

    @classmethod
    def of(cls, row: dict[str, Any], schedule: np.ndarray, end_s: float) -> Side:
        """The side with that row and schedule."""
        table = pd.DataFrame(schedule).astype(object)
        attempts = table.where(table.notna(), None).to_dict("list")
        return cls(key={name: row[name] for name in EPISODE_KEY}, end_s=end_s, attempts=attempts)

    @property
    def schedule(self) -> pd.DataFrame:
        """Every attempt."""
        table = pd.DataFrame(self.attempts)
        return table.astype({name: float for name in table if str(name).endswith(("_s", "_gflop"))})


class Run(BaseModel):
    """One run of a scheduler, and its simulation.

    Attributes:
        scheduler: its name.
        scenario: named problem.
        cluster: the servers.
        time_scale: seconds that one second of the workload took.
        overheads_s: of each task, what it took beyond its sleep [s of the wall clock].
        failed: number of a workflow that was given up -> why.
        guard: what the guard did, or how much it has seen, in a line; empty without one.
        live, simulated: both sides.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: str
    scenario: str
    cluster: ClusterConfig
    time_scale: float
    overheads_s: list[float]
    failed: dict[int, str]
    guard: str
    live: Side
    simulated: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        """The run, then its simulation."""
        return self.live, self.simulated

    @property
    def slug(self) -> str:
        """Part of file names: the same for the same scheduler, problem and seed, whose last run counts."""
        return f"{re.sub(r'[^a-z0-9.]+', '-', self.scheduler.lower())}-{content_id(self.live.key)[:8]}"


def write(home: Location, run: Run) -> None:
    """Add a run to results, in place of an earlier one of the same scheduler, problem and seed."""
    (home / FOLDER / f"{run.slug}.json").write(run.model_dump_json().encode())


def read(home: Location) -> list[Run]:
    """The runs in results.

    Raises:
        UserError: one cannot be read.
    """
    found = []
    for name in sorted((home / FOLDER).files()):
        place = home / FOLDER / name
        try:
            found.append(Run.model_validate_json(place.read()))
        except (OSError, ValidationError) as error:
            raise UserError(f"{place}: not a run of `rllib-scale execute` ({type(error).__name__})") from None
    return found
