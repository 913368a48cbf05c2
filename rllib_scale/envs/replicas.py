"""Replicas of a language model under sessions of agents: the Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray
from pydantic import Field

from rllib_scale.config.base import Count, Model, Positive
from rllib_scale.config.yaml_files import build_model
from rllib_scale.envs.spaces import MAX_SEED, check_index
from rllib_scale.errors import UserError
from rllib_scale.simulator.replicas.arrivals import Load, starts
from rllib_scale.simulator.replicas.features import CALL_FEATURES, REPLICA_FEATURES, observe
from rllib_scale.simulator.replicas.loop import DONE, advance, send
from rllib_scale.simulator.replicas.presets import find_replica
from rllib_scale.simulator.replicas.scripts import drawn_scripts, read_scripts
from rllib_scale.simulator.replicas.state import NONE, Fleet, grown, new_fleet

Observation = NDArray[np.float32]


class ReplicasConfig(Model):
    """A fleet and its load."""

    replicas: tuple[str, ...] = Field(
        default=("2xh100/30b-a3b",), min_length=1, description="presets or files of fit-replica, which repeat in turn"
    )
    count: Count = Field(default=8, description="replicas")
    sessions: str | None = Field(
        default=None, description="recorded sessions in the format of kv-cache-tester; unset: drawn ones"
    )
    load: Load = Field(default=Load(duration_s=1800.0, warm_up_s=600.0), description="arrivals and duration")
    reward_s: Positive = Field(default=10.0, description="a call that is open for so long on each replica costs 1")


class ReplicasEnv(gymnasium.Env[Observation, np.int64]):
    """Routing of calls of agents to replicas of a language model, `rllib_scale/Replicas-v0`.

    ## Description
    Sessions of coding agents send calls to replicas, which batch them, keep their contexts and evict them. At each
    decision one call is offered: it is sent to a replica, or held.

    ## Action Space
    `Discrete(N + 1)`: a replica, or N, which holds the call. A call that does not fit the memory of its replica waits,
    one that fits an idle replica goes there.

    ## Observation Space
    `Box(5 + 11 N,)` float32: features of the call, then of each replica, see
    `rllib_scale.simulator.replicas.features.observe`. The length of an answer is hidden.

    ## Rewards
    Minus the time that calls were open, summed over the calls that were asked and not answered since the last decision,
    per replica, in units of `reward_s`. Held calls are open.

    ## Starting State
    The end of the warm-up, which is played by sending each call to the replica of its session, or else to the one with
    the fewest calls. (seed, episode) decides the sessions: `reset(seed=s)` starts episode 0 of seed s, each `reset()`
    after it the next one.

    ## Episode End
    Truncation after `load.duration_s`. `info["action_mask"]` (N + 1,) int8; the last step's `info["metrics"]` has the
    number of completed calls, the mean time of a call with held and unfinished ones (Little's law), and the hit rate.

    ## Arguments
    - `config`: a `ReplicasConfig`, a mapping of its keys, or None for its defaults.

    ## Version History
    - v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, config: Mapping[str, Any] | ReplicasConfig | None = None) -> None:
        if not isinstance(config, ReplicasConfig):
            config = build_model(ReplicasConfig, dict(config or {}), "Replicas-v0")
        self.config = config
        kinds = [find_replica(name) for name in config.replicas]
        self._replicas = [kinds[number % len(kinds)] for number in range(config.count)]
        self._scripts = drawn_scripts() if config.sessions is None else read_scripts([Path(config.sessions)])
        largest = int((self._scripts.tasks["prompt"] + self._scripts.tasks["output"]).max())
        if largest > max(replica.kv_tokens for replica in self._replicas):
            raise UserError(f"replicas: a call has {largest:,} tokens of context and fits none of them")
        size = len(CALL_FEATURES) + len(REPLICA_FEATURES) * config.count
        self.observation_space = gymnasium.spaces.Box(0.0, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(config.count + 1)
        self._row, self._mask = np.zeros(size, np.float32), np.zeros(config.count + 1, np.int8)
        self._fleet: Fleet | None = None
        self._seed: int | None = None
        self._episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; see "Starting State"."""
        super().reset(seed=seed)
        if options:
            raise UserError(f"options: {', '.join(options)}: Replicas-v0 has none")
        self._episode += 1
        if seed is not None:
            self._seed, self._episode = check_index("seed", seed), 0
        elif self._seed is None:
            self._seed, self._episode = int(self.np_random.integers(MAX_SEED)), 0
        load, count = self.config.load, self.config.count
        coming = starts(self._scripts, load, count, self._seed, self._episode)
        closed = load.arrivals_per_s is None
        self._fleet = new_fleet(
            self._replicas, self._scripts.arrays, coming, load.sessions * count, closed, load.active_for_s
        )
        self._ended = np.zeros(self._fleet.batch.shape[1], np.int64)
        self._hit = self._prompt = self._completed = 0
        while (call := self._advance(load.warm_up_s)) != DONE:
            agent = self._fleet.agents[self._fleet.calls[call]["session"], self._fleet.calls[call]["agent"]]
            replicas = self._fleet.replicas
            fewest = int(np.argmin(replicas["calls"] + replicas["waiting"]))
            send(self._fleet, call, int(agent["home"]) if agent["home"] != NONE else fewest)
        self._drain(counts=False)
        self._fleet.now["open_call_s"] = 0.0
        self._open_s = 0.0
        self._call = self._advance(load.warm_up_s + load.duration_s)
        self._open_s = float(self._fleet.now[0]["open_call_s"])
        return self._shown(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out an action; see "Action Space".

        Raises:
            ResetNeeded: the episode has ended, or none was begun.
        """
        if self._fleet is None or self._call == DONE:
            raise ResetNeeded("call reset() first")
        if not self.action_space.contains(action):
            raise UserError(f"action {action!r}: must be a whole number from 0 to {self.config.count}")
        replica = int(action) if action < self.config.count and self._mask[action] else NONE
        send(self._fleet, self._call, replica)
        self._call = self._advance(self.config.load.warm_up_s + self.config.load.duration_s)
        before, self._open_s = self._open_s, float(self._fleet.now[0]["open_call_s"])
        reward = -(self._open_s - before) / (self.config.count * self.config.reward_s)
        return self._shown(), reward, False, self._call == DONE, self._info()

    def _advance(self, until_s: float) -> int:
        """The next offered call, or DONE."""
        while True:
            if self._fleet is None:
                raise ResetNeeded("call reset() first")
            call = advance(self._fleet, until_s, self._ended)
            if call >= 0 or call == DONE:
                return int(call)
            self._drain(counts=True)
            self._fleet = grown(self._fleet)

    def _drain(self, counts: bool) -> None:
        """Forget the records of completed calls; count them if they belong to the episode."""
        if self._fleet is None:
            return
        records = self._fleet.records[: self._fleet.now[0]["records"] if counts else 0]
        self._completed += len(records)
        self._hit += int(records["hit"].sum())
        self._prompt += int(records["prompt"].sum())
        self._fleet.now["records"] = 0

    def _shown(self) -> Observation:
        if self._call != DONE:
            observe(self._fleet, self._call, self._row, self._mask)
        return self._row.copy()

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"action_mask": self._mask.copy()}
        if self._call == DONE:
            self._drain(counts=True)
            metrics = {"calls": float(self._completed), "call_little_s": self._open_s / max(1, self._completed)}
            info["metrics"] = metrics | {"hit_rate": self._hit / max(1, self._prompt)}
        return info
