"""Recorded sessions of agents, whatever format they came in, and how they become workflows.

A **call** of a language model is a task. What happened between two calls, off the servers, is the release delay of the
second: a tool ran, or a person thought. A call needs those that had ended when it began and that nothing has needed
since: in a chain, the one before it. A call that began while all others still ran hangs where the latest ended, beside
them. A **subagent** forks where its parent's last call had ended, and is joined by the first call of its parent that
began after it. Calls of the parent come first in the numbering of tasks, so that the first predecessor of a call is the
one whose context it goes on with.

Recorded clocks are coarse: where a call is said to have run on, by at most `clock_tolerance_s` and at most half its
time, when the next one began, it is taken to have ended just then. A call without a recorded duration is given the
fitted one, cut where the next call began.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import Field

from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.accumulator import Accumulator
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.model import Workload

MIN_FITTED_S = 1e-3
"""A task takes some time, also where the constants of the fit are all set to 0."""
_SURE_S = 0.1
"""Share of a fitted duration for which a call without a recorded one ran at least."""


class SessionMapping(Model):
    """How recorded calls become tasks."""

    unit: Literal["turn", "session"] = Field(
        default="turn",
        description="a workflow is one turn of a user, or a whole session with the person's gaps as release delays",
    )
    duration: Literal["fitted", "recorded"] = Field(
        default="fitted", description="seconds on the reference server: from tokens by the fit below, or as recorded"
    )
    base_s: NonNegative = Field(
        default=1.19,
        description="fit: seconds of any call [least squares, calls under 300 s of 710 kv-cache-tester sessions]",
    )
    s_per_1k_new: NonNegative = Field(
        default=0.038, description="fit: seconds per 1000 new input tokens, not in the cache [the same fit]"
    )
    s_per_1k_output: NonNegative = Field(default=15.2, description="fit: seconds per 1000 output tokens [the same fit]")
    s_per_1k_context: NonNegative = Field(
        default=0.0,
        description="fit: seconds per 1000 input tokens, cached or not [the same fit has 0.0144; assumed: left out, as "
        "the context counts by its memory and its transfers]",
    )
    reference_gflops: Positive = Field(
        default=1.0, description="compute_gflop of one second, the speed of the reference server [assumed: 1 unit]"
    )
    weights_gb: NonNegative = Field(
        default=0.0, description="memory of a call besides its cache [assumed: weights belong to the server]"
    )
    kv_mb_per_token: NonNegative = Field(
        default=0.16,
        description="cache per token of context; 0.13 for 8 B parameters with grouped-query attention in 16 bit, 0.33 "
        "for 70 B [assumed: 0.16]",
    )
    max_memory_gb: Positive | None = Field(
        default=None, description="calls that need more are clipped to it, and counted [assumed: no limit]"
    )
    tool_gap_cap_s: NonNegative | None = Field(
        default=None, description="longest gap after a call that asked for a tool [assumed: as recorded]"
    )
    think_gap_cap_s: NonNegative | None = Field(
        default=None, description="longest gap in which a person thinks, in unit session [assumed: as recorded]"
    )
    clock_tolerance_s: NonNegative = Field(
        default=1.0, description="overlap of two calls that the clocks' resolution explains [kv-cache-tester: whole s]"
    )


@dataclass(slots=True)
class Call:
    """One answer of a language model.

    Attributes:
        start_s: when it began, from the session's start [s].
        duration_s: how long it took [s], above 0; None where nobody took the time.
        input_tokens: the whole prompt, cached or not.
        output_tokens: of the answer.
        new_tokens: of the prompt that were in no cache.
        turn: the user's turn that it belongs to, counted from 0.
    """

    start_s: float
    duration_s: float | None
    input_tokens: int
    output_tokens: int
    new_tokens: int
    turn: int


@dataclass(slots=True)
class Agent:
    """What one agent did: its calls by start, and the subagents that it sent out."""

    calls: list[Call]
    subagents: list[Agent] = field(default_factory=list)

    def every_call(self) -> Iterable[Call]:
        """Its calls, then those of its subagents: the order of the tasks."""
        return chain(self.calls, *(agent.every_call() for agent in self.subagents))


@dataclass(slots=True)
class Session:
    """A conversation: when it began [s, from whatever moment], and its agent."""

    start_s: float
    agent: Agent


@dataclass(slots=True)
class Linked:
    """A call and what it waited for. `end_s` is that of the recording, brought in order."""

    call: Call
    end_s: float
    needs: list[int] = field(default_factory=list)


def link(session: Session, mapping: SessionMapping, progress: Progress) -> list[Linked]:
    """The calls of a session in the order of its tasks, each with the tasks that it waited for."""
    linked: list[Linked] = []
    for call in session.agent.every_call():
        if call.duration_s is None:
            progress.counts["calls without a duration"] += 1
        linked.append(Linked(call, call.start_s + (call.duration_s or fitted_s(call, mapping))))
    _link_agent(session.agent, 0, None, linked, mapping.clock_tolerance_s, progress)
    return linked


def _link_agent(
    agent: Agent, first: int, parent: int | None, linked: list[Linked], tolerance: float, progress: Progress
) -> tuple[list[int], int]:
    """Link an agent whose tasks begin at `first`, forked after `parent`; its last tasks and the next free number."""
    events: list[tuple[float, int, int, Agent | None]] = [
        (call.start_s, 0, first + i, None) for i, call in enumerate(agent.calls)
    ]
    following = first + len(agent.calls)
    for subagent in agent.subagents:
        events.append((subagent.calls[0].start_s, 1, following, subagent))
        following += sum(1 for _ in subagent.every_call())
    running: list[tuple[float, int]] = []  # a heap of (when it may be taken to have ended, task)
    ended: list[int] = []  # and not needed by anything yet
    latest = parent
    for start_s, _, task, subagent_or_none in sorted(events, key=lambda event: event[:3]):
        while running and running[0][0] <= start_s:
            done = heapq.heappop(running)[1]
            if linked[done].end_s > start_s:
                progress.counts["calls cut at the next start"] += 1
                linked[done].end_s = start_s
            ended.append(done)
            own = first <= done < first + len(agent.calls)
            if own and (latest is None or latest == parent or linked[done].end_s >= linked[latest].end_s):
                latest = done
        if subagent_or_none is not None:
            last, _ = _link_agent(subagent_or_none, task, latest, linked, tolerance, progress)
        else:
            last = [task]
            if ended:
                linked[task].needs, ended = sorted(ended), []
            else:
                linked[task].needs = [] if latest is None else [latest]
                progress.counts["calls beside another"] += bool(running)
        for end in last:
            heapq.heappush(running, (_sure_end(linked[end], tolerance), end))
    return ended + [task for _, task in running], following


def _sure_end(linked: Linked, tolerance: float) -> float:
    """From when on a call may be taken to have ended."""
    start_s, duration_s = linked.call.start_s, linked.end_s - linked.call.start_s
    if linked.call.duration_s is None:
        return start_s + _SURE_S * duration_s
    return linked.end_s - min(tolerance, duration_s / 2)


def fitted_s(call: Call, mapping: SessionMapping) -> float:
    """Seconds of a call on the reference server, from its tokens."""
    tokens = (
        call.new_tokens * mapping.s_per_1k_new
        + call.output_tokens * mapping.s_per_1k_output
        + call.input_tokens * mapping.s_per_1k_context
    )
    return max(mapping.base_s + tokens / 1000, MIN_FITTED_S)


class SessionsToWorkload:
    """Takes sessions one by one and keeps their tasks alone."""

    def __init__(self, mapping: SessionMapping, progress: Progress) -> None:
        self.mapping, self.progress = mapping, progress
        self.workflows = Accumulator()

    def add(self, session: Session) -> None:
        """Map a session to its workflows; one without calls is counted, and left out."""
        counts = self.progress.counts
        if not session.agent.calls:
            counts["sessions without calls"] += 1
            return
        linked = link(session, self.mapping, self.progress)
        number = counts["sessions"]
        by_workflow: dict[int, list[int]] = {}
        for task, item in enumerate(linked):
            by_workflow.setdefault(item.call.turn if self.mapping.unit == "turn" else 0, []).append(task)
        for tasks in by_workflow.values():
            self._add_workflow(session.start_s, number, linked, tasks)
        counts["sessions"] += 1
        counts["turns"] += len({item.call.turn for item in linked})
        counts["calls"] += len(linked)
        counts["subagents"] += _count_subagents(session.agent)
        counts["input tokens"] += sum(item.call.input_tokens for item in linked)
        counts["new input tokens"] += sum(item.call.new_tokens for item in linked)
        counts["output tokens"] += sum(item.call.output_tokens for item in linked)

    def _add_workflow(self, start_s: float, number: int, linked: list[Linked], tasks: list[int]) -> None:
        """Add those tasks of a session that make one workflow; what they need of other workflows is left out."""
        mapping, counts = self.mapping, self.progress.counts
        index = {task: i for i, task in enumerate(tasks)}
        arrival_s = min(linked[task].call.start_s for task in tasks)
        compute, memory, output, delay = [], [], [], []
        edges: list[tuple[int, int]] = []
        for i, task in enumerate(tasks):
            item, call = linked[task], linked[task].call
            recorded = mapping.duration == "recorded"
            took_s = item.end_s - call.start_s if recorded else fitted_s(call, mapping)
            cache_gb = (call.input_tokens + call.output_tokens) * mapping.kv_mb_per_token / 1000
            needs = [need for need in item.needs if need in index]
            gap_s = call.start_s - max((linked[need].end_s for need in needs), default=arrival_s)
            thought = bool(needs) and call.turn > max(linked[need].call.turn for need in needs)
            cap_s = mapping.think_gap_cap_s if thought else mapping.tool_gap_cap_s
            if cap_s is not None and gap_s > cap_s:
                counts["gaps cut to their cap"] += 1
                gap_s = cap_s
            needed_gb = mapping.weights_gb + cache_gb
            if mapping.max_memory_gb is not None and needed_gb > mapping.max_memory_gb:
                counts["calls clipped to max_memory_gb"] += 1
                needed_gb, cache_gb = mapping.max_memory_gb, min(cache_gb, mapping.max_memory_gb)
            compute.append(took_s * mapping.reference_gflops)
            memory.append(needed_gb)
            output.append(cache_gb)
            delay.append(gap_s)
            edges += [(index[need], i) for need in needs]
        columns = {"compute_gflop": compute, "memory_gb": memory, "output_gb": output, "delay_s": delay}
        self.workflows.add(start_s + arrival_s, number, columns, sorted(edges))


def _count_subagents(agent: Agent) -> int:
    return sum(1 + _count_subagents(subagent) for subagent in agent.subagents)


def read_sessions(
    sources: Sequence[Path],
    mapping: SessionMapping,
    progress: Progress,
    record_type: type[read.R],
    session_of: Callable[[read.R, str, Progress], Session],
) -> Workload:
    """Read formats that have a session a record, one record at a time.

    Args:
        sources: files and folders.
        mapping: how sessions become workflows.
        progress: counts, and decides what becomes of a bad record.
        record_type: the model of a record.
        session_of: makes a session of a record, whose place it is told.
    """
    out = SessionsToWorkload(mapping, progress)
    for path in read.find_files(sources):
        for where, record in read.records(path):
            try:
                session = session_of(read.checked(record_type, record, where), where, progress)
            except UserError as error:
                progress.bad(error)
            else:
                out.add(session)
            progress.advance(str(path))
    return out.workflows.workload(", ".join(map(str, sources)), from_zero=True)
