"""Which replica of a language model takes which request, or none yet, by the rules of `service: replica`.

It decides by the same compiled code as an episode, from what a router knows: prompts, sessions, and what it has sent
where. Lengths of answers are hidden, and a session's context is taken to be on its replica while the contexts that came
after it leave room for it.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib_scale.compiled import Direct
from rllib_scale.config.schedulers import FLEET_RULES, RuleSpec, parse_scheduler
from rllib_scale.errors import UserError
from rllib_scale.live.routing import SESSIONS, Demand, Replica, RouterSettings
from rllib_scale.live.stats import LiveStats
from rllib_scale.schedulers.replicas import REPLICA_RULES
from rllib_scale.simulator.replicas.rules import chosen
from rllib_scale.simulator.replicas.scripts import requests
from rllib_scale.simulator.replicas.state import NONE, START, Fleet, new_fleet
from rllib_scale.workloads.random_numbers import new_generator

_chosen = Direct(chosen)


def is_for_replicas(settings: RouterSettings) -> bool:
    """Whether the scheduler of a router is a rule of `service: replica`."""
    spec = parse_scheduler(settings.scheduler)
    return isinstance(spec, RuleSpec) and spec.name in FLEET_RULES


@dataclass
class _Session:
    """Of a session: the replica of its last call, the tokens of its context, and until when it is active there."""

    home: str | None = None
    tokens: int = 0
    running: int = 0  # calls
    until_s: float = 0.0


@dataclass
class _Request:
    demand: Demand
    arrival_s: float
    session: _Session = field(default_factory=_Session)
    replica: str | None = None  # where it runs


class HoldingRouter:
    """The requests of one handle under a rule for replicas; for `serve.PolicyRouter` what `Routing` is.

    Args:
        settings: of the router; `replica` says what a replica is.

    Raises:
        UserError: a setting is missing, or is none of such a rule.
    """

    guard = "none"

    def __init__(self, settings: RouterSettings) -> None:
        name, spec = settings.scheduler, parse_scheduler(settings.scheduler)
        if settings.replica is None:
            raise UserError(f"{name}: replica is not given; valid: a preset as h100/8b, or its coefficients")
        if settings.guard is not None:
            raise UserError(f"guard: not with {name}, a rule for replicas of a language model; valid: none")
        assert isinstance(spec, RuleSpec)
        rule: Any = REPLICA_RULES[spec.name](spec.parameters)
        self.settings, self._values, self._kind = settings, rule.values, settings.replica
        self._rng = new_generator(settings.seed, 0)
        self._requests: dict[Hashable, _Request] = {}
        self._sessions: OrderedDict[str, _Session] = OrderedDict()  # the one heard of last is the last
        self._replicas: list[Replica] = []
        self._index: dict[str | None, int] = {}
        self._shared = set[str]()
        self._fleet: Fleet | None = None
        self.left: Counter[str] = Counter()
        self._started, self._decisions, self._rounds, self._waited_s, self._deciding_s = 0, 0, 0, 0.0, 0.0
        # Compiled now, not while the first request waits; the numbers drawn later are those of the seed.
        _chosen(self._fleet_of(1), 0, self._values, new_generator(settings.seed, 0))
        self._began = time.monotonic()

    def _fleet_of(self, replicas: int) -> Fleet:
        only = requests([1], [1]).arrays  # sessions and calls are told, not played
        return new_fleet([self._kind] * replicas, only, np.zeros(0, START), 1, True)

    def clock(self) -> float:
        """Time since the start [s]."""
        return time.monotonic() - self._began

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(request.replica is None for request in self._requests.values())

    def replica_of(self, key: Hashable) -> str | None:
        """Where a request runs; None: it waits, or is not known."""
        return None if key not in self._requests else self._requests[key].replica

    def others_on(self) -> set[str]:
        """See `Routing.others_on`."""
        return self._shared

    def _is_active(self, session: _Session) -> bool:
        return session.running > 0 or session.until_s > self.clock()

    def arrive(self, key: Hashable, demand: Demand, since_s: float) -> None:
        """See `Routing.arrive`."""
        request = self._requests[key] = _Request(demand, since_s)
        if demand.session is not None:
            request.session = self._sessions.setdefault(demand.session, request.session)
            self._sessions.move_to_end(demand.session)
            if len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)

    def ran(self, session: str, replica: str) -> None:
        """It is known since the decision."""

    def lost(self, replica: str) -> None:
        """See `Routing.lost`."""
        for session in self._sessions.values():
            if session.home == replica:
                session.home, session.until_s = None, 0.0

    def leave(self, key: Hashable, how: str = "answered") -> None:
        """See `Routing.leave`."""
        request = self._requests.pop(key, None)
        if request is None:
            return
        self.left[how] += 1
        if request.replica is not None:
            request.session.running -= 1
            request.session.until_s = self.clock() + self.settings.active_for_s

    def too_large(self) -> list[tuple[Hashable, UserError]]:
        """See `Routing.too_large`."""
        most = self._kind.kv_tokens
        found: list[tuple[Hashable, UserError]] = [
            (key, UserError(f"request: prompt_tokens {request.demand.prompt_tokens:,}: a replica has {most:,}"))
            for key, request in self._requests.items()
            if request.demand.prompt_tokens > most
        ]
        for key, _ in found:
            self.leave(key, "rejected")
        return found

    def round(self, replicas: Sequence[Replica], queued: Mapping[str, int]) -> list[tuple[Hashable, str]]:
        """See `Routing.round`. The first that came are asked first; one whose replica is full waits for it."""
        began = time.monotonic()
        if replicas != self._replicas:
            self._replicas, self._index = list(replicas), {replica.name: at for at, replica in enumerate(replicas)}
            self._fleet = self._fleet_of(len(replicas)) if replicas else None
        if self._fleet is None:
            return []
        kept = self._write(self._fleet, queued)
        found: list[tuple[Hashable, str]] = []
        for key, request in self._requests.items():
            if request.replica is None and (at := self._choose(self._fleet, request, kept)) != NONE:
                self._send(self._fleet, request, at)
                found.append((key, self._replicas[at].name))
        self._rounds, self._deciding_s = self._rounds + 1, self._deciding_s + time.monotonic() - began
        return found

    def stats(self) -> LiveStats:
        """See `Routing.stats`."""
        waits, left, started, rounds = self.waiting, self.left, self._started, self._rounds
        return LiveStats(
            servers=len(self._replicas),
            waiting=waits,
            running=len(self._requests) - waits,
            started=started,
            ended=left["answered"],
            dropped=left["dropped"],
            rejected=left["rejected"],
            decisions=self._decisions,
            rounds=rounds,
            wait_mean_s=self._waited_s / started if started else float("nan"),
            round_mean_s=self._deciding_s / rounds if rounds else float("nan"),
            guard=self.guard,
        )

    def _write(self, fleet: Fleet, queued: Mapping[str, int]) -> set[int]:
        """Write what replicas have; returns the sessions, by id, whose contexts are still there."""
        calls = Counter(request.replica for request in self._requests.values())
        rows, kept, room = fleet.replicas, set[int](), [self._kind.kv_tokens] * len(self._replicas)
        self._shared = {name for name, *_ in self._replicas if queued.get(name, 0) > calls[name]}
        rows["calls"] = [max(calls[name], queued.get(name, 0)) for name, *_ in self._replicas]
        rows["active"] = rows["pinned"] = 0
        for session in reversed(self._sessions.values()):
            if (at := self._index.get(session.home, NONE)) == NONE:
                continue
            room[at] -= session.tokens
            if room[at] >= 0:
                kept.add(id(session))
            if self._is_active(session):
                rows["active"][at] += session.tokens
        for request in self._requests.values():
            if request.replica in self._index:
                rows["pinned"][self._index[request.replica]] += request.demand.prompt_tokens
        fleet.now["time"], fleet.now["held"] = self.clock(), self.waiting
        return kept

    def _choose(self, fleet: Fleet, request: _Request, kept: set[int]) -> int:
        """The replica for a request, or NONE."""
        session, call, agent = request.session, fleet.calls[0], fleet.agents[0, 0]
        home = self._index.get(session.home, NONE)
        call["prompt"] = call["target"] = call["reusable"] = request.demand.prompt_tokens
        call["prefix"], call["asked_s"] = NONE, request.arrival_s
        agent["home"], agent["active"] = home, home if self._is_active(session) else NONE
        agent["kept"] = 0 if home != NONE and id(session) in kept else NONE
        fleet.kept[0]["replica"], fleet.kept[0]["tokens"], fleet.kept[0]["next"] = home, session.tokens, NONE
        self._decisions += 1
        at = int(_chosen(fleet, 0, self._values, self._rng))
        if at == NONE and request.demand.prompt_tokens <= self._kind.kv_tokens:
            idle = np.flatnonzero(fleet.replicas["calls"] == 0)
            at = int(idle[0]) if len(idle) else NONE  # as in an episode, none is held beside an idle replica
        is_full = at != NONE and fleet.replicas["calls"][at] >= self._replicas[at].max_concurrent
        return NONE if is_full else at

    def _send(self, fleet: Fleet, request: _Request, at: int) -> None:
        session, rows = request.session, fleet.replicas
        if session.home in self._index and self._is_active(session):
            rows["active"][self._index[session.home]] -= session.tokens
        request.replica = session.home = self._replicas[at].name
        session.tokens, session.running = request.demand.prompt_tokens, session.running + 1
        rows["calls"][at] += 1
        rows["active"][at] += session.tokens
        self._started, self._waited_s = self._started + 1, self._waited_s + self.clock() - request.arrival_s
