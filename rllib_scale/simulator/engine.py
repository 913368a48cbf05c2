"""The simulator as an object: a batch of independent environments over one problem."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from rllib_scale.compiled import Direct
from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError
from rllib_scale.observation.answers import action_mask
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.observation.policy import Answering
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.observation.view import View
from rllib_scale.simulator import kernel, record
from rllib_scale.simulator import state as layout
from rllib_scale.simulator.arrays import build_problem, with_room_for
from rllib_scale.simulator.buffers import allocate, expected_sizes, with_log, with_room
from rllib_scale.simulator.cluster import build_servers, tier_names
from rllib_scale.simulator.handles import handles
from rllib_scale.simulator.load import load
from rllib_scale.simulator.snapshots import take_snapshot
from rllib_scale.simulator.views import ViewWriter
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

_step_batch, _dispatch_batch = Direct(kernel.step_batch), Direct(kernel.dispatch_batch)
_fit_batch, _answer_now, _load = Direct(kernel.fit_batch), Direct(kernel.answer_now), Direct(load)

MAX_NUMBER = 2**62
"""Numbers of workflows, tasks and servers are below it."""


def _shown(name: str, what: str) -> Any:
    """An array of the state, as it is: the engine's own, which the next call overwrites."""
    return property(lambda engine: getattr(engine._state, name), doc=what)


