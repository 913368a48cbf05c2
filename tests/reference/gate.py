"""The gate in front of replicas and the line of the calls that it holds, by the text, counted anew at each question.

An agent is away, running at a replica (a call sent and unanswered) or idle there (since its last answer, for a time).
Running and idle agents count at their replica, in unique tokens. After every send and every end there, while the sum
exceeds the gate, the agent that has been idle longest becomes away. A call whose agent is still active at a replica
passes there; any other needs room. None is held beside an idle replica that it fits. Held calls are offered after an
end, after an agent has been idle long enough, and after a send that makes room: agents become away, or the agent counts
less where it was.

What a router knows of the caches decides what it believes that a call needs: the caches, the caches as they were when
it read them last, or its own memory. That is a cache for each replica, in which a call is computed as it is sent, and
ends at once; a router that has nothing else does not see how long an answer is, so that an idle agent has its prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reference.replica import Call, Replica


@dataclass(frozen=True)
class GateSettings:
    gate: float = 0.0
    """Share of a replica's memory; 0: none is held."""
    active_for_s: float = 0.0
    ends_told: bool = False
    k: float = 0.0
    """Minutes of waiting that 100,000 tokens of prefill are worth."""
    head_after_s: float | None = None
    offers: int = 4
    caches: float | str = "exact"
    """What is known: exact, own, or as it was when it was read last, every so many seconds."""


@dataclass(eq=False)
class Agent:
    """One that is not away, as of the last send or end of its calls."""

    at: int
    call: Call
    tokens: int
    unanswered: int = 0
    idle_until: float = 0.0


