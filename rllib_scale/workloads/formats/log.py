"""Calls of any sessions and agents in any order; what they have in common is known when all were read."""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rllib_scale.workloads.formats.calls import Agent, Block, Call, last_whole, read_before
from rllib_scale.workloads.formats.records import count_beside

if TYPE_CHECKING:
    from rllib_scale.workloads.formats.sessions import Sessions

MAX_NESTING = 50
"""Agents above one another; what is deeper is a subagent of the main one."""


@dataclass(slots=True, eq=False)
class _Entry:
    call: Call
    at: str
    trace: str
    ends_turn: bool
    begins_turn: bool
    block: Block | None
    is_cached: bool
    after_s: float | None
    vendor: str


class Log:
    """Calls with times of one clock, which become sessions at the end."""

    def __init__(self) -> None:
        self._entries: dict[str, list[_Entry]] = {}
        self._above: dict[str, tuple[str | None, bool]] = {}

    def place(self, name: str, above: str | None, is_agent: bool = True) -> None:
        """Say what a name is below; one that is no agent counts as the agent above it."""
        self._above[name] = above, is_agent

    def add(
        self,
        session: str,
        call: Call,
        at: str = "",
        trace: str = "",
        ends_turn: bool = False,
        begins_turn: bool = False,
        block: Block | None = None,
        is_cached: bool = False,
        after_s: float | None = None,
        vendor: str = "",
    ) -> None:
        """Add a call.

        Args:
            session: its name.
            call: its `turn` is set at the end.
            at: the name that called, see `place`; a name without a place is the main agent.
            trace: calls of the main agent under another trace belong to another turn.
            ends_turn: the next call of the main agent belongs to another turn.
            begins_turn: this call belongs to another turn than the one before it.
            block: the last one of its prompt, by `Blocks.add`, even if it is not full.
            is_cached: the call's new tokens are known; else blocks that an earlier prompt had are not new.
            after_s: in place of its start: the time since the end of the call of its session that was added before.
            vendor: calls of one vendor count their cached tokens alike.
        """
        if block is not None:
            call.block = last_whole(block, call.input_tokens)
        entry = _Entry(call, at, trace, ends_turn, begins_turn, block, is_cached, after_s, vendor)
        self._entries.setdefault(session, []).append(entry)

    def __contains__(self, session: str) -> bool:
        """Whether a session has a call."""
        return session in self._entries

    def into(self, sessions: Sessions) -> None:
        """Add all sessions, in the order of their first records."""
        counts = sessions.progress.counts
        self._count_alike(counts)
        self._play(sessions)
        for entries in self._entries.values():
            entries.sort(key=lambda entry: entry.call.start_s)
            self._leave_out_layers(entries, counts)
            start_s = next((entry.call.start_s for entry in entries if entry.call.is_work), 0.0)
            for entry in entries:
                entry.call.start_s -= start_s
            sessions.add(self._tree(entries), start_s)

    def _count_alike(self, counts: Counter[str]) -> None:
        """Where most calls of a vendor have cached tokens that can only be beside the prompt, those of all are."""
        cached: dict[str, list[Call]] = {}
        for entry in (entry for entries in self._entries.values() for entry in entries):
            if entry.call.is_work and entry.call.cached:
                cached.setdefault(entry.vendor, []).append(entry.call)
        for calls in cached.values():
            if 2 * sum(call.is_beside for call in calls) > len(calls):
                for call in calls:
                    if not call.is_beside:
                        count_beside(call, counts)

    def _play(self, sessions: Sessions) -> None:
        """Go through all calls in the order of their starts: when each began, and which of its blocks are new."""
        if not any(entry.block or entry.after_s is not None for each in self._entries.values() for entry in each):
            return
        following: dict[_Entry, _Entry] = {}
        number: dict[_Entry, int] = {}
        due: list[tuple[float, int, _Entry]] = []
        for entries in self._entries.values():
            for before, entry in zip([None, *entries], entries, strict=False):
                number[entry] = len(number)
                if before is not None and entry.after_s is not None:
                    following[before] = entry
                else:
                    due.append((entry.call.start_s, number[entry], entry))
        heapq.heapify(due)
        while due:
            start_s, _, entry = heapq.heappop(due)
            call = entry.call
            if call.is_work and entry.block is not None:
                known = read_before(entry.block)
                if not entry.is_cached:
                    call.new_tokens = max(0, call.input_tokens - known)
            if (then := following.get(entry)) is not None:
                then.call.start_s = start_s + (then.after_s or 0.0)
                then.call.start_s += (call.duration_s or sessions.mapping.fitted_s(call)) if call.is_work else 0.0
                heapq.heappush(due, (then.call.start_s, number[then], then))

    def _leave_out_layers(self, entries: list[_Entry], counts: Counter[str]) -> None:
        """Keep only the innermost record of a call that several nested layers recorded.

        It is one call if it ran at the same time, and the record above has its tokens, those of all calls inside, or
        none. The same tokens one after the other are two calls.
        """
        own = {
            entry.at: entry for entry in entries if entry.call.is_work and not self._above.get(entry.at, ("", True))[1]
        }
        depth: dict[_Entry, int] = {}
        outer: dict[_Entry, _Entry] = {}
        for entry in own.values():
            name, steps = self._above[entry.at][0], 1
            while name is not None and steps < MAX_NESTING:
                above = own.get(name)
                if above is not None and entry not in outer and above is not entry and _overlap(above.call, entry.call):
                    outer[entry] = above
                name, steps = self._above.get(name, (None, True))[0], steps + 1
            depth[entry] = steps
        inside: dict[_Entry, list[_Entry]] = {}
        for entry in sorted(depth, key=lambda entry: -depth[entry]):
            parts = [part.call for part in inside.get(entry, ())]
            sums = sum(part.input_tokens for part in parts), sum(part.output_tokens for part in parts)
            tokens = entry.call.input_tokens, entry.call.output_tokens
            same = [part for part in parts if (part.input_tokens, part.output_tokens) == tokens]
            is_layer = bool(parts) and (bool(same) or tokens in ((0, 0), sums))
            if is_layer:
                entry.call.is_work = False
                counts["calls that a layer above recorded, too"] += 1
                for part in same:
                    part.new_tokens = min(part.new_tokens, entry.call.new_tokens)
            elif parts:
                counts["calls inside another call, kept"] += len(parts)
            if entry in outer:
                inside.setdefault(outer[entry], []).extend(inside.get(entry, ()) if is_layer else [entry])

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
        """The main agent, the first of each trace with none above; all others are its subagents at some depth."""
        made: dict[str, Agent] = {}
        above: dict[str, list[str]] = {}
        of_agent: dict[str, list[_Entry]] = {}
        tops: dict[str, str] = {}
        for entry in sorted(entries, key=lambda entry: not entry.call.is_work):
            *line, main = self._agents_from(entry.at)
            top = tops.setdefault(entry.trace, line[-1] if line else main)
            own, *higher = (main if name == top else name for name in (*line, main))
            of_agent.setdefault(own, []).append(entry)
            if entry.call.is_work:
                made.setdefault(own, Agent([])).calls.append(entry.call)
                above.setdefault(own, higher)
        if not made:
            return Agent([])
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
        starts_s = _number_turns(of_agent[main])
        for name, agent in made.items():
            if name != main:
                made[parent[name] or main].subagents.append(agent)
                for call in agent.calls:
                    call.turn = made[main].calls[max(0, bisect.bisect_right(starts_s, call.start_s) - 1)].turn
        return made[main]


def _number_turns(entries: list[_Entry]) -> list[float]:
    """Set the turns of a main agent's calls, in which those that are left out count, too; gives the starts [s]."""
    starts_s = list[float]()
    turn, is_other, before = 0, False, None
    for entry in sorted(entries, key=lambda entry: entry.call.start_s):
        if before is not None:
            is_other |= before.ends_turn or before.trace != entry.trace or entry.begins_turn
        before = entry
        if entry.call.is_work:
            turn += is_other and bool(starts_s)
            is_other = False
            entry.call.turn = turn
            starts_s.append(entry.call.start_s)
    return starts_s


def _overlap(outer: Call, inner: Call) -> bool:
    """Whether a call began while another one ran."""
    end_s = outer.start_s + (outer.duration_s or 0.0)
    return inner.start_s < end_s or inner.start_s == outer.start_s
