"""Recorded sessions of agents, from any format, and how they become workflows.

A **call** of a language model is a task. The gap between two calls, in which a tool ran or a person thought, is the
release delay of the second. A call needs those that had ended when it began and that no call has needed since: in a
chain, the one before it. A call that began while all others still ran follows the one that ended last before it. A
**subagent** forks after the last ended call of its parent, and the first call of its parent that began after the
subagent's end joins it. Tasks number the calls of the parent first, so that the first predecessor of a call is the one
whose context it continues.

Recorded clocks are coarse: a call that seems to overlap the start of the next one by at most `clock_tolerance_s` and at
most half its duration is assumed to have ended at that start. A call without a recorded duration has the fitted one,
cut at the start of the next call.

A **turn** that began before the previous turn of its session had ended is played after it: it and all that follows move
to that end, which the summary counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS, Accumulator
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.calls import Agent, Blocks, Call
from rllib_scale.workloads.formats.log import Log
from rllib_scale.workloads.formats.mapping import SessionMapping
from rllib_scale.workloads.formats.records import recorded_call
from rllib_scale.workloads.formats.sources import R, read_json
from rllib_scale.workloads.model import Workload

LONG_S = 86_400.0
"""Calls that last longer are counted: their clocks are probably wrong."""
MIN_UNKNOWN_SHARE = 0.1
"""A call without a recorded duration ran for at least this share of the fitted one."""


class Sessions:
    """Collects sessions one by one and keeps only their tasks; `blocks` are those that the sessions share."""

    def __init__(self, mapping: Any, progress: Progress) -> None:
        self.mapping, self.progress, self.blocks = mapping, progress, Blocks()
        self.workflows = Accumulator()

    def call(
        self, start_s: float, duration_s: float | None, prompt: int | None, answer: int | None, **more: Any
    ) -> Call:
        """`recorded_call` of this import."""
        return recorded_call(self.progress.counts, start_s, duration_s, prompt, answer, **more)

    def add(self, agent: Agent, start_s: float = 0.0) -> None:
        """Add the workflows of a session that began at `start_s` [s]; one without calls is only counted."""
        counts = self.progress.counts
        if not agent.calls:
            counts["sessions without calls"] += 1
            return
        calls = self.linked(agent)
        self._keep(agent, calls, start_s)
        counts["sessions"] += 1
        counts["turns"] += len({call.turn for call in calls})
        counts["calls"] += len(calls)
        counts["subagents"] += sum(1 for _ in agent.all_agents()) - 1
        counts["input tokens"] += sum(call.input_tokens for call in calls)
        counts["new input tokens"] += sum(call.new_tokens for call in calls)
        counts["output tokens"] += sum(call.output_tokens for call in calls)

    def _keep(self, agent: Agent, calls: list[Call], start_s: float) -> None:
        by_workflow: dict[int, list[int]] = {}
        for task, call in enumerate(calls):
            by_workflow.setdefault(call.turn if self.mapping.unit == "turn" else 0, []).append(task)
        for tasks in by_workflow.values():
            self._add_workflow(start_s, self.progress.counts["sessions"], calls, tasks)

    def add_dated(self, calls: Sequence[Call]) -> None:
        """Add a session without subagents whose calls count from a common date, not from the start of the session."""
        calls = [call for call in calls if call.is_work]
        start_s = min((call.start_s for call in calls), default=0.0)
        for call in calls:
            call.start_s -= start_s
        self.add(Agent(sorted(calls, key=lambda call: call.start_s)), start_s)

    def linked(self, agent: Agent) -> list[Call]:
        """The calls of a session in the order of its tasks, with `end_s` and `needs`."""
        calls = list(agent.all_calls())
        for call in calls:
            if call.duration_s is None:
                self.progress.counts["calls without a duration"] += 1
            elif call.duration_s > LONG_S:
                self.progress.counts["calls of more than a day"] += 1
            call.end_s = call.start_s + (call.duration_s or self.mapping.fitted_s(call))
        self._separate_turns(calls)
        self._link(agent, 0, None, calls)
        return calls

    def _separate_turns(self, calls: list[Call]) -> None:
        """Move each turn that began before the turns above had ended, and all that follows, to their end."""
        turns: dict[int, list[Call]] = {}
        for call in calls:
            turns.setdefault(call.turn, []).append(call)
        moved_s = latest_s = could_end_s = 0.0
        for number in sorted(turns):
            turn = turns[number]
            starts_s = min(call.start_s for call in turn) + moved_s
            if starts_s < could_end_s:
                self.progress.counts["turns that began before the previous one had ended"] += 1
                if self.mapping.overlapping_turns == "after":
                    moved_s += latest_s - starts_s
            for call in turn:
                call.start_s, call.end_s = call.start_s + moved_s, call.end_s + moved_s
            latest_s = max(latest_s, *(call.end_s for call in turn))
            could_end_s = max(could_end_s, *(self._earliest_end(call) for call in turn))

    def _link(self, agent: Agent, first: int, parent: int | None, calls: list[Call]) -> list[int]:
        """Link an agent whose tasks begin at `first` and that forks after the task `parent`; gives its last tasks."""
        counts = self.progress.counts
        events: list[tuple[float, int, int, Agent | None]] = [
            (call.start_s, 0, first + i, None) for i, call in enumerate(agent.calls)
        ]
        following = first + len(agent.calls)
        for subagent in agent.subagents:
            events.append((subagent.calls[0].start_s, 1, following, subagent))
            following += sum(1 for _ in subagent.all_calls())
        running: list[tuple[float, int]] = []  # a heap of (earliest possible end, task)
        ended: list[int] = []  # and not needed by any task yet
        latest = parent
        for start_s, _, task, sent_out in sorted(events, key=lambda event: event[:3]):
            while running and running[0][0] <= start_s:
                done = heapq.heappop(running)[1]
                if calls[done].end_s > start_s:
                    counts["calls cut at the next start"] += 1
                    calls[done].end_s = start_s
                ended.append(done)
                own = first <= done < first + len(agent.calls)
                if own and (latest is None or latest == parent or calls[done].end_s >= calls[latest].end_s):
                    latest = done
            if sent_out is not None:
                last = self._link(sent_out, task, latest, calls)
            else:
                last = [task]
                if ended:
                    calls[task].needs, ended = sorted(ended), []
                else:
                    calls[task].needs = [] if latest is None else [latest]
                    counts["calls beside another"] += bool(running)
            for end in last:
                heapq.heappush(running, (self._earliest_end(calls[end]), end))
        return ended + [task for _, task in running]

    def _earliest_end(self, call: Call) -> float:
        duration_s = call.end_s - call.start_s
        if call.duration_s is None:
            return call.start_s + MIN_UNKNOWN_SHARE * duration_s
        return call.end_s - min(self.mapping.clock_tolerance_s, duration_s / 2)

    def _add_workflow(self, start_s: float, number: int, calls: list[Call], tasks: list[int]) -> None:
        """Add the tasks of a session that make one workflow, without what they need of other workflows."""
        mapping, counts = self.mapping, self.progress.counts
        index = {task: i for i, task in enumerate(tasks)}
        arrival_s = min(calls[task].start_s for task in tasks)
        demands: list[tuple[float, ...]] = []
        edges: list[tuple[int, int]] = []
        for i, task in enumerate(tasks):
            call = calls[task]
            took_s = call.end_s - call.start_s if mapping.duration == "recorded" else mapping.fitted_s(call)
            cache_gb = (call.input_tokens + call.output_tokens) * mapping.kv_mb_per_token / 1000
            needs = [need for need in call.needs if need in index]
            gap_s = call.start_s - max((calls[need].end_s for need in needs), default=arrival_s)
            thought = bool(needs) and call.turn > max(calls[need].turn for need in needs)
            cap_s = mapping.think_gap_cap_s if thought else mapping.tool_gap_cap_s
            if cap_s is not None and gap_s > cap_s:
                counts["gaps cut to their cap"] += 1
                gap_s = cap_s
            needed_gb = mapping.weights_gb + cache_gb
            if mapping.max_memory_gb is not None and needed_gb > mapping.max_memory_gb:
                counts["calls clipped to max_memory_gb"] += 1
                needed_gb, cache_gb = mapping.max_memory_gb, min(cache_gb, mapping.max_memory_gb)
            demands.append((took_s * mapping.reference_gflops, needed_gb, cache_gb, gap_s))
            edges += [(index[need], i) for need in needs]
        columns = dict(zip(TASK_FIELDS, zip(*demands, strict=True), strict=True))
        self.workflows.add(start_s + arrival_s, number, columns, sorted(edges))


class RecordedSession(NamedTuple):
    """A session: when it began by the clock of the trace [s], its calls, linked, and its agents in the same order."""

    start_s: float
    calls: list[Call]
    agents: list[Agent]


class Recorded(Sessions):
    """Keeps the calls and agents of sessions in place of their tasks."""

    def __init__(self, mapping: Any, progress: Progress) -> None:
        super().__init__(mapping, progress)
        self.found: list[RecordedSession] = []

    def _keep(self, agent: Agent, calls: list[Call], start_s: float) -> None:
        self.found.append(RecordedSession(start_s, calls, list(agent.all_agents())))


def read_calls(
    model: type[R], add: Callable[[R, str, Log, Sessions], None], sources: Sequence[Path], sessions: Sessions
) -> None:
    """Read a format whose records are calls, or groups of them; `add(record, where, log, sessions)` adds one."""
    log = Log()
    read_json(sources, model, lambda record, where: add(record, where, log, sessions), sessions.progress)
    blocks = sessions.blocks
    if 2 * blocks.misfits > blocks.prompts:
        raise UserError(
            f"{', '.join(map(str, sources))}: {blocks.misfits} of {blocks.prompts} prompts have more or fewer hashes "
            f"than blocks; block_size must be about {blocks.tokens_per_hash:.0f}, the tokens per hash"
        )
    sessions.progress.counts["prompts whose hashes are not those of their tokens"] += blocks.misfits
    log.into(sessions)


def read_sessions(
    model: type[R], add: Callable[[R, str, Sessions], None], sources: Sequence[Path], sessions: Sessions
) -> None:
    """Read a format whose records are sessions; `add(record, where, sessions)` adds one."""
    read_json(sources, model, lambda record, where: add(record, where, sessions), sessions.progress)


def session_format(
    name: str, description: str, mapping: type[SessionMapping], collect: Callable[[Sequence[Path], Sessions], None]
) -> Format:
    """A format of sessions; `collect` adds those of its sources."""
    return Format(name, description, mapping, partial(_read, collect), collect)


def _read(
    collect: Callable[[Sequence[Path], Sessions], None], sources: Sequence[Path], mapping: Any, progress: Progress
) -> Workload:
    sessions = Sessions(mapping, progress)
    collect(sources, sessions)
    return Workload.collected(sessions.workflows, sources, progress)
