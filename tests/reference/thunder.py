"""ThunderAgent's gate, by the text of its scheduler, counted anew at each question.

Source: ThunderAgent-org/ThunderAgent, ThunderAgent/scheduler/router.py and backend/state.py, in mode `tr`. A program is
an agent. It is reasoning from a request to the next answer, then acting; it is bound to a replica, or paused. Tokens
that programs share count for each of them, as the source never calls what would take them off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reference.replica import Call, Replica


@dataclass(frozen=True)
class ThunderSettings:
    scheduler_interval: float = 5.0
    acting_token_weight: float = 1.0
    use_acting_token_decay: bool = False
    buffer_per_program: int = 100
    resume_timeout: float = 1800.0
    characters_per_token: float = 5.0
    ends_told: bool = False
    active_for_s: float = 0.0


@dataclass(eq=False)
class Program:
    tokens: int = 0
    steps: int = 0
    at: int | None = None
    origin: int | None = None
    is_reasoning: bool = True
    is_marked: bool = False
    acting_since: float = 0.0


class ThunderAgent:
    """Which program is where, who is paused, and which calls wait for that; see `Gate` for the arguments."""

    def __init__(
        self, replicas: list[Replica], settings: ThunderSettings, see: Callable[[list[Replica], Call], None]
    ) -> None:
        self.replicas, self.settings, self.see = replicas, settings, see
        self.programs: dict[tuple[int, int], Program] = {}
        self.paused: dict[tuple[int, int], int] = {}  # -> tokens when it was paused
        self.held: list[Call] = []  # in the order in which they asked
        self.ticks = 1
        self.forced = 0  # programs
        self.ratio = 5.0  # characters of a token, as far as the router knows

    def on(self, at: int) -> list[Program]:
        return [program for program in self.programs.values() if program.at == at]

    def used(self, at: int, time: float, decays: bool) -> int:
        reasoning = sum(program.tokens for program in self.on(at) if program.is_reasoning)
        acting = sum(
            program.tokens * (2.0 ** (program.acting_since - time) if decays else 1.0)
            for program in self.on(at)
            if not program.is_reasoning
        )
        return int(reasoning + self.settings.acting_token_weight * acting)

    def remaining(self, at: int, time: float, decays: bool = False) -> int:
        buffers = len(self.on(at)) * self.settings.buffer_per_program
        return int(self.replicas[at].facts.kv_tokens) - (self.used(at, time, decays) + buffers)

    def begin(self, session: int, time: float) -> None:
        """A session begins: nobody sees it."""

    def ask(self, call: Call, time: float) -> None:
        key = call.session, call.agent
        program = self.programs.setdefault(key, Program())
        program.steps += 1
        characters = call.prompt * self.settings.characters_per_token
        is_known = self.ratio == self.settings.characters_per_token
        program.tokens = call.prompt if is_known else int(characters / self.ratio)
        program.is_reasoning = True
        if program.at is None and key not in self.paused:  # it is new
            needed = program.tokens + self.settings.buffer_per_program
            fitting = [at for at in range(len(self.replicas)) if self.remaining(at, time) >= needed]
            if self.paused or not fitting:
                self.pause(key)
            else:
                program.at = min(fitting, key=lambda at: self.used(at, time, False))
        if program.at is None:
            self.held.append(call)
        else:
            self.send(call, program.at, time)

    def send(self, call: Call, at: int, time: float) -> None:
        call.replica, call.placed = at, time
        self.see(self.replicas, call)
        replica = self.replicas[at]
        call.new = call.target - replica.found(call)
        if replica.is_idle():
            replica.clock = time
        replica.waiting.append(call)

    def end(self, call: Call, time: float) -> bool:
        """A call is answered; no agent leaves by itself."""
        key = call.session, call.agent
        program = self.programs[key]
        program.is_reasoning, program.acting_since, program.tokens = False, time, call.prompt + call.output
        self.ratio = self.settings.characters_per_token  # the same for all prompts, so that its mean does not move
        if program.is_marked and program.at is not None:
            program.is_marked = False
            self.pause(key)
        return False

    def end_session(self, session: int) -> None:
        if self.settings.ends_told:
            self.programs = {key: program for key, program in self.programs.items() if key[0] != session}
            self.paused = {key: tokens for key, tokens in self.paused.items() if key[0] != session}

    def offer_held(self, time: float) -> None:
        """An end offers nothing."""

    def pass_time(self, until: float) -> None:
        """It reads no caches."""

    def pause(self, key: tuple[int, int]) -> None:
        program = self.programs[key]
        self.paused[key] = program.tokens
        program.origin, program.at = program.at, None

    def resume(self, key: tuple[int, int], at: int, time: float) -> None:
        program = self.programs[key]
        del self.paused[key]
        program.at, program.origin = at, None
        for call in [call for call in self.held if (call.session, call.agent) == key]:
            self.held.remove(call)
            self.send(call, at, time)

    def next_wake(self) -> float:
        timeouts = [call.asked + self.settings.resume_timeout for call in self.held]
        return min([self.ticks * self.settings.scheduler_interval, *timeouts])

    def wake(self, time: float) -> None:
        if time < self.ticks * self.settings.scheduler_interval:
            key = next(
                (call.session, call.agent) for call in self.held if call.asked + self.settings.resume_timeout == time
            )
            counts = [len(self.on(at)) for at in range(len(self.replicas))]
            origin = self.programs[key].origin
            self.forced += 1
            self.resume(key, counts.index(min(counts)) if origin is None else origin, time)
            return
        self.ticks += 1
        self.greedy_resume(time)
        for at in range(len(self.replicas)):
            self.pause_until_safe(at, time)

    def greedy_resume(self, time: float) -> None:
        buffer = self.settings.buffer_per_program
        left = [
            (at, self.remaining(at, time, self.settings.use_acting_token_decay)) for at in range(len(self.replicas))
        ]
        left = [(at, tokens) for at, tokens in left if tokens > buffer]

        def group(key: tuple[int, int]) -> int:
            if self.programs[key].steps == 1:
                return 1
            return 0 if self.programs[key].is_reasoning else 2

        chosen, total = list[tuple[int, int]](), 0
        for key in sorted(self.paused, key=lambda key: (group(key), self.paused[key])):
            if total + self.programs[key].tokens + buffer <= sum(tokens for _, tokens in left):
                chosen.append(key)
                total += self.programs[key].tokens + buffer
        chosen.sort(key=lambda key: -self.programs[key].tokens)
        left.sort(key=lambda each: -each[1])
        for key in chosen:
            needed = self.programs[key].tokens + buffer
            if not left or needed > left[0][1]:
                continue
            at, tokens = left[0]
            self.resume(key, at, time)
            left[0] = at, tokens - needed
            if left[0][1] <= buffer:
                left.pop(0)
            left.sort(key=lambda each: -each[1])

    def pause_until_safe(self, at: int, time: float) -> None:
        while self.remaining(at, time) < 0:
            acting = [key for key, program in self.programs.items() if program.at == at and not program.is_reasoning]
            if not acting:
                for program in self.on(at):  # a mark gives no room: all get one
                    program.is_marked = True
                return
            self.pause(min(acting, key=lambda key: self.programs[key].tokens))
