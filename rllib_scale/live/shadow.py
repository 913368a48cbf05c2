"""Shadow mode: while one scheduler decides on a live cluster, others are asked what they would have done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import Player
from rllib_scale.live.execute import LiveRun, dispatcher_of
from rllib_scale.live.flows import Flow, reordered
from rllib_scale.live.recorded import recorded_workload
from rllib_scale.live.side_by_side import simulated
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.workloads.model import Workload


@dataclass(frozen=True)
class ShadowResult:
    """What a scheduler in the shadow would have done.

    Attributes:
        name: of the scheduler.
        agreement: placements that it and the one that decided share, of those that either wants, over all moments of
            the run; NaN where neither wants any. The moments are those that the scheduler that decided has led to.
        response_mean_s: mean response in the simulator of the recorded workload [s].
        gain: by how much that is below the simulator's for the scheduler that decided, as a share of it.
    """

    name: str
    agreement: float
    response_mean_s: float
    gain: float


class Shadows:
    """Asks schedulers at each moment of a live run; give `watch` to `execute`.

    Args:
        players: the schedulers.
        env: the problem.
        workload: that is played.
        seed: of their draws.

    Raises:
        UserError: one of them does not fit the cluster, or cannot play the problem.
    """

    def __init__(self, players: Sequence[Player], env: EnvConfig, workload: Workload, seed: int = 0) -> None:
        self.players, self._env, self._seed = list(players), env, seed
        self._flows = [Flow.of(workload, number) for number in range(workload.num_workflows)]
        self._asked = [dispatcher_of(player, env) for player in self.players]
        for dispatcher, _ in self._asked:
            dispatcher.reset([(seed, 0)])
        self._both = np.zeros(len(self.players), dtype=np.int64)
        self._either = np.zeros(len(self.players), dtype=np.int64)

    def watch(self, now: Snapshot, answers: np.ndarray) -> None:
        """See `execute.Watch`: the moment, before its answers are carried out."""
        done = _starts(answers, now)
        for at, (dispatcher, problem) in enumerate(self._asked):
            wanted = _starts(dispatcher.dispatch(self._as_ordered_for(problem, now)), now)
            self._both[at] += len(done & wanted)
            self._either[at] += len(done | wanted)

    def _as_ordered_for(self, problem: EnvConfig, now: Snapshot) -> Snapshot:
        order = problem.decision.level1
        return reordered(now, problem.decision, lambda workflow, task: self._flows[workflow].rank(task, order))

    def results(self, run: LiveRun, player: Player) -> list[ShadowResult]:
        """What came of it, the scheduler that decided first.

        Args:
            run: the run that was watched.
            player: the scheduler that decided in it.
        """
        try:
            workload = recorded_workload(run)
        except ValueError:  # attempts failed: what was declared is all there is
            workload = run.workload
        responses = [
            float(simulated(each, self._env, workload, self._seed).metrics()["response_mean_s"])
            for each in (player, *self.players)
        ]
        shares = [b / e if e else math.nan for b, e in zip(self._both.tolist(), self._either.tolist(), strict=True)]
        return [
            ShadowResult(each.name, share, response, 1.0 - response / responses[0])
            for each, share, response in zip((player, *self.players), (1.0, *shares), responses, strict=True)
        ]


def _starts(answers: np.ndarray, now: Snapshot) -> set[tuple[int, int, int]]:
    """The answers by which a task starts; to wait for a busy row is to start nothing."""
    return {(w, t, row) for w, t, row in answers.tolist() if row >= 0 and now.idle[row]}