class Engine:
    """B environments that are played together by one compiled call [SCALE, sec. 3 and 4.1; docs/simulator.md].

    Tasks that wait are offered, K at a time; `step` answers in each environment and runs it to its next decision;
    `dispatch` gives several answers and runs on to the next event. Both write `observation` (B, W) float32, `fit`
    (B, K, N), `outcome`, `elapsed`, `reward` and `done` (B,); the arrays are the engine's own and are overwritten by
    the next call. An environment holds about 170 bytes per server, 40 per place, 150 per task of the episode and 80 per
    attempt to run one (for `schedule`).

    >>> engine = Engine(EnvConfig())
    >>> engine.reset([7], [0])
    >>> while not engine.done[0]:
    ...     engine.step([15])
    >>> engine.metrics()["completed"]
    3
    """

    _table: np.ndarray
    _fit_is_known: bool
    _writer: ViewWriter | None = None

    def __init__(self, config: EnvConfig, num_envs: int = 1) -> None:
        if config.on_replicas:
            raise UserError("service replica: valid in simulate, evaluate, a sweep and Scheduling-v0")
        self.config = config
        self.num_envs = num_envs
        self.num_rows = config.cluster.num_rows
        self.features = FEATURE_SETS[config.observation.feature_set]
        self._servers = build_servers(config.cluster, config.reward)
        self._tier_names = tier_names(config.cluster)
        self.candidates = config.decision.offered
        names = [tier.name for tier in config.cluster.tiers]
        self._tier = np.array([names.index(t) if t else -1 for t in self._tier_names], dtype=np.int64)
        self._all, self._none = np.ones(num_envs, dtype=bool), np.zeros(num_envs, dtype=bool)
        self._zeros, self._no_seeds = np.zeros(num_envs, dtype=np.int64), np.zeros(num_envs, dtype=np.uint64)
        self._draws = config.workload.is_synthetic
        self._spare = 0
        problem = build_problem(config, self._servers)
        self._use(allocate(config, num_envs, problem), problem)

    # ------------------------------------------------------------------ what one reads

    observation = _shown("observation", "(B, W) float32 of the config's feature set; with the paper's, 5 + 5N.")
    outcome = _shown("outcome", "(B,) int64, what came of the last answer of `step`: an index into OUTCOMES.")
    elapsed = _shown("elapsed", "(B,) float64 s that passed from the last decision to this one, or to the end.")
    reward = _shown("reward", "(B,) float64, of the last step.")
    done = _shown("done", "(B,) bool.")

    @property
    def fit(self) -> np.ndarray:
        """(B, K, N) uint8, how each server is for each candidate: CLOSED, TAKEN or OPEN (observation/answers.py)."""
        if not self._fit_is_known:
            _fit_batch(self._table)
            self._fit_is_known = True
        return self._state.fit

    @property
    def mask(self) -> np.ndarray:
        """(B, A) bool: the answers that do something; see `action_mask`."""
        return action_mask(self.config, self.fit)

    def answerable(self, actions: np.ndarray) -> np.ndarray:
        """(B,) bool: whether each of the actions (B,), within their range, is an answer that `step` takes.

        No answer: a candidate that is not there, as fewer wait.
        """
        env, n = self._state.env, self.num_rows
        offered = (actions // n < env["num_offered"]) | (actions == self.candidates * n)
        return offered | (env["end"] != layout.RUNNING)

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
            workload: to be played in place of drawn ones.

        Raises:
            UserError: a task of the workload fits no server.
        """
        which = self._all if which is None else self._row(which, np.bool_)
        seeds, episodes = self._row(seeds, np.uint64), self._row(episodes, np.uint64)
        if workload is not None:
            workload.check_fits(self.config.cluster, "workload")
        self._begin(which, seeds, episodes, workload)
        self._step(self._draws and workload is None, False, self._zeros, which, seeds, episodes)

    def step(
        self,
        actions: np.ndarray | list[int],
        begin: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Answer in every environment; one that has ended stays as it is.

        Args:
            actions: (B,) candidate k on server j is k N + j, a pass K N, to stop what runs on place p K N + 1 + p.
            begin: (which, seeds, episodes), each (B,): those of `which` begin this episode in place of a decision, as
                by `reset` but in the same call.

        Raises:
            ValueError: an action is no answer that can be given now; nothing was done.
        """
        which, seeds, episodes = self._none, self._no_seeds, self._no_seeds
        if begin is not None:
            which, seeds, episodes = map(self._row, begin, (np.bool_, np.uint64, np.uint64))
            self._begin(which, seeds, episodes, None)
        self._step(self._draws, True, self._row(actions, np.int64), which, seeds, episodes)

    def decide(self, rule: Answering) -> None:
        """Have a rule answer for the task on offer in every environment."""
        self.step(rule(self.observation, self.fit))

    def dispatch(self, starts: np.ndarray) -> None:
        """Several answers, in the given order, and the end of the round: the clock runs on until a task waits.

        The other way to play: any task that waits may be answered for, and what is not goes on waiting without a
        decision. In place of `step`, or between steps. The mask of the config plays no part; with no task waiting the
        clock runs on as `idle_advance` says. Each answer counts as a decision; `reward` holds what the whole call
        earned.

        Args:
            starts: (R, 4) integers: environment, workflow, task, server. Those beyond `max_decisions` are dropped.

        Raises:
            ValueError: a task does not wait, or its server is not open for it (nor one to wait for, with `reserve`).
                The answers before it are done.
        """
        starts = np.ascontiguousarray(starts, dtype=np.int64).reshape(-1, 4)
        self._state.reward[:] = 0.0
        self._fit_is_known = False
        self._make_log_room(1 + len(starts))
        refused = _dispatch_batch(starts, self._table)
        if refused >= 0:
            raise ValueError(
                "environment {}: workflow {}, task {} cannot start on server {}".format(*starts[refused].tolist())
            )

    def answer(self, b: int, workflow: int, task: int, server: int) -> int:
        """One answer for any task that waits in environment b; no time passes until `dispatch` ends the round.

        Args:
            b: number of the environment.
            workflow: of the task.
            task: its index.
            server: on which it starts or, with `reserve`, for which it waits; PASS: it is passed over.

        Returns:
            Index into observation.answers.OUTCOMES; `busy` and `no_fit` changed nothing.

        Raises:
            ValueError: there is no such environment, or no such task waits.
        """
        b = self._checked(b)
        self._fit_is_known = False
        self._make_log_room(1)
        named = index(workflow), index(task), index(server)
        outcome = int(_answer_now(b, *named, self._table)) if all(-1 <= n < MAX_NUMBER for n in named) else -1
        if outcome < 0:
            raise ValueError(
                f"environment {b}: there is no answer for workflow {workflow}, task {task}, server {server}"
            )
        return outcome

    def snapshot(self, b: int = 0) -> Snapshot:
        """State of environment b now."""
        return take_snapshot(self._checked(b), self._state, self._problem_now)

    def waits(self, b: int = 0) -> bool:
        """Whether a task waits in environment b."""
        return len(self.snapshot(b).ready) > 0

    def view(self) -> View:
        """State that rounds need of all environments now; the engine's own arrays, which the next call overwrites.

        New workflows are counted when they are first seen: call it at every event.
        """
        if self._writer is None or not self._writer.fits(self._state):
            self._writer = ViewWriter(self._state, self._problem_now, self._writer)
        return self._writer(self._table)

    def offers(self, b: int = 0) -> list[tuple[int, int]]:
        """Workflow and task of the candidates of environment b, in order."""
        b = self._checked(b)
        rows = self._state.offered[b, : self._state.env[b]["num_offered"]]
        of = self._state.workflows[b, self._state.tasks[b, rows]["workflow"]]
        return list(zip(of["number"].tolist(), (rows - of["first_task"]).tolist(), strict=True))

    def metrics(self, b: int = 0) -> dict[str, float | int]:
        """Metrics of environment b so far; names and units in `rllib_scale/results/columns.py`."""
        b = self._checked(b)
        floats = record.summarise(b, self._table, self._tier, len(self.config.cluster.tiers))
        return record.metrics(self._state.env[b], self._log(b), self._without_work(b), floats, self.config.cluster)

    def schedule(self, b: int = 0) -> np.ndarray:
        """Every attempt so far, in order of start, dtype SCHEDULE; NaN is what is not known before it ends."""
        b = self._checked(b)
        return record.schedule(self._log(b), float(self.clock[b]), self._tier_names)

    def memory(self) -> tuple[int, int]:
        """Bytes of (the workloads, the log of attempts), of all environments together."""
        s = self._state
        workloads = (s.workflows, s.tasks, s.details, s.edges, s.ready, s.aside, s.released)
        return sum(array.nbytes for array in workloads), s.log.nbytes

    def get_state(self) -> dict[str, Any]:
        """Copies of everything that decides how the run continues."""
        return {name: array.copy() for name, array in self._state._asdict().items()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue exactly where `get_state` was called, in an engine of the same config and batch size."""
        arrays = {name: array.copy() for name, array in state.items()}
        if arrays["env"].shape != (self.num_envs,) or arrays["observation"].shape != self.observation.shape:
            raise ValueError("the state belongs to an engine of another batch size or cluster")
        self._spare = 0
        self._use(layout.State(**arrays), self._problem_now)
        self._writer = None

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: without the addresses of the arrays, which are others there."""
        return {name: value for name, value in self.__dict__.items() if name != "_table"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """See `__getstate__`."""
        self.__dict__.update(state)
        self._use(self._state, self._problem_now)

    # ------------------------------------------------------------------ inside

    def _checked(self, b: int) -> int:
        """The number of an environment: compiled code would write beyond its arrays for one that is not there."""
        if not 0 <= index(b) < self.num_envs:
            raise ValueError(f"environment {b}: there is none; valid: 0 to {self.num_envs - 1}")
        return index(b)

    def _without_work(self, b: int) -> np.ndarray:
        """Responses of the tasks without work that have ended [s]; the log has none of them."""
        workflows = self._state.workflows[b, : self._state.env[b]["workflows_arrived"]]
        tasks = self._state.tasks[b, : workflows["num_tasks"].sum()]
        ended = tasks[tasks["place"] == layout.NOWHERE]
        response: np.ndarray = ended["ready"] - workflows["arrival"][ended["workflow"]]
        return response

    def _log(self, b: int) -> np.ndarray:
        """(L,) LOG: the attempts so far of environment b."""
        log: np.ndarray = self._state.log[b, : self._state.env[b]["num_started"]]
        return log

    def _use(self, state: layout.State, problem: layout.Problem) -> None:
        """Go on with these arrays."""
        self._state, self._problem_now = state, problem
        self._table = handles(state, problem)
        self._fit_is_known = False

    def _begin(self, which: np.ndarray, seeds: np.ndarray, episodes: np.ndarray, workload: Workload | None) -> None:
        """Prepare those that begin: load their workloads, unless compiled code draws them."""
        if self._writer is not None:
            self._writer.begin(which)
        if self._draws and workload is None:
            return
        tables = None if workload is None else self._tables_of(workload)
        for b in np.flatnonzero(which).tolist():
            seed, episode = seeds[b], episodes[b]
            drawn = tables or self._tables_of(generate(self.config, int(seed), int(episode)))
            _load(b, seed, episode, *drawn, self._table)

    def _tables_of(self, given: Workload) -> list[np.ndarray]:
        """A workload as `load` takes it; there is room for it then."""
        largest = (int(np.diff(at).max(initial=0)) for at in (given.task_offsets, given.edge_offsets))
        problem = with_room_for(self._problem_now, *largest)
        state = with_room(self._state, problem, given.num_workflows, given.num_tasks, len(given.edges))
        if state is not self._state or problem is not self._problem_now:
            self._use(state, problem)
        demand = given.demands(self.config.cluster)
        tables = given.arrival_s, given.task_offsets, demand, given.edge_offsets, given.edges, given.moved_gb
        return [np.ascontiguousarray(table) for table in tables]

    def _make_log_room(self, attempts: int) -> None:
        """Make room in the log for more attempts in each environment."""
        self._spare -= attempts
        if self._spare < 0:
            most = int(self._state.env["num_started"].max()) + attempts
            if most > self._state.log.shape[1]:
                self._use(with_log(self._state, most), self._problem_now)
            self._spare = self._state.log.shape[1] - most

    def _row(self, values: Any, dtype: type) -> np.ndarray:
        """One value for each environment, in the form that compiled code takes."""
        row: np.ndarray = np.ascontiguousarray(values, dtype=dtype)
        if row.shape != (self.num_envs,):
            raise ValueError(f"one value is needed for each of {self.num_envs} environments (got shape {row.shape})")
        return row

    def _step(self, draws: bool, answers: bool, *rows: np.ndarray) -> None:
        """Rows: actions, which begin, their seeds and episodes."""
        self._fit_is_known = False
        self._make_log_room(2)
        while True:
            result, b = _step_batch(draws, answers, *rows, self._table)
            if result == kernel.REFUSED:
                raise ValueError(
                    f"environment {b}: {rows[0][b]} is no answer that can be given now; servers are 0 to "
                    f"{self.num_rows - 1}"
                )
            if result == kernel.DONE:
                return
            s, problem = self._state, self._problem_now
            have = s.workflows.shape[1], s.tasks.shape[1], s.edges.shape[1]
            sizes = expected_sizes(self.config, problem)
            if all(size <= width for size, width in zip(sizes, have, strict=True)):
                sizes = (2 * have[0], 2 * have[1], 2 * have[2])
            self._use(with_room(s, problem, *sizes), problem)


def make_engine(config: EnvConfig, num_envs: int = 1) -> Any:
    """An `Engine`, or where servers are replicas of a language model a `ReplicaEngine`, which is compiled then."""
    if not config.on_replicas:
        return Engine(config, num_envs)
    from rllib_scale.simulator.replicas.engine import ReplicaEngine

    return ReplicaEngine(config, num_envs)
