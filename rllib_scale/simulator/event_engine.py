"""The engine of a live cluster or a router: a batch of one environment whose events come from outside."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rllib_scale.compiled import Direct
from rllib_scale.config import EnvConfig
from rllib_scale.observation.answers import OUTCOMES
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.observation.policy import Answering, Policy
from rllib_scale.observation.view import View
from rllib_scale.simulator import outside, outside_rounds
from rllib_scale.simulator.arrays import build_problem
from rllib_scale.simulator.buffers import allocate
from rllib_scale.simulator.changes import FAIL, JOIN
from rllib_scale.simulator.outside_state import Attempt, OutsideState

_begin, _order_anew, _resume = Direct(outside.begin_outside), Direct(outside.order_anew), Direct(outside.resume)
_advance_to, _arrive, _ended, _failed = map(
    Direct, (outside.advance_to, outside.arrive_now, outside.ended, outside.failed)
)
_lost, _give_up, _stopped, _change = map(
    Direct, (outside.lost, outside.give_up, outside.stopped, outside.change_server)
)
_begin_round, _step_in_round, _end_round = map(
    Direct, (outside_rounds.begin_round, outside_rounds.step_in_round, outside_rounds.end_round)
)


class EventEngine(OutsideState):
    """One cluster whose events are told, each with its time: by Ray, by the requests of a router, or by a replay.

    Between two rounds: `advance`, `arrive`, `ended`, `failed`, `lost`, `give_up`, `stopped`, `join`, `leave`, `resume`;
    each ends a round that has begun. In a round: `step`, `dispatch` or `answer`. `play` alternates both. What takes how
    long in truth is not known here, so no policy can see it.

    An event that cannot have happened, as the end of what does not run, is a ValueError, and nothing has changed.

    Args:
        config: the problem; horizon, number of decisions, workload and changes play no part.
        on_start: called with each attempt that starts.
        keeps_ended: keep what has ended, for `metrics` and `schedule`. A long-lived cluster keeps none of it, and its
            memory is that of what is under way.

    Raises:
        UserError: the problem has something that no event says.
    """

    def __init__(
        self, config: EnvConfig, on_start: Callable[[Attempt], None] = lambda attempt: None, keeps_ended: bool = True
    ) -> None:
        super().__init__(config)
        self.keeps_ended, self.on_start = keeps_ended, on_start
        self.num_started = self.num_ended = 0  # attempts, but for those that were resumed; workflows
        self.outcomes = np.zeros(len(OUTCOMES), dtype=np.int64)  # how often each came of an answer
        self.waited_s = 0.0  # of these attempts, from ready to their start [s]
        self.rounds, self.deciding_s = 0, 0.0  # in which somebody was asked, and how long they took [s, wall clock]
        self.counted = 0  # number of the workflow that the next view shows first as new
        self._numbers = itertools.count()  # of attempts
        self._more: Callable[[], bool] = lambda: False
        self._per_task = True
        self._asked_at: float | None = None  # when the round began, on the wall clock
        _begin(self._table)

    # ------------------------------------------------------------------ what happens

    def advance(self, now_s: float) -> bool:
        """Let the clock run to that time, if it is later; returns whether a release delay has ended."""
        return bool(self._tell(_advance_to, self._checked_time(now_s)))

    def arrive(
        self,
        number: int,
        arrival_s: float,
        demands: np.ndarray,
        edges: np.ndarray,
        edge_gb: np.ndarray | None = None,
        home: int = -1,
    ) -> None:
        """A workflow of T tasks arrives.

        Args:
            number: above those of all that came before.
            arrival_s: now, or before [s].
            demands: (T,) TASK_DEMAND of each task.
            edges: (E, 2) predecessor and successor, sorted; acyclic.
            edge_gb: (E,) what the successor needs of the predecessor [GB]; None: all of its output.
            home: server on which its first task, which follows none, has ended before it came, as the call before a
                request; -1: none has.
        """
        at_s, demand, links, moved = self._checked_arrival(number, arrival_s, demands, edges, edge_gb, home)
        at = self._tasks_used, self._edges_used
        self._edges_used = int(self._tell(_arrive, int(number), at_s, int(home), *at, demand, links, moved))
        self._tasks_used += len(demand)

    def ended(self, attempt: Attempt) -> None:
        """A task has ended."""
        self._tell(_ended, self._checked_attempt(attempt))
        del self.attempts[attempt.place]

    def _tell(self, what: Callable[..., Any], *about: Any) -> Any:
        """Tell compiled code what happened, between two rounds, and count the workflows that ended by it."""
        _end_round(False, self._table)
        self._fit_is_known = False
        env = self._state.env[0]
        # Differences: the engine's own sums restart when a router's replicas change, these go on.
        before, sum_s = int(env["workflows_completed"]), float(env["makespan_sum"])
        result = what(*about, self._table)
        self.num_ended += int(env["workflows_completed"]) - before
        self.stayed_s += float(env["makespan_sum"]) - sum_s
        return result

    def failed(self, attempt: Attempt) -> None:
        """An attempt came to nothing: its task waits again."""
        self._tell(_failed, self._checked_attempt(attempt))
        del self.attempts[attempt.place]

    def lost(self, workflow: int, task: int) -> None:
        """The output of a task that had ended is gone: it is to be run again, and tasks that need it wait for it.

        A task that needs it and runs may end all the same; should it fail, it waits for the output, too.
        """
        self._tell(_lost, self._checked_output(workflow, task))

    def give_up(self, workflow: int) -> list[Attempt]:
        """Nothing of a workflow waits any more. What runs of it is returned, to be stopped, and told by `stopped`."""
        workflow = self._checked_workflow(workflow)
        w = int(self._state.tasks["workflow"][0, self._row(workflow, 0)])
        self.num_ended += 1
        self.stayed_s += self.now - float(self._state.workflows["arrival"][0, w])
        self._tell(_give_up, w)
        runs = [attempt for attempt in self.running() if attempt.workflow == workflow]
        self.stopping.update(attempt.place for attempt in runs)
        return runs

    def stopped(self, attempt: Attempt) -> None:
        """An abandoned attempt has stopped: its place is free."""
        self._tell(_stopped, self._checked_attempt(attempt, is_stopping=True))
        self.stopping.discard(attempt.place)
        del self.attempts[attempt.place]

    def join(self, server: int) -> None:
        """A server is there again, empty."""
        self._tell(_change, self._checked_server(server, is_there=False), JOIN)

    def leave(self, server: int) -> None:
        """A server is gone; its tasks wait again."""
        self._tell(_change, self._checked_server(server, is_there=True), FAIL)
        for place in [place for place, attempt in self.attempts.items() if attempt.server == server]:
            del self.attempts[place]
            self.stopping.discard(place)

    def resume(self, workflow: int, task: int, server: int, since_s: float) -> Attempt | None:
        """A task that waits has been running since then, before this engine was asked; None: there is no room for it.

        It is no decision, and counts neither as started nor as having waited.
        """
        since_s, server = self._checked_time(since_s, self.now), self._checked_server(server)
        workflow, task = self._checked_waiting(workflow, task)
        self._make_log_room(1)
        before = int(self._state.env["num_started"][0])
        if not self._tell(_resume, workflow, task, server, since_s):
            return None
        return self._attempt_of(self._state.log[0, before])

    def go_on_counting(self, former: EventEngine) -> None:
        """Continue the counters of a former engine of the same cluster."""
        for name in ("num_started", "num_ended", "stayed_s", "waited_s", "rounds", "deciding_s", "outcomes"):
            setattr(self, name, getattr(former, name))

    # ------------------------------------------------------------------ rounds

    def play(self, policy: Policy, more: Callable[[], bool]) -> None:
        """Let a policy decide until there is nothing more to come; it was `reset` for one environment.

        Args:
            policy: decides.
            more: see `begin`.
        """
        self.begin(policy.per_task, more)
        while not self.done[0]:
            policy.advance(self)

    def begin(self, per_task: bool, more: Callable[[], bool]) -> None:
        """Run to the first decision.

        Args:
            per_task: whether the policy decides for the task on offer.
            more: waits until something has happened, and tells it; False: nothing will any more.
        """
        self._per_task, self._more = per_task, more
        self._state.done[0] = False
        self._next_round()

    def step(self, actions: Any, begin: Any = None) -> None:
        """See `Engine.step`; where no answer is wanted any more, it waits for what happens next."""
        before, action = self._begin_answer(), super()._row(actions, np.int64)[0]
        is_wanted = _step_in_round(int(action), self._table)
        if is_wanted == outside_rounds.NOT_ASKED:
            raise ValueError(f"environment 0: {action} is no answer that can be given now")
        self.outcomes[self._state.outcome[0]] += 1
        self._tell_of_starts(before)
        if not is_wanted:
            self._next_round()

    def decide(self, rule: Answering) -> None:
        """See `Batch.decide`: the rest of the round in compiled code; then it waits for what happens next."""
        before = self._begin_answer(int(self._state.free_places.sum()))
        rule.answer_round(self.num_waiting, self._state.fit.shape[1:], self.outcomes, self._table)
        self._tell_of_starts(before)
        self._next_round()

    def dispatch(self, starts: np.ndarray) -> None:
        """See `Engine.dispatch`; then it waits for what happens next."""
        for b, workflow, task, server in np.asarray(starts, dtype=np.int64).reshape(-1, 4).tolist():
            try:
                self.answer(b, workflow, task, server)
            except ValueError:
                raise ValueError(f"workflow {workflow}, task {task} cannot start on server {server}") from None
        self._next_round()

    def answer(self, b: int, workflow: int, task: int, server: int) -> int:
        """See `Engine.answer`."""
        before = self._begin_answer()
        outcome = super().answer(b, workflow, task, server)
        self.outcomes[outcome] += 1
        self._tell_of_starts(before)
        return outcome

    def start_any(self) -> None:
        """Where nothing runs, the first task that can start does so on the first server that is open for it.

        It is no answer of the policy, and not counted as one.
        """
        before = self._begin_answer()
        _end_round(True, self._table)
        self._tell_of_starts(before)

    def _begin_answer(self, starts: int = 1) -> int:
        self._fit_is_known = False
        self._make_log_room(starts)
        return int(self._state.env["num_started"][0])

    def _tell_of_starts(self, before: int) -> None:
        """Report the attempts that have started since the log had `before` rows."""
        for row in self._state.log[0, before : self._state.env["num_started"][0]]:
            attempt = self._attempt_of(row)
            self.num_started += 1
            self.waited_s += attempt.start_s - attempt.ready_s
            self.on_start(attempt)

    def _attempt_of(self, row: np.void) -> Attempt:
        """The attempt of a row of the log, which has just started."""
        at = self._row(int(row["workflow"]), int(row["task"]))
        place = int(self._state.tasks["place"][0, at])
        attempt = self.attempts[place] = Attempt(
            number=next(self._numbers),
            workflow=int(row["workflow"]),
            task=int(row["task"]),
            server=int(row["server"]),
            place=place,
            output_gb=float(self._state.tasks["output"][0, at]),
            ready_s=float(row["ready"]),
            start_s=float(row["start"]),
            transfer_s=float(row["transfer"]),
            expected_end_s=float(self._state.expected[0, place]),
        )
        return attempt

    def _next_round(self) -> None:
        """Wait until something is to be decided."""
        _end_round(False, self._table)
        self._fit_is_known = False
        if self._asked_at is not None:
            self.rounds += 1
            self.deciding_s += time.perf_counter() - self._asked_at
            self._asked_at = None
        while self._more():
            if _begin_round(self._per_task, self._table):
                self._asked_at = time.perf_counter()
                return
        _end_round(False, self._table)  # what is offered where no server is open is not asked about
        self._state.done[0] = True

    # ------------------------------------------------------------------ what there is

    def view(self) -> View:
        """See `Engine.view`."""
        self.counted = int(self._state.env["next_number"][0])
        return super().view()

    # ------------------------------------------------------------------ who decides

    def change_problem(self, config: EnvConfig) -> None:
        """Another policy decides from now on: decisions, order and observation are those of its problem.

        Raises:
            ValueError: it has other servers, or inputs come from elsewhere.
        """
        if config.cluster != self.config.cluster or config.communication != self.config.communication:
            raise ValueError("the problem has another cluster or communication")
        _end_round(False, self._table)
        fresh = self._from_outside(build_problem(config, self._servers))
        arrays = allocate(config, 1, fresh)
        # Only what has the shape of a decision changes; what waits and runs stays in its arrays.
        kept = {name: getattr(arrays, name) for name in ("offered", "observation", "fit")}
        self.config, self.candidates = config, config.decision.offered
        self.features = FEATURE_SETS[config.observation.feature_set]
        seen = {name: getattr(fresh, name) for name in ("parameters", "static_columns", "static")}
        self._use(self._state._replace(**kept), self._problem_now._replace(**seen))
        _order_anew(self._table)
        self._writer = None
        self.view()  # what has arrived is known to whoever takes over