class Gate:
    """What counts where, and who is held.

    Args:
        replicas: in front of which it stands.
        settings: of the gate and the line.
        prefers: replicas for a call, the best one first, of those that are open to it.
        see: is shown all replicas before each call is sent.
    """

    def __init__(
        self,
        replicas: list[Replica],
        settings: GateSettings,
        prefers: Callable[[Gate, Call, list[int]], list[int]],
        see: Callable[[list[Replica], Call], None],
    ) -> None:
        self.replicas, self.settings, self.prefers, self.see = replicas, settings, prefers, see
        self.agents: dict[tuple[int, int], Agent] = {}
        self.held: list[Call] = []  # in the order in which they asked
        self.made_room = False  # a send has, since held calls were offered last
        self.counted: list[tuple[float, int]] = []  # times of events, and what had counted at all replicas until then
        self.known = replicas if settings.caches == "exact" else deepcopy(replicas)
        self.reads = float("inf") if isinstance(settings.caches, str) else settings.caches

    def pass_time(self, until: float) -> None:
        """Read the caches as often as that is due before a time, when the next event is."""
        self.counted.append((until, sum(self.count(at) for at in range(len(self.replicas)))))
        while self.reads < until:
            self.known = deepcopy(self.replicas)
            assert isinstance(self.settings.caches, float)
            self.reads += self.settings.caches

    def count(self, at: int, *more: tuple[Call, int]) -> int:
        """Unique tokens of the agents that count at a replica, and of more contexts beside them."""
        contexts = [(agent.call, agent.tokens) for agent in self.agents.values() if agent.at == at] + list(more)
        shared = dict[int, tuple[int, int]]()
        for call, _ in contexts:
            shared |= self.replicas[at].prefixes_of(call)
        own = sum(tokens - call.prefix_tokens for call, tokens in contexts)
        return own + sum(end - begin for begin, end in shared.values())

    def passes(self, call: Call, at: int) -> bool:
        if self.settings.gate == 0:
            return True
        agent = self.agents.get((call.session, call.agent))
        if agent is not None and agent.at == at:
            return True
        return self.count(at, (call, call.prompt)) <= self.settings.gate * self.replicas[at].facts.kv_tokens

    def pause(self, at: int) -> bool:
        """Whether agents become away."""
        has_paused = False
        while self.settings.gate > 0 and self.count(at) > self.settings.gate * self.replicas[at].facts.kv_tokens:
            idle = [key for key, agent in self.agents.items() if agent.at == at and agent.unanswered == 0]
            if not idle:
                break
            del self.agents[min(idle, key=lambda key: self.agents[key].idle_until)]
            has_paused = True
        return has_paused

    def send(self, call: Call, at: int, time: float) -> None:
        call.replica, call.placed = at, time
        self.see(self.replicas, call)
        replica = self.replicas[at]
        call.new = call.target - replica.found(call)
        if self.settings.caches == "own":
            told = replace(call, computed=0)
            self.known[at].admit(told)
            told.computed = told.target
            self.known[at].leave(told)
        if replica.is_idle():
            replica.clock = time
        replica.waiting.append(call)
        before = self.agents.get((call.session, call.agent))
        counted = 0 if before is None else self.count(before.at)
        unanswered = 1 if before is None else before.unanswered + 1
        self.agents[call.session, call.agent] = Agent(at, call, call.prompt, unanswered)
        has_paused = self.pause(at)
        counts_less = before is not None and self.count(before.at) < counted
        self.made_room |= self.settings.gate > 0 and (has_paused or counts_less)

    def fits(self, call: Call, at: int) -> bool:
        return call.prompt + call.output <= int(self.replicas[at].facts.kv_tokens)

    def offer(self, call: Call, time: float) -> bool:
        """Send a call, or hold it: whether it went."""
        call.need = min(call.target - replica.found(call) for replica in self.known)
        fitting = [at for at in range(len(self.replicas)) if self.fits(call, at)]
        to = self.prefers(self, call, [at for at in fitting if self.passes(call, at)])
        to += [at for at in fitting if self.replicas[at].is_idle()]
        if to:
            self.send(call, to[0], time)
        return bool(to)

    def ask(self, call: Call, time: float) -> None:
        self.made_room = False
        if not self.offer(call, time):
            self.held.append(call)
        elif self.made_room:
            self.offer_held(time)

    def begin(self, session: int, time: float) -> None:
        """A session begins: nobody sees it."""

    def line(self, time: float) -> list[Call]:
        """Held calls in the order of release."""
        after, line = self.settings.head_after_s, list(self.held)
        line.sort(key=lambda call: self.settings.k * call.need / 1e5 - (time - call.asked) / 60)
        head = [call for call in self.held if after is not None and time - call.asked > after]
        return head + [call for call in line if call not in head]

    def offer_held(self, time: float) -> None:
        """At an event; and again, if what goes then makes room."""
        self.made_room = True
        while self.made_room:
            self.made_room = False
            self.offer_first(time)

    def offer_first(self, time: float) -> None:
        line = self.line(time)
        for call in line[: self.settings.offers]:
            if self.offer(call, time):
                self.held.remove(call)
        for call in line[self.settings.offers :]:
            idle = [at for at, replica in enumerate(self.replicas) if replica.is_idle() and self.fits(call, at)]
            if idle:
                self.send(call, idle[0], time)
                self.held.remove(call)

    def end(self, call: Call, until: float) -> bool:
        """A call is answered: whether its agent is idle now, `until` then."""
        agent = self.agents.pop((call.session, call.agent))
        answered = 0 if self.settings.caches == "own" else call.output
        now = Agent(call.replica, call, call.prompt + answered, agent.unanswered - 1, until)
        if now.unanswered > 0 or self.settings.active_for_s > 0:
            self.agents[call.session, call.agent] = now
        self.pause(call.replica)
        return now.unanswered == 0 and self.settings.active_for_s > 0

    def end_session(self, session: int) -> None:
        if self.settings.ends_told:
            self.agents = {key: agent for key, agent in self.agents.items() if key[0] != session}

    def next_wake(self) -> float:
        """A time at which it does something by itself."""
        return float("inf")

    def wake(self, time: float) -> None:
        """Not here."""

    def expire(self, key: tuple[int, int], time: float) -> None:
        agent = self.agents.get(key)
        if agent is not None and agent.unanswered == 0 and agent.idle_until == time:
            del self.agents[key]
            self.offer_held(time)
