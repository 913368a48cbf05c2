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

import bisect
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from rllib_scale.config.base import Model, NonNegative, Positive
from rllib_scale.workloads.formats.accumulator import TASK_FIELDS, Accumulator
from rllib_scale.workloads.formats.base import Format, Progress, Undated
from rllib_scale.workloads.formats.sources import R, read_json
from rllib_scale.workloads.model import Workload

MIN_FITTED_S = 1e-3
"""Shortest fitted duration, also if all constants of the fit are 0."""
MAX_NESTING = 50
"""Agents above one another; what is deeper is a subagent of the main one."""
MIN_UNKNOWN_SHARE = 0.1
"""A call without a recorded duration ran for at least this share of the fitted one."""


class SessionMapping(Model):
    """How recorded calls become tasks."""

    unit: Literal["turn", "session"] = Field(
        default="turn",
        description="a workflow is one turn of a user, or a whole session with a person's gaps as release delays",
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
    overlapping_turns: Literal["after", "as-recorded"] = Field(
        default="after",
        description="a turn that began before the previous one of its session had ended: played after it, or when it "
        "began [assumed: a person reads the answer first]",
    )
    clock_tolerance_s: NonNegative = Field(
        default=1.0, description="overlap of two calls that the clocks' resolution explains [kv-cache-tester: whole s]"
    )

    def fitted_s(self, call: Call) -> float:
        """Duration of a call on the reference server, from its tokens [s]."""
        tokens = (
            call.new_tokens * self.s_per_1k_new
            + call.output_tokens * self.s_per_1k_output
            + call.input_tokens * self.s_per_1k_context
        )
        return max(self.base_s + tokens / 1000, MIN_FITTED_S)


class UndatedSessions(Undated, SessionMapping):
    """How recorded calls without a common clock become tasks."""


@dataclass(slots=True, eq=False)
class Block:
    """A block of prompts with all that is before it.

    Attributes:
        above: the block before it.
        tokens: of prompts up to its end.
    """

    above: Block | None
    tokens: int

    def common(self, other: Block) -> int:
        """Tokens with which prompts through this block and through another one begin alike."""
        a: Block | None = self
        b: Block | None = other
        while a is not b:
            if b is None or (a is not None and a.tokens > b.tokens):
                assert a is not None
                a = a.above
            elif a is None or b.tokens > a.tokens:
                b = b.above
            else:
                a, b = a.above, b.above
        return a.tokens if a is not None else 0


class Blocks:
    """The blocks of all prompts so far, by their hashes."""

    def __init__(self) -> None:
        self._found: dict[tuple[Block | None, int], Block] = {}

    def add(self, hashes: Sequence[int], size: int, tokens: int) -> tuple[Block | None, int]:
        """Add a prompt: its last whole block, and how many of its tokens no earlier prompt began with.

        Args:
            hashes: of its blocks, of which the last may be partly filled.
            size: tokens of a whole block.
            tokens: of the prompt.
        """
        at: Block | None = None
        last, known = at, 0
        for number, name in enumerate(hashes, 1):
            block = self._found.get((at, name))
            if block is None:
                block = self._found[at, name] = Block(at, number * size)
            else:
                known = number
            at = block
            if block.tokens <= tokens:
                last = block
        return last, max(0, tokens - known * size)


@dataclass(slots=True)
class Call:
    """One answer of a language model.

    Attributes:
        start_s: when it began [s], from the start of the session.
        duration_s: its duration [s], above 0; None if it was not recorded.
        input_tokens: the whole prompt, cached or not.
        output_tokens: of the answer.
        new_tokens: of the prompt that were in no cache.
        turn: the user's turn that it belongs to, counted from 0.
        end_s: when it ended [s], estimated by `Sessions`.
        needs: the tasks that it waited for, by their numbers in the session; set by `Sessions`.
        block: the last whole block of its prompt, where the trace has hashes of blocks.
    """

    start_s: float
    duration_s: float | None
    input_tokens: int
    output_tokens: int
    new_tokens: int
    turn: int
    end_s: float = 0.0
    needs: list[int] = field(default_factory=list)
    block: Block | None = None

    def known_to(self, before: Call | None) -> int:
        """Tokens of its prompt that the call before it of its agent computed, as far as blocks, or lengths, tell.

        A prompt that goes on from the one before holds that prompt and its answer.
        """
        if before is None:
            return 0
        goes_on = self.input_tokens >= before.input_tokens
        if self.block is not None and before.block is not None:
            common = self.block.common(before.block)
            if common < before.block.tokens or not goes_on:
                return common
        return min(self.input_tokens, before.input_tokens + before.output_tokens) if goes_on else 0


@dataclass(slots=True)
class Agent:
    """The calls of an agent in the order of their starts, and the subagents that it started.

    `prefix`: tokens of the tools and of the system prompt that begin each of its prompts, where they are recorded.
    """

    calls: list[Call]
    subagents: list[Agent] = field(default_factory=list)
    prefix: tuple[int, int] = (0, 0)

    def call(
        self,
        start_s: float,
        duration_s: float | None,
        prompt: int,
        answer: int,
        turn: int,
        block: Block | None = None,
    ) -> None:
        """Add a call by its times [s] and tokens, where nobody recorded what was in a cache.

        Without blocks, a shorter prompt than the one before is a different one: none of it is assumed to be cached.
        """
        call = Call(start_s, duration_s, prompt, answer, prompt, turn, block=block)
        call.new_tokens -= call.known_to(self.calls[-1] if self.calls else None)
        self.calls.append(call)

    def start(self, subagent: Agent, counts: Counter[str]) -> None:
        """Add a subagent; one without calls is only counted."""
        if subagent.calls:
            self.subagents.append(subagent)
        else:
            counts["subagents without calls"] += 1

    def all_calls(self) -> Iterator[Call]:
        """Its calls, then those of its subagents: the order of the tasks."""
        yield from self.calls
        for agent in self.subagents:
            yield from agent.all_calls()

    def all_agents(self) -> Iterator[Agent]:
        """Itself, then its subagents at any depth: the order of `all_calls`."""
        yield self
        for agent in self.subagents:
            yield from agent.all_agents()


@dataclass(slots=True)
class _Entry:
    call: Call
    at: str
    trace: str
    ends_turn: bool
    begins_turn: bool


class Log:
    """Calls of any sessions and agents in any order, with times of one clock; they become sessions at the end."""

    def __init__(self) -> None:
        self._entries: dict[str, list[_Entry]] = {}
        self._above: dict[str, tuple[str | None, bool]] = {}

    def place(self, name: str, above: str | None, is_agent: bool = True) -> None:
        """Say what a name is below; one that is no agent stands for the agent above it."""
        self._above[name] = above, is_agent

    def add(
        self,
        session: str,
        call: Call,
        at: str = "",
        trace: str = "",
        ends_turn: bool = False,
        begins_turn: bool = False,
    ) -> None:
        """Add a call.

        Args:
            session: its name.
            call: its `turn` is set at the end.
            at: the name that called, see `place`; a name without a place is the main agent.
            trace: calls of the main agent under another trace belong to another turn.
            ends_turn: the next call of the main agent belongs to another turn.
            begins_turn: this call belongs to another turn than the one before it.
        """
        self._entries.setdefault(session, []).append(_Entry(call, at, trace, ends_turn, begins_turn))

    def last(self, session: str) -> Call | None:
        """The call of a session that was added last."""
        return self._entries[session][-1].call if session in self._entries else None

    def into(self, sessions: Sessions) -> None:
        """Add all sessions, in the order of their first records."""
        for entries in self._entries.values():
            entries.sort(key=lambda entry: entry.call.start_s)
            start_s = entries[0].call.start_s
            for entry in entries:
                entry.call.start_s -= start_s
            sessions.add(self._tree(entries), start_s)

    def _agents_from(self, name: str | None) -> Iterator[str]:
        """The agents from a name upwards, in a few steps, as names may form a circle; the main one is the last."""
        for _ in range(MAX_NESTING):
            if name is None:
                break
            above, is_agent = self._above.get(name, (None, False))
            if is_agent:
                yield name
            name = above
        yield ""

    def _tree(self, entries: list[_Entry]) -> Agent:
        """The main agent, the first of each trace with nobody above; all others are its subagents at some depth."""
        made: dict[str, Agent] = {}
        above: dict[str, list[str]] = {}
        of_agent: dict[str, list[_Entry]] = {}
        tops: dict[str, str] = {}
        for entry in entries:
            *line, main = self._agents_from(entry.at)
            top = tops.setdefault(entry.trace, line[-1] if line else main)
            own, *higher = (main if name == top else name for name in (*line, main))
            made.setdefault(own, Agent([])).calls.append(entry.call)
            above.setdefault(own, higher)
            of_agent.setdefault(own, []).append(entry)
        parent = {
            name: next((each for each in higher if each in made and each != name), None)
            for name, higher in above.items()
        }
        for name in made:  # a circle of callers is cut where it is met, and so is a very long line of them
            seen, at = [name], parent[name]
            while at is not None and at not in seen and len(seen) <= MAX_NESTING:
                seen.append(at)
                at = parent[at]
            if at is not None:
                parent[name] = None
        main = next(name for name in made if parent[name] is None)
        starts_s, turn = [], 0
        for before, entry in zip([None, *of_agent[main]], of_agent[main], strict=False):
            is_other = before is not None and (before.ends_turn or before.trace != entry.trace)
            turn += before is not None and (is_other or entry.begins_turn)
            entry.call.turn = turn
            starts_s.append(entry.call.start_s)
        for name, agent in made.items():
            if name != main:
                made[parent[name] or main].subagents.append(agent)
                for call in agent.calls:
                    call.turn = made[main].calls[max(0, bisect.bisect_right(starts_s, call.start_s) - 1)].turn
        return made[main]


class Sessions:
    """Collects sessions one by one and keeps only their tasks; `blocks` are those that the sessions share."""

    def __init__(self, mapping: Any, progress: Progress) -> None:
        self.mapping, self.progress, self.blocks = mapping, progress, Blocks()
        self.workflows = Accumulator()

    def add(self, agent: Agent, start_s: float = 0.0) -> None:
        """Add the workflows of a session that began at `start_s` [s]; one without calls is only counted."""
        counts = self.progress.counts
        if not agent.calls:
            counts["sessions without calls"] += 1
            return
        calls = self.linked(agent)
        number = counts["sessions"]
        by_workflow: dict[int, list[int]] = {}
        for task, call in enumerate(calls):
            by_workflow.setdefault(call.turn if self.mapping.unit == "turn" else 0, []).append(task)
        for tasks in by_workflow.values():
            self._add_workflow(start_s, number, calls, tasks)
        counts["sessions"] += 1
        counts["turns"] += len({call.turn for call in calls})
        counts["calls"] += len(calls)
        counts["subagents"] += sum(1 for _ in agent.all_agents()) - 1
        counts["input tokens"] += sum(call.input_tokens for call in calls)
        counts["new input tokens"] += sum(call.new_tokens for call in calls)
        counts["output tokens"] += sum(call.output_tokens for call in calls)

    def add_dated(self, calls: Sequence[Call]) -> None:
        """Add a session without subagents whose calls count from a common date, not from the start of the session."""
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

    def add(self, agent: Agent, start_s: float = 0.0) -> None:
        """Add a session that began at `start_s` [s]; one without calls is left out."""
        if agent.calls:
            self.found.append(RecordedSession(start_s, self.linked(agent), list(agent.all_agents())))


def read_calls(
    model: type[R], add: Callable[[R, str, Log, Sessions], None], sources: Sequence[Path], sessions: Sessions
) -> None:
    """Read a format whose records are calls, or groups of them; `add(record, where, log, sessions)` adds one."""
    log = Log()
    read_json(sources, model, lambda record, where: add(record, where, log, sessions), sessions.progress)
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
