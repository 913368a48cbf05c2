"""Replicas of a language model step by step, with lists and dictionaries: slow, and independent of the compiled model.

Everything is counted anew at every step, by the rules in the docstring of `simulator/replicas/service.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reference.gate import Gate, GateSettings
from reference.thunder import ThunderAgent, ThunderSettings


@dataclass(eq=False)
class Call:
    session: int
    number: int
    agent: int
    prefix: int
    prefix_tokens: int
    prompt: int
    output: int
    reusable: int
    asked: float
    row: Any = None
    computed: int = 0
    answered: int = 0
    target: int = 0
    decodes: bool = False
    hit: int | None = None
    admitted: float = 0.0
    first: float | None = None
    end: float = 0.0
    prefilled: int = 0
    preemptions: int = 0
    replica: int = 0
    new: int = 0  # tokens that no cache had when it was sent
    placed: float = 0.0
    need: int = 0  # prefill tokens when it was offered last, where it needs the fewest

    def own_tokens(self) -> int:
        return (self.computed if self.decodes else self.target) - self.prefix_tokens


@dataclass(eq=False)
class Kept:
    """A context of (session, agent), or with key None a prefix that nothing uses."""

    key: tuple[int, int] | None
    prefix: int
    tokens: int
    time: float
    before: int = 0


@dataclass
class Replica:
    facts: Any
    tree: Any
    clock: float = 0.0
    running: list[Call] = field(default_factory=list)
    waiting: list[Call] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)  # the oldest first
    resident: dict[int, int] = field(default_factory=dict)  # prefix -> tokens
    step_ends: float | None = None
    chunks: dict[int, int] = field(default_factory=dict)
    steps: int = 0
    evicted: int = 0
    ended_sessions: set[int] = field(default_factory=set)

    def is_idle(self) -> bool:
        return not self.running and not self.waiting

    def next_event(self) -> float:
        if self.is_idle():
            return float("inf")
        return self.clock if self.step_ends is None else self.step_ends

    def prefixes_of(self, call: Call) -> dict[int, tuple[int, int]]:
        """Prefix -> where it begins and ends in the prompt, the last one first."""
        found, prefix, end = {}, call.prefix, call.prefix_tokens
        while prefix >= 0:
            found[prefix] = int(self.tree[prefix]["before"]), end
            end, prefix = found[prefix][0], int(self.tree[prefix]["above"])
        return found

    def pinned(self) -> int:
        shared = dict[int, tuple[int, int]]()
        for call in self.running:
            shared |= self.prefixes_of(call)
        return sum(call.own_tokens() for call in self.running) + sum(end - begin for begin, end in shared.values())

    def used(self) -> int:
        contexts = sum(kept.tokens for kept in self.kept if kept.key is not None)
        return sum(call.own_tokens() for call in self.running) + contexts + sum(self.resident.values())

    def context_of(self, call: Call) -> Kept | None:
        return next((kept for kept in self.kept if kept.key == (call.session, call.agent)), None)

    def is_used(self, prefix: int) -> bool:
        users = {prefix for call in self.running for prefix in self.prefixes_of(call)}
        users |= {kept.prefix for kept in self.kept if kept.key is not None}
        users |= {int(self.tree[kept]["above"]) for kept in self.resident}
        return prefix in users

    def found(self, call: Call) -> int:
        tokens = max((end for prefix, (_, end) in self.prefixes_of(call).items() if prefix in self.resident), default=0)
        kept = self.context_of(call)
        if kept is not None:
            tokens = max(tokens, min(kept.before + kept.tokens, call.reusable))
        return min(tokens, call.target - 1)

    def make_room(self, tokens: int) -> None:
        while self.used() + tokens > self.facts.kv_tokens:
            kept = self.kept[0]
            if kept.key is None:
                self.kept.pop(0)
                self.evicted += self.resident.pop(kept.prefix)
                self.release(int(self.tree[kept.prefix]["above"]), kept.time)
                continue
            taken = min(kept.tokens, self.used() + tokens - self.facts.kv_tokens)
            kept.tokens -= taken
            self.evicted += taken
            if kept.tokens == 0:
                self.forget(kept)

    def forget(self, kept: Kept) -> None:
        self.kept.remove(kept)
        self.release(kept.prefix, kept.time)

    def release(self, prefix: int, time: float) -> None:
        """What went on from a prefix is gone."""
        if prefix >= 0 and not self.is_used(prefix):
            self.kept.insert(0, Kept(None, prefix, 0, time))

    def leave(self, call: Call) -> None:
        """A call leaves the batch; its context is kept."""
        self.running.remove(call)
        own = call.computed - call.prefix_tokens
        older = self.context_of(call)
        if older is not None:
            if call.prefix >= 0:
                self.running.append(call)  # it still uses its prefix
            self.forget(older)
            if call.prefix >= 0:
                self.running.remove(call)
        if own > 0:
            self.kept.append(Kept((call.session, call.agent), call.prefix, own, self.clock, call.prefix_tokens))
        if call.prefix >= 0 and not self.is_used(call.prefix):
            self.kept.append(Kept(None, call.prefix, 0, self.clock))

    def can_admit(self, call: Call) -> bool:
        decoding = sum(other.decodes for other in self.running)
        needed = self.pinned() + decoding + call.target - call.prefix_tokens
        shared = {prefix for other in self.running for prefix in self.prefixes_of(other)}
        needed += sum(end - begin for prefix, (begin, end) in self.prefixes_of(call).items() if prefix not in shared)
        if self.facts.keep_s > 0 and self.running:
            own = self.context_of(call)
            needed += sum(
                kept.tokens
                for kept in self.kept
                if kept.key is not None and kept is not own and kept.time + self.facts.keep_s > self.clock
            )
        return needed <= self.facts.kv_tokens

    def admit(self, call: Call) -> None:
        hit = self.found(call)
        kept, own = self.context_of(call), self.prefixes_of(call)
        self.kept = [other for other in self.kept if other.key is not None or other.prefix not in own]
        for prefix, (begin, end) in own.items():
            self.resident.setdefault(prefix, end - begin)
        decoding = sum(other.decodes for other in self.running)
        self.running.append(call)
        if kept is not None:
            self.forget(kept)
        call.computed = hit
        if call.hit is None:
            call.hit, call.admitted = hit, self.clock
        self.make_room(decoding)

    def begin_step(self) -> None:
        facts = self.facts
        while self.pinned() + sum(call.decodes for call in self.running) > facts.kv_tokens:
            call = self.running[-1]
            if call.decodes:
                call.target = call.prompt + call.answered
            call.reusable = max(call.reusable, call.computed)
            call.decodes = False
            call.preemptions += 1
            self.leave(call)
            self.waiting.insert(0, call)
        decoding = [call for call in self.running if call.decodes]
        budget = facts.token_budget - len(decoding)
        self.chunks = {}
        for call in self.running:
            if not call.decodes:
                self.chunks[id(call)] = min(call.target - call.computed, budget)
                budget -= self.chunks[id(call)]
        while self.waiting and len(self.running) < facts.max_calls and budget > 0 and self.can_admit(self.waiting[0]):
            call = self.waiting.pop(0)
            self.admit(call)
            self.chunks[id(call)] = min(call.target - call.computed, budget)
            budget -= self.chunks[id(call)]
        reading = facts.step_s + facts.context_s * sum(call.computed for call in decoding)
        computing = 0.0
        for call in self.running:
            for token in range(self.chunks.get(id(call), 0)):
                computing += facts.prefill_s + facts.attention_s * (call.computed + token)
        both = min(reading, computing) * facts.overlap  # is done at the same time
        calls = len(decoding) + sum(chunk > 0 for chunk in self.chunks.values())
        self.steps += 1
        self.step_ends = self.clock + (reading + computing - both + facts.call_s * calls)

    def end_step(self) -> list[Call]:
        assert self.step_ends is not None
        self.clock, self.step_ends = self.step_ends, None
        decoding = [call for call in self.running if call.decodes]
        self.make_room(len(decoding))
        for call in decoding:
            call.computed += 1
            call.answered += 1
        for call in self.running:
            chunk = self.chunks.get(id(call), 0)
            call.computed += chunk
            call.prefilled += chunk
            if not call.decodes and call.computed == call.target:
                call.decodes = True
                call.answered += 1
                call.first = self.clock if call.first is None else call.first
        assert self.used() <= self.facts.kv_tokens
        assert len(self.running) <= self.facts.max_calls
        done = [call for call in self.running if call.decodes and call.answered == call.output]
        for call in done:
            self.leave(call)
        return done


@dataclass
class Session:
    script: int
    number: int
    start: float
    needs: list[int]
    left: int
    agents: dict[int, int] = field(default_factory=dict)


def simulate(
    facts: list[Any],
    scripts: Any,
    starts: Any,
    live: int,
    closed_loop: bool,
    until: float,
    prefers: Callable[[Gate, Call, list[int]], list[int]],
    settings: GateSettings | ThunderSettings,
    see: Callable[[list[Replica], Call], None] = lambda replicas, call: None,
    kind: Callable[..., Gate] = Gate,
) -> tuple[list[Call], Gate | ThunderAgent]:
    """Completed calls in the order of their ends, and the gate as it is then.

    Args:
        facts: of the replicas.
        scripts: of the sessions.
        starts: of the sessions.
        live: so many sessions of a closed loop.
        closed_loop: whether a session that ends is followed by the next one.
        until: end.
        prefers: of the gate, a call and the replicas that are open to it, some of them, the best one first.
        settings: of the gate and of the order of release, or of ThunderAgent, which prefers no replicas.
        see: is shown all replicas before each call is sent.
        kind: of gate.
    """
    replicas = [Replica(each, scripts.tree) for each in facts]
    gate: Gate | ThunderAgent
    if isinstance(settings, ThunderSettings):
        gate = ThunderAgent(replicas, settings, see)
    else:
        gate = kind(replicas, settings, prefers, see)
    expiries: list[tuple[int, int]] = []  # agents
    events: list[tuple[float, int, int]] = []
    sessions: dict[int, Session] = {}
    done: list[Call] = []
    coming = list(range(len(starts)))

    def tasks(script: int) -> Any:
        return scripts.tasks[scripts.first_task[script] : scripts.first_task[script + 1]]

    def following(script: int, number: int) -> Any:
        task = tasks(script)[number]
        return scripts.successors[task["first_next"] : task["end_next"]]

    for _ in range(live if closed_loop else len(starts)):
        if coming:
            number = coming.pop(0)
            heapq.heappush(events, (float(starts[number]["at_s"]), -1, number))
    while True:
        times = [replica.next_event() for replica in replicas]
        event_s, wake_s = events[0][0] if events else np.inf, gate.next_wake()
        if min(event_s, wake_s, *times) > until:
            return done, gate
        gate.pass_time(min(event_s, wake_s, *times))
        if wake_s < event_s and wake_s <= min(times):
            gate.wake(wake_s)
            continue
        if event_s <= min(times):
            time, session, number = heapq.heappop(events)
            if session == -2 and isinstance(gate, Gate):
                gate.expire(expiries[number], time)
                continue
            if session == -1:
                start = starts[number]
                script, skipped = int(start["script"]), int(start["skipped"])
                own = tasks(script)
                gate.begin(number, time)
                sessions[number] = Session(script, number, time, [int(n) for n in own["needs"]], len(own) - skipped)
                for call in range(skipped):
                    for later in following(script, call):
                        sessions[number].needs[later] -= 1
                for call in range(skipped, len(own)):
                    if sessions[number].needs[call] == 0:
                        delay = 0.0 if skipped else float(own[call]["release_s"])
                        heapq.heappush(events, (time + delay, number, call))
                continue
            task = tasks(sessions[session].script)[number]
            facts_of = ("agent", "prefix", "prefix_tokens", "prompt", "output", "reusable")
            call = Call(session, number, *(int(task[key]) for key in facts_of), time)
            call.target = call.prompt
            gate.ask(call, time)
            continue
        replica = replicas[int(np.argmin(times))]
        if replica.step_ends is None:
            replica.begin_step()
            continue
        ended = replica.end_step()
        for call in ended:
            call.end = replica.clock + replica.facts.request_s
            assert call.first is not None
            call.first += replica.facts.request_s
            done.append(call)
            idle_until = call.end + settings.active_for_s
            if gate.end(call, replica.clock if isinstance(gate, ThunderAgent) else idle_until):
                heapq.heappush(events, (idle_until, -2, len(expiries)))
                expiries.append((call.session, call.agent))
            session_of = sessions[call.session]
            session_of.left -= 1
            for later in following(session_of.script, call.number):
                session_of.needs[later] -= 1
                if session_of.needs[later] == 0:
                    task = tasks(session_of.script)[later]
                    due = call.end + float(task["gap_s"])
                    if task["release_s"] >= 0 and not closed_loop:
                        due = max(call.end, session_of.start + float(task["release_s"]))
                    heapq.heappush(events, (due, call.session, int(later)))
            if session_of.left == 0:
                gate.end_session(call.session)
                if closed_loop and coming:
                    following_session = coming.pop(0)
                    begin = max(call.end, float(starts[following_session]["at_s"]))
                    heapq.heappush(events, (begin, -1, following_session))
        if ended:
            gate.offer_held(replica.clock)
