"""The simulator as an object: a batch of independent environments over one problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_scale.compiled import Direct
from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.observation.feature_sets import FEATURE_SETS, write_static
from rllib_scale.observation.snapshot import System
from rllib_scale.simulator import kernel, metrics
from rllib_scale.simulator import state as layout
from rllib_scale.simulator.arrays import build_problem
from rllib_scale.simulator.cluster import build_servers, tier_names
from rllib_scale.workloads import generators as workloads
from rllib_scale.workloads.model import Workload

_step_batch, _dispatch_batch = Direct(kernel.step_batch), Direct(kernel.dispatch_batch)
FIRST_SLOTS = 8
FIRST_LOG_ROWS = 128
SCHEDULE = np.dtype(
    [
        ("workflow", "i8"),
        ("task", "i8"),
        ("server", "i8"),
        ("tier", "U32"),
        ("arrival_s", "f8"),
        ("ready_s", "f8"),
        ("start_s", "f8"),
        ("finish_s", "f8"),
    ]
)


class Engine:
    """B environments stepped together by one compiled call [SCALE, sec. 3 and 4.1].

    `reset` and `step` write `observation` (B, 5 + 5N) float32, `reward` (B,) and `done` (B,); the arrays are the
    engine's own and are overwritten by the next call. An environment holds about 50 bytes per server slot, 90 per task
    of the workflows in the system and 56 per task started in the episode (for `schedule`); buffers double when full.

    >>> engine = Engine(EnvConfig())
    >>> engine.reset([7], [0])
    >>> while not engine.done[0]:
    ...     engine.step([15])
    >>> engine.metrics()["completed"]
    3
    """

    def __init__(self, config: EnvConfig, num_envs: int = 1) -> None:
        self.config = config
        self.num_envs = num_envs
        self.num_slots = config.cluster.num_slots
        self.features = FEATURE_SETS[config.observation.feature_set]
        self._servers = build_servers(config.cluster, config.reward)
        self._tier_names = tier_names(config.cluster)
        names = [tier.name for tier in config.cluster.tiers]
        self._tier = np.array([names.index(t) if t else -1 for t in self._tier_names], dtype=np.int64)
        self._all, self._none = np.ones(num_envs, dtype=bool), np.zeros(num_envs, dtype=bool)
        self._zeros, self._no_seeds = np.zeros(num_envs, dtype=np.int64), np.zeros(num_envs, dtype=np.uint64)
        self._drawn = build_problem(config, self._servers)
        self._problem_now = self._drawn
        self._state = self._allocate(FIRST_SLOTS, config.workload.max_tasks, workloads.most_edges(config))

    # ------------------------------------------------------------------ what one reads

    @property
    def observation(self) -> np.ndarray:
        """(B, 5 + 5N) float32."""
        return self._state.observation

    @property
    def reward(self) -> np.ndarray:
        """(B,) float64, of the last step."""
        return self._state.reward

    @property
    def done(self) -> np.ndarray:
        """(B,) bool."""
        return self._state.done

    @property
    def clock(self) -> np.ndarray:
        """(B,) float64 s."""
        return self._state.env["clock"]

    @property
    def truncated(self) -> np.ndarray:
        """(B,) bool: ended by a limit that the config says is no terminal state."""
        end = self._state.env["end"]
        cut = end == layout.AT_MAX_DECISIONS
        return cut if self.config.episode.horizon_is_terminal else cut | (end == layout.AT_HORIZON)

    # ------------------------------------------------------------------ what one does

    def reset(
        self,
        seeds: np.ndarray | list[int],
        episodes: np.ndarray | list[int],
        which: np.ndarray | None = None,
        workload: Workload | None = None,
    ) -> None:
        """Begin episodes in all environments, or in those of `which` (B,) bool.

        Args:
            seeds: (B,), with the episode what decides the workload of each.
            episodes: (B,).
            which: which environments; the others go on undisturbed.
            workload: to be played in place of drawn ones. A batch plays one given workload at a time.

        Raises:
            UserError: a task of the given workload fits no server.
            ValueError: an environment that goes on is in the middle of another given workload.
        """
        if workload is not None:
            if which is not None and (self._state.env["is_given"][~np.asarray(which)] != 0).any():
                raise ValueError("another environment of the batch is playing a given workload")
            workload.check_fits(float(self._servers["memory"].max()), "workload")
            if np.diff(workload.task_offsets).max() > 1 << layout.TASK_BITS:
                raise UserError(f"workload: at most {1 << layout.TASK_BITS} tasks a workflow are supported")
            self._problem_now = build_problem(self.config, self._servers, workload)
            tasks, edges = np.diff(workload.task_offsets).max(), np.diff(workload.edge_offsets).max()
            self._make_room(FIRST_SLOTS, int(tasks), int(edges), FIRST_LOG_ROWS)
        elif which is None:
            self._problem_now = self._drawn
        which = self._all if which is None else self._row(which, np.bool_)
        seeds, episodes = self._row(seeds, np.uint64), self._row(episodes, np.uint64)
        self._step(self._zeros, self._none, which, seeds, episodes, workload is not None)

    def step(
        self,
        actions: np.ndarray | list[int],
        active: np.ndarray | None = None,
        begin: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Decide in every environment, or in those of `active` (B,) bool; one that has ended stays as it is.

        Args:
            actions: (B,) server indices.
            active: (B,) bool.
            begin: (which, seeds, episodes), each (B,): those of `which` begin this episode in place of a decision, as
                by `reset` but in the same call.

        Raises:
            ValueError: an action is no server slot; nothing was done.
        """
        active = self._all if active is None else self._row(active, np.bool_)
        which, seeds, episodes = self._none, self._no_seeds, self._no_seeds
        if begin is not None:
            which, seeds, episodes = map(self._row, begin, (np.bool_, np.uint64, np.uint64))
        self._step(self._row(actions, np.int64), active, which, seeds, episodes, False)

    def dispatch(self, starts: np.ndarray, active: np.ndarray | None = None) -> None:
        """Start tasks on idle servers, in the given order; then the clock runs to the next event with a task ready.

        The other way to play: any ready task may be started, and what is not started waits without a decision. In place
        of `step`, or between steps. The mask of the config plays no part; with no ready task the clock runs on as
        `idle_advance` says. Each start counts as a decision; `reward` holds what the whole call earned.

        Args:
            starts: (K, 4) integers: environment, workflow, task, server. Those beyond `max_decisions` are dropped.
            active: (B,) bool, the environments whose clock runs on; one that has ended stays as it is.

        Raises:
            ValueError: a task is not ready, or its server not idle or too small. The starts before it are done.
        """
        starts = np.ascontiguousarray(starts, dtype=np.int64).reshape(-1, 4)
        active = self._all if active is None else self._row(active, np.bool_)
        self._state.reward[active] = 0.0
        row, b, resume = 0, 0, False
        while b < self.num_envs:
            need, row, b = _dispatch_batch(row, b, resume, starts, active, self._state, self._problem_now)
            if need == layout.REFUSED:
                raise ValueError(
                    "environment {}: workflow {}, task {} cannot start on server {}".format(*starts[row].tolist())
                )
            self._grow(need)
            resume = need == layout.NEEDS_SLOTS

    def system(self, b: int = 0) -> System:
        """What there is in environment b now; to be read before the engine moves on."""
        return System(b, self._state, self._servers)

    def metrics(self, b: int = 0) -> dict[str, float | int]:
        """Metrics of environment b so far; names and units in `rllib_scale/results/tables.py`."""
        env = self._state.env[b]
        floats = metrics.summarise(b, self._state, self._problem_now, self._tier, len(self.config.cluster.tiers))
        response, median, p95, censored, makespan, energy, utilisation = (float(x) for x in floats[:7])
        return {
            "arrived": int(env["arrived"]),
            "completed": int(env["completed"]),
            "unfinished": int(env["in_system"]),
            "response_mean_s": response,
            "response_median_s": median,
            "response_p95_s": p95,
            "response_censored_s": censored,
            "makespan_mean_s": makespan,
            "workflows_arrived": int(env["workflows_arrived"]),
            "workflows_completed": int(env["workflows_completed"]),
            "episode_return": float(env["episode_return"]),
            "decisions": int(env["decisions"]),
            "invalid_no_fit": int(env["invalid_no_fit"]),
            "invalid_busy_avoidable": int(env["invalid_busy_avoidable"]),
            "invalid_busy_unavoidable": int(env["invalid_busy_unavoidable"]),
            "duration_s": float(env["clock"]),
            "energy_j": energy,
            "utilisation": utilisation,
        } | {
            f"utilisation_{tier.name}": float(x) for tier, x in zip(self.config.cluster.tiers, floats[7:], strict=True)
        }

    def schedule(self, b: int = 0) -> np.ndarray:
        """Every task started so far, in order of start, dtype SCHEDULE; `finish_s` is NaN where it has not finished."""
        log = self._state.log[b, : self._state.env[b]["num_started"]]
        table = np.empty(len(log), dtype=SCHEDULE)
        for name in ("workflow", "task", "server"):
            table[name] = log[name]
        for name in ("arrival", "ready", "start"):
            table[f"{name}_s"] = log[name]
        table["tier"] = self._tier_names[log["server"]]
        table["finish_s"] = np.where(log["finish"] <= self.clock[b], log["finish"], np.nan)
        return table

    def memory(self) -> tuple[int, int]:
        """Bytes of (the buffers of live workflows, the log of started tasks), of all environments together."""
        s = self._state
        return sum(array.nbytes for array in (s.slots, s.tasks, s.successors, s.free, s.ready)), s.log.nbytes

    def get_state(self) -> dict[str, Any]:
        """Copies of everything that decides how the run goes on."""
        state = {name: array.copy() for name, array in self._state._asdict().items()}
        given = {name: getattr(self._problem_now, name) for name in layout.Problem._fields if name.startswith("given")}
        return {"state": state, "given": given}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on exactly where `get_state` was called, in an engine of the same config and batch size."""
        arrays = {name: array.copy() for name, array in state["state"].items()}
        if arrays["env"].shape != (self.num_envs,) or arrays["observation"].shape != self.observation.shape:
            raise ValueError("the state belongs to an engine of another batch size or cluster")
        self._state = layout.State(**arrays)
        self._problem_now = self._drawn._replace(**state["given"])
        self._fit_scratch()

    # ------------------------------------------------------------------ inside

    def _row(self, values: Any, dtype: type) -> np.ndarray:
        """One value for each environment, in the form that compiled code takes."""
        row: np.ndarray = np.ascontiguousarray(values, dtype=dtype)
        if row.shape != (self.num_envs,):
            raise ValueError(f"one value is needed for each of {self.num_envs} environments (got shape {row.shape})")
        return row

    def _step(self, *rows: Any) -> None:
        """Rows: actions, active, which begin, their seeds and episodes, and whether these play a given workload."""
        start, resume = 0, False
        while start < self.num_envs:
            need, start = _step_batch(start, resume, *rows, self._state, self._problem_now)
            if need == layout.REFUSED:
                raise ValueError(f"actions must be {self.num_envs} server indices from 0 to {self.num_slots - 1}")
            self._grow(need)
            resume = need == layout.NEEDS_SLOTS

    def _grow(self, need: int) -> None:
        """Double the buffer a kernel asks for, if it does."""
        if need == layout.GO_ON:
            return
        _, slots, tasks = self._state.tasks.shape
        edges, rows = self._state.successors.shape[2], self._state.log.shape[1]
        if need == layout.NEEDS_LOG:
            self._make_room(slots, tasks, edges, 2 * rows)
        else:
            self._make_room(2 * slots, tasks, edges, rows)

    def _allocate(self, slots: int, tasks: int, edges: int) -> layout.State:
        b, n = self.num_envs, self.num_slots
        observation = np.zeros((b, self.features.width(n)), dtype=np.float32)
        for features in observation:
            write_static(features, self._servers, self._drawn.parameters[0])
        return layout.State(
            env=np.zeros(b, dtype=layout.ENV),
            slots=np.zeros((b, slots), dtype=layout.SLOT),
            tasks=np.zeros((b, slots, tasks), dtype=layout.TASK),
            successors=np.zeros((b, slots, max(1, edges)), dtype=np.int32),
            free=np.zeros((b, slots), dtype=np.int64),
            ready=np.zeros((b, slots * tasks), dtype=np.int64),
            finish=np.full((b, n), np.inf),
            running=np.full((b, n), layout.FREE, dtype=np.int64),
            queue=np.zeros((b, n), dtype=np.int64),
            busy=np.zeros((b, n)),
            log=np.zeros((b, FIRST_LOG_ROWS), dtype=layout.LOG),
            observation=observation,
            reward=np.zeros(b),
            done=np.ones(b, dtype=bool),
        )

    def _make_room(self, slots: int, tasks: int, edges: int, rows: int) -> None:
        """Enlarge the buffers of live workflows and of the log to at least these sizes; contents stay."""
        old = self._state
        before = old.slots.shape[1]
        slots, tasks = max(slots, before), max(tasks, old.tasks.shape[2])
        edges, rows = max(edges, old.successors.shape[2]), max(rows, old.log.shape[1])
        # New slots go below the free ones: which slot a workflow gets must not depend on the rest of the batch.
        added = np.tile(np.arange(slots - 1, before - 1, -1), (self.num_envs, 1))
        free = np.concatenate([added, old.free], axis=1)
        old.env["num_free"] += slots - before
        new_slots = _enlarged(old.slots, slots)
        new_slots["workflow"][:, before:] = layout.FREE
        self._state = old._replace(
            slots=new_slots,
            tasks=_enlarged(old.tasks, slots, tasks),
            successors=_enlarged(old.successors, slots, edges),
            free=free,
            ready=_enlarged(old.ready, slots * tasks),
            log=_enlarged(old.log, rows),
        )
        self._fit_scratch()

    def _fit_scratch(self) -> None:
        _, _, tasks = self._state.tasks.shape
        edges = self._state.successors.shape[2]
        if len(self._problem_now.order_scratch) < tasks or len(self._problem_now.edge_scratch) < edges:
            self._problem_now = self._problem_now._replace(
                order_scratch=np.zeros(tasks, dtype=np.int64), edge_scratch=np.zeros((edges, 2), dtype=np.int64)
            )


def _enlarged(array: np.ndarray, *sizes: int) -> np.ndarray:
    """A copy whose axes after the first have the given sizes, filled up with zeros."""
    if array.shape[1:] == sizes:
        return array
    larger = np.zeros((array.shape[0], *sizes), dtype=array.dtype)
    larger[tuple(slice(n) for n in array.shape)] = array
    return larger
