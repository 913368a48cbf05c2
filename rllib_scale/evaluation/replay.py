"""Evaluation episodes of results, played again: from a row of `episodes` to its whole schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rllib_scale.config.plan import EvaluationUnit
from rllib_scale.envs.gantt import Chart, draw_gantts
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.observation.policy import Policy
from rllib_scale.plugins import unpinned
from rllib_scale.policies.make import make_policy
from rllib_scale.results import runs
from rllib_scale.results.columns import FEATURE_KEY
from rllib_scale.results.runs import Run, Side
from rllib_scale.results.status import published_policy, read_plan
from rllib_scale.results.storage import Location
from rllib_scale.results.tables import is_own, read_manifest
from rllib_scale.simulator.engine import Engine

Row = Mapping[str, Any] | pd.Series
UNIT_KEY = FEATURE_KEY
"""The columns that name an evaluation unit: those of a row's key without the episode."""
CHECKED = ("arrived", "completed", "decisions")
"""Metrics on which a row and its replayed episode must agree."""


@dataclass(frozen=True, eq=False)
class Episode:
    """An evaluation episode, played again to its end.

    Attributes:
        unit: the scheduler and the problem.
        episode: its number; (unit.seed, episode) is its workload.
        player: the scheduler that played it.
        engine: the engine after the last decision, a batch of one.
    """

    unit: EvaluationUnit
    episode: int
    player: Policy
    engine: Engine

    @property
    def schedule(self) -> np.ndarray:
        """Every started task, dtype `rllib_scale.simulator.record.SCHEDULE`."""
        return self.engine.schedule()

    @property
    def end_s(self) -> float:
        """Clock at the end [s]."""
        return float(self.engine.clock[0])

    def chart(self, title: str = "") -> Chart:
        """Its Gantt chart."""
        return Chart(self.schedule, self.unit.env.cluster, self.end_s, title)


class Replay:
    """Plays episodes of results again. The problem comes from the plan in a manifest, the policy from policies/.

    Args:
        folders: results folders, on this machine or in a store.
        trust: import the user code that they name though this account did not make them.
    """

    def __init__(self, *folders: Location | Path | str, trust: bool = False) -> None:
        self.homes = [Location(str(folder)) for folder in folders]
        self.trust = trust

    def __call__(self, rows: Sequence[Row], titles: Sequence[str]) -> Figure:
        """Gantt charts of the episodes of some rows, one above the other; raises as `episode` does.

        A live run and its simulation are drawn as they were recorded.
        """
        return draw_gantts([self._chart(row, title) for row, title in zip(rows, titles, strict=True)])

    def _chart(self, row: Row, title: str) -> Chart:
        for run, side in self._recorded:
            if all(row[name] == value for name, value in side.key.items()):
                return Chart(side.schedule.to_records(index=False), run.cluster, side.end_s, title)
        return self.episode(row).chart(title)

    @cached_property
    def _recorded(self) -> list[tuple[Run, Side]]:
        return [(run, side) for home in self.homes for run in runs.read(home) for side in run.sides]

    def episode(self, row: Row, playing: Callable[[Policy], Policy] = lambda policy: policy) -> Episode:
        """Play the episode of a row again.

        Args:
            row: of `episodes`.
            playing: makes of the policy of the row what plays, as to note what it decides.

        Raises:
            UserError: no plan leads to the row, the policy is missing, or the episode goes otherwise than
                the row says, as after a change of the program.
        """
        unit = self.unit(row)
        player = self.player(unit)
        number = int(row["episode"])
        engine = play(playing(player), unit.env, unit.seed, [number])
        metrics = engine.metrics()
        for name in CHECKED:
            if metrics[name] != row[name]:
                raise UserError(
                    f"{unit.name} at N = {unit.env.cluster.num_servers}, scenario {unit.scenario}, episode {number} "
                    f"played again has {name} {metrics[name]}, its row says {row[name]}: "
                    "the results were made by another version of the program"
                )
        return Episode(unit, number, player, engine)

    def unit(self, row: Row) -> EvaluationUnit:
        """The scheduler and the problem of a row.

        Raises:
            UserError: no plan leads to it.
        """
        key = tuple(row[name] for name in UNIT_KEY)
        return self._place(key, ", ".join(f"{name} {row[name]}" for name in ("scheduler", "problem", "episode")))[1]

    def _place(self, key: tuple[Any, ...], described: str) -> tuple[Location, EvaluationUnit]:
        if key not in self._units:
            raise UserError(f"{', '.join(map(str, self.homes))}: no plan has an evaluation of {described}")
        return self._units[key]

    @cached_property
    def _units(self) -> dict[tuple[Any, ...], tuple[Location, EvaluationUnit]]:
        return {
            tuple(unit.columns[name] for name in UNIT_KEY): (home, unit)
            for home in self.homes
            for unit in read_plan(home).units
        }

    def player(self, unit: EvaluationUnit) -> Policy:
        """The scheduler of a unit.

        Raises:
            UserError: its policy is missing; or it is code of somebody's, in a folder that this account did not make.
        """
        home, _ = self._place(tuple(unit.columns[name] for name in UNIT_KEY), unit.name)
        created = str((read_manifest(home) or {}).get("created"))
        trust = self.trust or is_own(str(home.local or home), created)
        if unit.code and not trust:
            raise UserError(
                f"{home}: names code to import, {unpinned(unit.code[0])}, and was not made by this "
                "account here; if you know where it comes from, say --trust"
            )
        if unit.spec is not None:
            return make_policy(unit.spec, unit.env, unit.decision, trust, "evaluation.heuristics")
        from rllib_scale.policies.policy import policy_from_bytes

        return policy_from_bytes(self._policy(home, unit.name), unit.name, unit.env.episode.mask, unit.decision, trust)

    def _policy(self, home: Location, name: str) -> dict[str, bytes]:
        """The files of a policy, in its folder or another one that holds the same training.

        Raises:
            UserError: no folder has it.
        """
        for other in self.homes:
            with suppress(UserError):
                return published_policy(other, name)
        return published_policy(home, name)
