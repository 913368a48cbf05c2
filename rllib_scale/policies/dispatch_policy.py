"""A trained `decima` or `deeprm` as a policy: a dispatcher that asks its network for one start after another."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rllib_scale.config import DecisionMode, TrialConfig
from rllib_scale.config.network import DecimaConfig, DeepRMConfig
from rllib_scale.networks.decima import Decima, DecimaStep
from rllib_scale.networks.deeprm import DeepRM, DeepRMStep
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.observation.starting import Starting
from rllib_scale.policies.shared import Exported
from rllib_scale.schedulers.dispatcher import Dispatcher

DispatchNetwork = Decima | DeepRM
Step = DecimaStep | DeepRMStep


def build_dispatch_network(trial: TrialConfig) -> DispatchNetwork:
    """The network of a trial of `decima` or `deeprm`, with the weights that its seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.seed)
        if isinstance(trial.network, DecimaConfig):
            return Decima(trial.env.observation, trial.network)
        assert isinstance(trial.network, DeepRMConfig), f"method {trial.method} decides by another network"
        return DeepRM(trial.env.observation, trial.env.cluster, trial.network)


class DispatchPolicy(Exported, Dispatcher):
    """The exported policy of a training of `decima` or `deeprm`.

    At each event it is asked for a start, is shown the state after it, and is asked again, until no task can start or
    it wants none. Nobody waits for a busy server.

    Args:
        network: as `build_dispatch_network` makes it; a copy is kept.
        trial: what trained it.
        epochs: that it was trained for.
        decision: argmax, or `sample` by its probabilities.
    """

    def __init__(
        self, network: DispatchNetwork, trial: TrialConfig, epochs: int, decision: DecisionMode = "argmax"
    ) -> None:
        super().__init__()
        self.trained_by(trial, epochs)
        self.decision = decision
        self.observation = trial.env.observation  # its normalisers are all that is read of it
        self.network = copy.deepcopy(network).eval()
        self.reset([(0, 0)])

    def dispatch(self, snapshot: Snapshot) -> np.ndarray:
        """See `Dispatcher.dispatch`."""
        # One at a time: what is decided must not depend, by a rounding, on the rest of a batch.
        return self.decide([snapshot])[0].answers()

    @torch.no_grad()
    def decide(self, snapshots: Sequence[Snapshot], kept: dict[int, list[Step]] | None = None) -> list[Starting]:
        """Starts in each of several states; each choice is added to `kept` under its environment's number."""
        network: Any = self.network
        states = [Starting(snapshot) for snapshot in snapshots]
        last: dict[int, Step | None] = dict.fromkeys(range(len(states)))
        going = [at for at, now in enumerate(states) if now.can_start.any()]
        while going:
            asked = [states[at] for at in going]
            looks = [network.look(now, last[at]) for at, now in zip(going, asked, strict=True)]
            steps = network.choose(asked, looks, self._draws([now.snapshot.index for now in asked]))
            still = []
            for at, now, step in zip(going, asked, steps, strict=True):
                if kept is not None:
                    kept[now.snapshot.index].append(step)
                if step.task < 0:
                    continue
                now.start(step.task, step.server)
                last[at] = step
                if now.can_start.any():
                    still.append(at)
            going = still
        return states

    def _draws(self, environments: Sequence[int]) -> np.ndarray | None:
        """(B, 2) uniform in [0, 1), of each environment's own generator."""
        if self.decision == "argmax":
            return None
        return np.stack([self.generators[b].random(2) for b in environments])
