"""Which held call goes, by the text of `simulator/replicas/release.py`, counted anew at each question."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

from reference.gate import Gate

if TYPE_CHECKING:
    from reference.replica import Call


class ReleasingGate(Gate):
    """A gate behind which an index says who goes.

    Args:
        *of: see `Gate`.
        gate: of the terms of the gate: seconds of prefill, the same by the held calls, calls, the agent is active, 1,
            held calls, waited, working set, prompt.
        weights: of the terms of a call, then those of the fleet.
    """

    def __init__(self, *of: Any, gate: list[float], weights: list[float]) -> None:
        super().__init__(*of)
        self.gate, self.time = gate, 0.0
        self.of_call, self.of_fleet = weights[:8], weights[8:]
        self.overdue: Call | None = None
        self.reserved = set[int]()
        self.answered: dict[int, float] = {}  # sessions: last answer, else the start
        self.homes: dict[tuple[int, int], int] = {}
        self.asked_about = self.refused = 0

    def begin(self, session: int, time: float) -> None:
        self.answered[session] = time

    def send(self, call: Call, at: int, time: float) -> None:
        super().send(call, at, time)
        if call is self.overdue:
            self.overdue = None
        self.homes[call.session, call.agent] = at

    def end(self, call: Call, until: float) -> bool:
        self.answered[call.session] = call.end
        return super().end(call, until)

    def passes(self, call: Call, at: int) -> bool:
        if self.settings.gate == 0:
            return True
        if call is self.overdue:
            return super().passes(call, at)
        facts, hit, agent = (
            self.replicas[at].facts,
            self.known[at].found(call),
            self.agents.get((call.session, call.agent)),
        )
        is_here, held = agent is not None and agent.at == at, log(1 + len(self.held) / len(self.replicas))
        if at in self.reserved and self.held and not is_here:
            return False
        size, left, memory = int(facts.kv_tokens), call.target - hit, self.memory()
        new = log(1 + facts.prefill_s * left + facts.attention_s * left * (hit + left / 2))
        calls = len(self.replicas[at].running) + len(self.replicas[at].waiting)
        active = sum(self.count(other) for other in range(len(self.replicas)))
        terms = [new, new * held, log(1 + calls), float(is_here), 1.0, held, log(1 + self.time - call.asked)]
        terms += [active / memory - 1, 10 * call.prompt / size]
        room = 1.0 if is_here else self.settings.gate - self.count(at, (call, call.prompt)) / size
        return room + self.learned() * sum(weight * term for weight, term in zip(self.gate, terms, strict=True)) >= 0

    def learned(self) -> float:
        """How much the weights count: from 0 at .9 of the tokens that the gate allows to 1 at all of them."""
        if self.settings.gate == 0:
            return 1.0
        active = sum(self.count(at) for at in range(len(self.replicas)))
        return min(1.0, max(0.0, (active / (self.settings.gate * self.memory()) - 0.9) / 0.1))

    def left(self, call: Call, at: int) -> float:
        """Share of a replica's memory that the gate leaves beside a call."""
        return self.settings.gate - self.count(at, (call, call.prompt)) / int(self.replicas[at].facts.kv_tokens)

    def is_here(self, call: Call, at: int) -> bool:
        agent = self.agents.get((call.session, call.agent))
        return agent is not None and agent.at == at

    def memory(self) -> int:
        return sum(int(replica.facts.kv_tokens) for replica in self.replicas)

    def ask(self, call: Call, time: float) -> None:
        self.time = time
        if self.held and (call.session, call.agent) not in self.agents:
            call.need = self.least(call)
            self.held.append(call)
        elif not self.offer(call, time):
            self.held.append(call)
        self.offer_held(time)

    def least(self, call: Call) -> int:
        return min(call.target - replica.found(call) for replica in self.known)

    def index(self, call: Call, time: float) -> float:
        replicas, memory = len(self.replicas), self.memory()
        facts, room, load, hit = self.replicas[0].facts, 0.0, 0, 0
        home = self.homes.get((call.session, call.agent))
        if home is not None:
            replica = self.replicas[home]
            facts, load, hit = replica.facts, len(replica.running) + len(replica.waiting), self.known[home].found(call)
            agent = self.agents.get((call.session, call.agent))
            tokens, size = self.count(home, (call, call.prompt)), int(facts.kv_tokens)
            is_here = agent is not None and agent.at == home
            room = 1.0 if is_here else max(-1.0, self.settings.gate - tokens / size)
        left = call.target - hit
        seconds = facts.prefill_s * left + facts.attention_s * left * (hit + left / 2)
        answered = max(0.0, time - self.answered[call.session])
        terms = [10 * call.prompt * replicas / memory, log(1 + seconds), log(1 + time - call.asked), log(1 + answered)]
        ahead = (time - call.asked) / 60 - self.settings.k * call.need / 1e5
        terms += [room, log(1 + load), float(home is None), ahead]
        calls = sum(len(replica.running) + len(replica.waiting) for replica in self.replicas)
        active = sum(self.count(at) for at in range(replicas))
        of_fleet = [1.0, log(1 + len(self.held) / replicas), active / memory - 1, log(1 + calls / replicas)]
        own = sum(weight * term for weight, term in zip(self.of_call, terms, strict=True))
        return own + sum(weight * term for weight, term in zip(self.of_fleet, of_fleet, strict=True))

    def offer_held(self, time: float) -> None:
        self.time = time
        while self.held and self.release(time):
            pass

    def release(self, time: float) -> bool:
        """Whether a held call went."""
        idle = [at for at, replica in enumerate(self.replicas) if replica.is_idle()]
        self.overdue, after = None, self.settings.head_after_s
        self.reserved.clear()
        overdue = [call for call in self.held if after is not None and time - call.asked > after]
        for call in overdue[: len(self.replicas)] if self.settings.gate > 0 else []:
            left = {at: 1.0 if at in idle else self.left(call, at) for at in range(len(self.replicas))}
            left |= {at: 1.0 for at in left if self.is_here(call, at)}
            fitting = [at for at in left if self.fits(call, at) and at not in self.reserved]
            if any(left[at] >= 0 for at in fitting):
                self.overdue = call
                assert self.offer(call, time)
                self.held.remove(call)
                self.asked_about += 1
                return True
            if fitting:
                self.reserved.add(max(fitting, key=lambda at: left[at]))
        candidates: list[Call] = []
        must = False
        line = self.line(time)
        for call in line if idle else line[:64]:
            fitting = [at for at in range(len(self.replicas)) if self.fits(call, at)]
            beside = any(at in idle for at in fitting)
            if beside or any(self.passes(call, at) for at in fitting):
                candidates.append(call)
                call.need = self.least(call)
                must = must or beside
            if len(candidates) == 16:
                break
        if not candidates:
            return False
        self.asked_about += 1
        best = max(candidates, key=lambda call: self.index(call, time))
        if not must and self.learned() > 0 and self.index(best, time) < 0:
            self.refused += 1
            return False
        assert self.offer(best, time)
        self.held.remove(best)
        return True
