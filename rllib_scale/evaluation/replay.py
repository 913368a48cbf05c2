"""Evaluation episodes of a results folder, played again: from a row of episodes.parquet to its whole schedule."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rllib_scale.config.pinned import DIGEST_SEPARATOR
from rllib_scale.config.plan import EvaluationUnit
from rllib_scale.envs.gantt import Chart, draw_gantts
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.observation.policy import Policy
from rllib_scale.plugins import unpinned
from rllib_scale.policies.make import make_policy
from rllib_scale.results.columns import FEATURE_KEY, IDENTITY_COLUMNS
from rllib_scale.results.status import homes, plans
from rllib_scale.results.tables import read_manifest
from rllib_scale.results.trust import is_own
from rllib_scale.simulator.engine import Engine

Row = Mapping[str, Any] | pd.Series
UNIT_KEY = FEATURE_KEY
"""The columns that name an evaluation unit: those of a row's key without the episode."""
_NOT_COMPARED = {"sweep", "trial_id", "kind", "overrides", "env_steps"}
UNIT_COLUMNS = tuple(name for name in (*IDENTITY_COLUMNS, *UNIT_KEY) if name not in _NOT_COMPARED)
"""The columns that say the same of the policy of a training, without its hash."""
CHECKED = ("arrived", "completed", "decisions")
"""What a row and its episode played again must agree on."""


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
    """Plays episodes of a results folder again.

    The problem comes from the manifest's config, the policy from policies/ (or those of the parts of a reproduction).

    Args:
        folder: a results folder.
        trust: import the user code that it names though this account did not make it.
    """

    def __init__(self, folder: Path, trust: bool = False) -> None:
        self.folder = folder
        self.trust = trust

    def __call__(self, rows: Sequence[Row], titles: Sequence[str]) -> Figure:
        """Gantt charts of the episodes of some rows, one above the other; raises as `episode` does."""
        return draw_gantts([self.episode(row).chart(title) for row, title in zip(rows, titles, strict=True)])

    def episode(self, row: Row, playing: Callable[[Policy], Policy] = lambda policy: policy) -> Episode:
        """Play the episode of a row again.

        Args:
            row: of `episodes.parquet`.
            playing: makes of the policy of the row what plays, as to note what it decides.

        Raises:
            UserError: the config does not lead to the row, the policy is missing, or the episode goes otherwise than
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
                    f"{_described(row)} played again has {name} {metrics[name]}, its row says {row[name]}: "
                    "the results were made by another version of the program"
                )
        return Episode(unit, number, player, engine)

    def unit(self, row: Row) -> EvaluationUnit:
        """The scheduler and the problem of a row.

        Raises:
            UserError: the config does not lead to it.
        """
        unit = self._units.get(tuple(row[name] for name in UNIT_KEY))
        if unit is None and (like := self._learned.get(_described_by(row))) is not None:
            name = f"{row['method']}-s{row['train_seed']}-{row['trial_id']}"
            unit = replace(like, scheduler=name, identity=like.identity | {"trial_id": row["trial_id"]})
        if unit is None:
            raise UserError(f"{self.folder}: its config has no evaluation of {_described(row)}")
        return unit

    @cached_property
    def _units(self) -> dict[tuple[Any, ...], EvaluationUnit]:
        units = (unit for home in homes(self.folder) for plan in plans(home) for unit in plan.units)
        return {tuple(unit.columns[name] for name in UNIT_KEY): unit for unit in units}

    @cached_property
    def _learned(self) -> dict[tuple[Any, ...], EvaluationUnit]:
        """Evaluations of trained policies by what their rows say: version 0.2 made other hashes of trainings."""
        return {_described_by(unit.columns): unit for unit in self._units.values() if unit.learned}

    def player(self, unit: EvaluationUnit) -> Policy:
        """The scheduler of a unit.

        Raises:
            UserError: its policy is missing; or it is code of somebody's, in a folder that this account did not make.
        """
        created = str((read_manifest(self.folder) or {}).get("created"))
        trust = self.trust or is_own(str(self.folder.absolute()), created)
        if unit.code and not trust:
            raise UserError(
                f"{self.folder}: names code to import, {unpinned(unit.code[0])}, and was not made by this "
                "account here; if you know where it comes from, say --trust"
            )
        if unit.spec is not None:
            return make_policy(unit.spec, unit.env, unit.decision, trust, "evaluation.heuristics")
        from rllib_scale.policies.policy import load_policy

        places = [self.folder, *sorted(self.folder.glob("parts/*"))]
        policies = [place / "policies" / unit.scheduler for place in places]
        found = next((policy for policy in policies if policy.is_dir()), policies[0])
        return load_policy(found, unit.env.episode.mask, decision=unit.decision, trust=trust)


def _described_by(row: Row) -> tuple[Any, ...]:
    """What a row says of the policy of a training. Version 0.2 wrote the digest of a policy of the zoo, too."""
    overrides = re.sub(rf"(zoo:[\w-]+){DIGEST_SEPARATOR}\w+", r"\1", str(row["overrides"]))
    return (overrides, *(row[name] for name in UNIT_COLUMNS))


def _described(row: Row) -> str:
    """E.g. "scale-s42 at N = 16, scenario paper, episode 3"."""
    name: Any = row["method"] if pd.isna(row["train_seed"]) else f"{row['method']}-s{row['train_seed']}"
    return f"{name} at N = {row['test_servers']}, scenario {row['scenario']}, episode {row['episode']}"
