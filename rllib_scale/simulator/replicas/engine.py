"""A batch of fleets of replicas as an engine: what `simulator.engine.Engine` is for servers of fixed speed."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import Direct
from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.observation.answers import NO_FIT, OPEN, PASSED, STARTED, action_mask
from rllib_scale.observation.replicas import REPLICAS
from rllib_scale.simulator.record import SCHEDULE
from rllib_scale.simulator.replicas.arrivals import starts
from rllib_scale.simulator.replicas.handles import fleet_handles
from rllib_scale.simulator.replicas.kernel import UNANSWERED, step_batch
from rllib_scale.simulator.replicas.known import Knowledge
from rllib_scale.simulator.replicas.metrics import Begun, measure
from rllib_scale.simulator.replicas.pointed import NO_NETWORK, Pointing, pointing
from rllib_scale.simulator.replicas.rules import THUNDER, play
from rllib_scale.simulator.replicas.scripts import scripts_of
from rllib_scale.simulator.replicas.spans import open_calls
from rllib_scale.simulator.replicas.state import DONE, FLEET, Fleet, grown, new_fleet
from rllib_scale.workloads.random_numbers import new_generator

_STREAM = 1
"""Of (seed, episode): choices of rules. The first one decides the sessions."""


class ReplicaEngine:
    """B fleets of N replicas under sessions, which stop at each call that is asked [docs/replicas.md].

    To environments, policies and the evaluation it is an `Engine`, by `step` and what is read after it. Row N of `fit`
    and of the features holds the call. `scripts` are what sessions repeat. `play` lets a rule of fleets decide in
    compiled code to the end.
    """

    def __init__(self, config: EnvConfig, num_envs: int = 1) -> None:
        self.config, self.num_envs, self.num_rows = config, num_envs, config.cluster.num_rows
        self.features, self.candidates = REPLICAS, 1
        self.scripts = scripts_of(config.service)
        self._kinds = [t.replica for t in config.cluster.tiers for _ in range(t.count) if t.replica is not None]
        tasks = self.scripts.tasks
        self._largest, most = (
            int((tasks["prompt"] + tasks["output"]).max()),
            max(kind.kv_tokens for kind in self._kinds),
        )
        if self._largest > most:
            message = f"cluster.tiers: replica.kv_tokens {most:,}: a call has {self._largest:,} tokens and fits none"
            raise UserError(message)
        b, n = num_envs, self.num_rows
        self.observation = np.zeros((b, REPLICAS.width(n)), dtype=np.float32)
        self.fit = np.zeros((b, 1, n), dtype=np.uint8)
        self.outcome, self._offered = np.full((2, b), STARTED, dtype=np.int64)
        self.reward, self.elapsed, self._until_s = np.zeros((3, b))
        self.done, self.truncated = np.zeros((2, b), dtype=bool)
        self._now = np.zeros(b, FLEET)
        self._room = np.zeros(max(kind.max_calls for kind in self._kinds), dtype=np.int64)
        self._playing = np.zeros((b, 2), dtype=np.int64)
        self._fleets: list[Any] = [None] * b
        self._begun: list[Any] = [None] * b
        self._records: list[list[NDArray[Any]]] = [[] for _ in range(b)]
        self._table = np.zeros((b, len(Fleet._fields), 4), dtype=np.int64)

    @property
    def mask(self) -> np.ndarray:
        """(B, N + 2) bool: the answers that do something; see `action_mask`."""
        return action_mask(self.config, self.fit)

    @property
    def clock(self) -> np.ndarray:
        """(B,) float64 s."""
        return self._now["time"]

    def waits(self, b: int) -> bool:
        """Whether a call is offered in fleet b."""
        return bool(self._offered[b] >= 0)

    def reset(self, seeds: Any, episodes: Any, which: np.ndarray | None = None, workload: Any = None) -> None:
        """As `Engine.reset`.

        Raises:
            UserError: a workload is given.
        """
        if workload is not None:
            raise UserError("workload: service replica plays sessions, and no workflows; give service.trace")
        which = np.ones(self.num_envs, dtype=bool) if which is None else np.asarray(which, dtype=bool)
        self._run(np.full(self.num_envs, UNANSWERED), which, which, np.asarray(seeds), np.asarray(episodes))

    def step(self, actions: Any, active: np.ndarray | None = None, begin: Any = None) -> None:
        """As `Engine.step`: the replica of the offered call, or N, which holds it.

        A call whose replica is too small for it is held; one that is held beside an idle replica that it fits goes
        there.
        """
        self._check_exact()
        todo = np.ones(self.num_envs, dtype=bool) if active is None else np.array(active, dtype=bool)
        actions = np.array(actions, dtype=np.int64)
        which, seeds, episodes = (np.zeros_like(todo), None, None) if begin is None else begin
        actions[which] = UNANSWERED
        if not ((actions < self.num_rows) & (actions >= np.where(todo & ~which & ~self.done, 0, UNANSWERED))).all():
            raise ValueError(f"actions {actions}: valid are 0 to {self.num_rows - 1}")
        self._run(actions, todo, which, seeds, episodes)

    def play(self, values: NDArray[np.float64], networks: Sequence[Pointing] = ()) -> None:
        """Let a rule, its kind and what follows it in `rules`, decide in every fleet until its episode ends.

        Args:
            values: (V,), or (B, V) where it is another rule in each fleet.
            networks: one for each fleet, which say which held call goes; none: the rule says it.
        """
        smallest = min(kind.kv_tokens for kind in self._kinds)
        if (values[..., 0] == THUNDER).any() and smallest < self._largest:
            raise UserError(
                f"thunder-agent: replica.kv_tokens {smallest:,}: a call has {self._largest:,} tokens, and it reads no "
                "lengths of answers; valid: replicas that each call fits"
            )
        values = np.broadcast_to(values, (self.num_envs, values.shape[-1]))
        networks = networks or [pointing(NO_NETWORK)] * self.num_envs
        for b in np.flatnonzero(~self.done).tolist():
            rng = new_generator(int(self._playing[b, 0]), int(self._playing[b, 1]), _STREAM)
            known = Knowledge(self.config.observation.caches, self._fleets[b])
            while not self.done[b]:
                table, until_s = self._table[b], known.until(float(self._until_s[b]))
                rule = values[b].copy()
                tables = table, known.table(table), known.how
                state = play(self._offered[b], until_s, rule, rng, self._room, *tables, networks[b])
                self._offered[b] = DONE
                if state != DONE or until_s == self._until_s[b]:
                    self._attend(b, int(state))
                known.follow(self._fleets[b], int(state))

    def metrics(self, b: int = 0) -> dict[str, Any]:
        """Metrics of fleet b so far; names and units in `rllib_scale/results/columns.py`."""
        fleet = self._fleets[b]
        found = measure(self.calls(b), open_calls(fleet), fleet, self._begun[b], self.scripts, self.config)
        return found | {"episode_return": -float(self._now[b]["open_call_s"])}

    def calls(self, b: int = 0) -> NDArray[Any]:
        """Completed calls of fleet b so far, RECORD."""
        fleet = self._fleets[b]
        return np.concatenate([*self._records[b], fleet.records[: self._now[b]["records"]]])

    def open_calls(self, b: int = 0) -> NDArray[Any]:
        """Calls of fleet b that are asked and not answered, see `spans.open_calls`."""
        return open_calls(self._fleets[b])

    def schedule(self, b: int = 0) -> np.ndarray:
        """Completed calls of fleet b as attempts, dtype SCHEDULE: workflows are sessions, tasks their calls."""
        calls = self.calls(b)
        table = np.zeros(len(calls), SCHEDULE)
        for name, of in (("workflow", "session"), ("task", "call"), ("server", "replica"), ("work_gflop", "prefilled")):
            table[name] = calls[of]
        for name, of in (("arrival", "asked"), ("ready", "asked"), ("start", "placed"), ("finish", "end")):
            table[f"{name}_s"] = calls[f"{of}_s"]
        names = np.array([tier.name for tier in self.config.cluster.tiers for _ in range(tier.count)])
        table["tier"], table["outcome"] = names[table["server"]], "finished"
        return table

    def get_state(self) -> dict[str, Any]:
        """Copies of everything that decides how the run continues."""
        kept = {name: value for name, value in self.__dict__.items() if name not in _FIXED}
        kept["_fleets"] = [fleet and fleet._replace(**dict.fromkeys(_OF_SCRIPTS)) for fleet in self._fleets]
        return deepcopy(kept)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue exactly where `get_state` was called, in an engine of the same config and batch size."""
        if state["observation"].shape != self.observation.shape:
            raise ValueError("the state belongs to an engine of another batch size or cluster")
        self.__dict__.update(deepcopy(state))
        for b, fleet in enumerate(self._fleets):
            if fleet is not None:
                self._adopt(b, fleet._replace(**dict(zip(_OF_SCRIPTS, self.scripts.arrays, strict=True))))

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: without the addresses of the arrays, which are others there."""
        return {name: value for name, value in self.__dict__.items() if name != "_table"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """See `__getstate__`."""
        self.__dict__.update(state)
        self._table = np.zeros((self.num_envs, len(Fleet._fields), 4), dtype=np.int64)
        self.set_state(self.get_state())

    # ------------------------------------------------------------------ inside

    def _check_exact(self) -> None:
        known = self.config.observation.caches
        if known != "exact":
            raise UserError(f"observation.caches {known}: only rules for replicas read it; valid for others: exact")

    def _run(self, actions: np.ndarray, todo: np.ndarray, begins: np.ndarray, seeds: Any, episodes: Any) -> None:
        """Begin episodes, answer in the other fleets, and run to the next decisions."""
        todo = todo & (begins | ~self.done)
        for b in np.flatnonzero(begins).tolist():
            self._begin(b, int(seeds[b]), int(episodes[b]))
        asked = todo & ~begins
        named = self.fit[np.arange(self.num_envs), 0, np.maximum(actions, 0)]
        came = np.where(actions == self.num_rows - 1, PASSED, np.where(named == OPEN, STARTED, NO_FIT))
        self.outcome[asked] = came[asked]
        open_s, clock = self._now["open_call_s"].copy(), self._now["time"].copy()
        rest = todo.copy()
        while True:
            rows = (self.observation, self.fit, self._table)
            b = _step_batch(rest, actions, self._until_s, self._offered, self._room, *rows)
            if b < 0:
                break
            self._attend(b, int(self._offered[b]))
            rest[b] = not self.done[b]
        self.reward[:], self.elapsed[asked] = 0.0, (self._now["time"] - clock)[asked]
        self.reward[asked] = (open_s - self._now["open_call_s"])[asked]

    def _begin(self, b: int, seed: int, episode: int) -> None:
        config, service = self.config, self.config.service
        end_s, replicas = config.episode.horizon_s, len(self._kinds)
        coming = starts(self.scripts, service, replicas, end_s, seed, episode)
        closed, live = service.arrivals_per_s is None, service.live(replicas)
        told = service.ends == "told"
        fleet = new_fleet(self._kinds, self.scripts.arrays, coming, live, closed, service.active_for_s, told)
        self._records[b], self._playing[b], self._offered[b] = [], (seed, episode), DONE
        self._until_s[b] = service.warm_up_s or end_s
        self.done[b] = self.truncated[b] = False
        self.outcome[b], self.elapsed[b] = STARTED, 0.0
        self._adopt(b, fleet)
        self._begun[b] = self._as_it_is(b)

    def _adopt(self, b: int, fleet: Fleet) -> None:
        """Go on with these arrays; what changes at each decision is adjacent for all fleets."""
        self._now[b] = fleet.now[0]
        self._fleets[b] = fleet._replace(now=self._now[b : b + 1])
        self._table[b] = fleet_handles(self._fleets[b])

    def _as_it_is(self, b: int) -> Begun:
        return Begun(self._fleets[b].now.copy(), self._fleets[b].replicas.copy())

    def _attend(self, b: int, state: int) -> None:
        """A fleet has come to the end of the warm-up or of the episode, or its tables have to grow."""
        fleet, end_s = self._fleets[b], self.config.episode.horizon_s
        if state != DONE:
            self._records[b].append(fleet.records[: fleet.now[0]["records"]].copy())
            fleet.now["records"] = 0
            self._adopt(b, grown(fleet))
        elif self._until_s[b] < end_s:
            self._begun[b], self._until_s[b] = self._as_it_is(b), end_s
        else:
            if self.config.service.arrivals_per_s is None and fleet.now[0]["next_start"] == len(fleet.starts):
                raise UserError(
                    "service.trace: its sessions are too short for a closed loop: a live session ended more than "
                    "once a minute"
                )
            self.done[b], self.truncated[b] = True, not self.config.episode.horizon_is_terminal
            self.observation[b] = 0.0
            self.fit[b] = 0


_step_batch = Direct(step_batch)
_OF_SCRIPTS = ("tree", "tasks", "first_task", "successors")
_FIXED = ("config", "num_envs", "num_rows", "features", "candidates", "scripts", "_kinds", "_largest", "_table")
"""What a state does not hold."""
