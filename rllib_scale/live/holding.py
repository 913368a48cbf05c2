"""Assigns requests to replicas of a language model, or holds them, by the rules of `service: replica`.

It decides by the same compiled code as an episode under `observation.caches: own`, from a router's knowledge:
prompts, sessions, and where it has sent calls. Lengths of answers are hidden.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from rllib_scale.compiled import Direct
from rllib_scale.config.replica_rules import FLEET_RULES, check_router_knows
from rllib_scale.config.replicas import Replica as LanguageModelReplica
from rllib_scale.config.schedulers import PolicySpec, RuleSpec, parse_scheduler
from rllib_scale.errors import UserError, offered
from rllib_scale.live.requests import Demand, LastCall, Replica, RouterSettings, check_arrival
from rllib_scale.live.routing import SESSIONS
from rllib_scale.live.stats import LiveStats
from rllib_scale.policies.description import trained_in
from rllib_scale.schedulers.replicas import REPLICA_RULES
from rllib_scale.simulator.replicas.handles import fleet_handles
from rllib_scale.simulator.replicas.known import forget_replica
from rllib_scale.simulator.replicas.router import ASKED, KNOWN, answer_round
from rllib_scale.simulator.replicas.scripts import requests
from rllib_scale.simulator.replicas.state import NONE, START, TREE, Fleet, grown, new_fleet
from rllib_scale.workloads.random_numbers import new_generator

_answer_round = Direct(answer_round)


FOR_REPLICAS = frozenset({"prompt_tokens", "prefix", "prefix_tokens", "replica", "active_for_s"})
"""Fields of Demand and RouterSettings that only rules of `service: replica` use."""
FOR_PLACES = frozenset({"compute_gflop", "memory_gb", "places", "labels", "moved_gb"}) | frozenset(
    {"compute_gflops", "slowdown", "bandwidth_gb_s", "scenario", "guard"}
)
"""Those that only other schedulers use."""


def is_for_replicas(settings: RouterSettings) -> bool:
    """Whether the scheduler of a router is a rule of `service: replica`, or a policy of `release`."""
    return _is_for_replicas(settings.scheduler)


@cache  # it is asked with each request, and a policy is read from its folder
def _is_for_replicas(scheduler: str) -> bool:
    spec = parse_scheduler(scheduler)
    if isinstance(spec, PolicySpec):
        return trained_in(spec.folder("scheduler")).rule == "release-index"
    return isinstance(spec, RuleSpec) and spec.name in FLEET_RULES


def rule_of(scheduler: str) -> tuple[Any, np.ndarray]:
    """The rule of `service: replica`, that of a policy of `release` included, and its values."""
    spec = parse_scheduler(scheduler)
    if isinstance(spec, PolicySpec):
        from rllib_scale.policies.policy import load_policy  # late: it imports torch

        policy: Any = load_policy(spec.folder("scheduler"))
        return policy.rule, policy.values
    assert isinstance(spec, RuleSpec)
    rule: Any = REPLICA_RULES[spec.name](spec.parameters)
    return rule, rule.values


def check_used(given: RouterSettings | Demand, settings: RouterSettings) -> None:
    """Refuse a field of settings, or of a demand, which the scheduler would ignore.

    Raises:
        UserError: with the fields that it uses.
    """
    rules, ignored = ("LLM replicas", FOR_PLACES) if is_for_replicas(settings) else ("places", FOR_REPLICAS)
    for name in sorted(given.model_fields_set & ignored):
        valid = offered(sorted(type(given).model_fields.keys() - ignored))
        raise UserError(f"{name}: not with {settings.scheduler}, which decides on {rules}; valid: {valid}")


_OF_CALL = (("tokens", "prompt"), ("prefix", "prefix"), ("shared", "shared"))
"""Columns of KNOWN, and those of ASKED."""


class _Rows:
    """A table whose rows are taken and given back; it grows."""

    def __init__(self, kind: np.dtype[Any]) -> None:
        self.table, self._free = np.zeros(64, kind), list(range(64))

    def take(self, **values: Any) -> int:
        """A row with these values, and with zeros elsewhere."""
        if not self._free:
            self._free = list(range(len(self.table), 2 * len(self.table)))
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        row = self._free.pop()
        self.table[row] = tuple(values.get(name, 0) for name in self.table.dtype.names or ())
        return row

    def give(self, row: int) -> None:
        """A row that is not needed any more."""
        self._free.append(row)


class HoldingRouter:
    """The requests of one handle under a rule for replicas; for `serve.PolicyRouter` like `Routing`.

    Args:
        settings: settings of the router; `replica` describes a replica.

    Raises:
        UserError: a setting is missing, or such a rule does not have it.
    """

    guard = "none"

    def __init__(self, settings: RouterSettings) -> None:
        name = settings.scheduler
        if settings.replica is None:
            raise UserError(f"{name}: replica is not given; valid: a preset as h100/8b, or its coefficients")
        rule, self._values = rule_of(name)
        check_router_knows(rule.name)
        self.settings, self._kind = settings, settings.replica
        own = dict(rule.parameters)["active_for_s"]
        self._active_for_s = settings.active_for_s if own is None else own
        self._rng = new_generator(settings.seed, 0)
        self._asked, self._known = _Rows(ASKED), _Rows(KNOWN)
        self._requests: dict[Hashable, int] = {}  # -> row of `_asked`; the one that came first is the first
        self._sent: dict[Hashable, str] = {}  # those that run -> replica
        self._sessions = OrderedDict[Hashable, int]()  # -> row of `_known`; the one heard of last is the last
        self._heard, self._heard_end = np.zeros(1024, np.int64), 0
        self._numbers = dict[str, int]()  # of all replicas that there ever were
        self._row_of = np.zeros(0, np.int64)
        self._foreign = np.zeros(0, np.int64)  # calls of other handles on each replica
        self._decided_s, self._events = -np.inf, 0  # time of the last round, and ends of calls since
        self._prefixes, self._most_prefixes = dict[tuple[str, int], int](), 8  # numbers of shared prefixes
        self._fleet: Fleet | None = None  # with the memory of each replica; None before the first one
        self._table: np.ndarray  # of that fleet, for compiled code
        self._replicas: list[Replica] = []
        self._remembered = 0  # rows of sessions in it
        self._told = 0  # sessions whose last call was sent elsewhere, since the last round
        self.left: Counter[str] = Counter()
        self._shared = set[str]()
        self._started, self._decisions, self._rounds, self._waited_s, self._deciding_s = 0, 0, 0, 0.0, 0.0
        self._began = time.monotonic()
        self._take([Replica("", 1, 1.0, 1.0)])
        self.round(self._replicas, {})  # compiles now, not while the first request waits
        self._numbers.clear()
        self._take([])
        self._rounds, self._deciding_s = 0, 0.0

    def clock(self) -> float:
        """Time since the start [s]."""
        return time.monotonic() - self._began

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._requests) - len(self._sent)

    def replica_of(self, key: Hashable) -> str | None:
        """The replica where a request runs; None: it waits, or is not known."""
        return self._sent.get(key)

    def others_on(self) -> set[str]:
        """See `Routing.others_on`."""
        return self._shared

    def arrive(self, key: Hashable, demand: Demand, since_s: float) -> None:
        """See `Routing.arrive`. A request without a session is a session by itself."""
        check_arrival(key, since_s, self._requests)
        row = self._hear((key,) if demand.session is None else demand.session)
        self._known.table["open"][row] += 1
        prefix = self._prefix(demand.prefix, demand.prefix_tokens)
        self._requests[key] = self._asked.take(
            session=row,
            replica=NONE,
            prompt=demand.prompt_tokens,
            prefix=prefix,
            shared=demand.prefix_tokens,
            asked_s=since_s,
        )

    def _prefix(self, name: str | None, tokens: int) -> int:
        """Number of a shared prefix; numbers that no session, no request and no memory has are used again."""
        if name is None:
            return NONE
        if (name, tokens) not in self._prefixes:
            if len(self._prefixes) == self._most_prefixes:
                rows = [*self._sessions.values()], [*self._requests.values()]
                used = {*self._known.table["prefix"][rows[0]], *self._asked.table["prefix"][rows[1]]}
                if self._fleet is not None:
                    used |= {*np.flatnonzero(self._fleet.prefixes["tokens"].any(axis=0))}
                self._prefixes = {key: number for key, number in self._prefixes.items() if number in used}
            if len(self._prefixes) == self._most_prefixes:
                self._most_prefixes *= 2
                self._take(self._replicas)
            free = set(range(self._most_prefixes)) - {*self._prefixes.values()}
            self._prefixes[name, tokens] = min(free)
        return self._prefixes[name, tokens]

    def _hear(self, name: Hashable) -> int:
        """The row of a session, moved to the end of those heard of."""
        if name not in self._sessions:
            number = int.from_bytes(blake2b(repr(name).encode(), digest_size=7).digest())  # of the name alone
            self._sessions[name] = self._known.take(
                number=number, home=NONE, counts_at=NONE, at=NONE, prefix=NONE, answered_s=self.clock()
            )
            if len(self._sessions) > SESSIONS:
                self._forget_oldest()
        row = self._sessions[name]
        self._sessions.move_to_end(name)
        if self._heard_end == len(self._heard):
            self._compact()
        self._heard[self._heard_end] = row
        self._known.table["heard"][row] = self._heard_end
        self._heard_end += 1
        return row

    def _forget_oldest(self) -> None:
        """Forget the session that was longest silent, of those without a request."""
        is_open = self._known.table["open"]
        name = next((name for name, row in self._sessions.items() if not is_open[row]), None)
        if name is not None:
            self._forget(name)

    def _forget(self, name: Hashable) -> None:
        row = self._sessions.pop(name)
        self._known.table["heard"][row] = NONE
        self._known.give(row)

    def _compact(self) -> None:
        """Keep of each session the last place in the list of those heard of."""
        heard = self._known.table["heard"]
        last = self._heard[heard[self._heard] == np.arange(len(self._heard))]
        heard[last] = np.arange(len(last))
        self._heard = np.concatenate([last, np.zeros(1024 + len(last), np.int64)])
        self._heard_end = len(last)

    def restore(self, last: LastCall, at_s: float) -> None:
        """See `Routing.restore`."""
        if last.session not in self._sessions:
            session = self._known.table[self._hear(last.session)]
            session["home"] = session["counts_at"] = self._number(last.replica)
            session["tokens"], session["told"], self._told = last.prompt_tokens, 1, self._told + 1
            session["prefix"], session["shared"] = self._prefix(last.prefix, last.prefix_tokens), last.prefix_tokens
            session["answered_s"], session["until_s"] = at_s, at_s + self._active_for_s

    def start(self, key: Hashable, replica: str, start_s: float) -> None:
        """See `Routing.start`."""
        request = self._asked.table[self._requests[key]]
        session = self._known.table[request["session"]]
        request["replica"] = session["home"] = session["counts_at"] = self._number(replica)
        session["told"], self._told = 1, self._told + 1
        for name, value in _OF_CALL:
            session[name] = request[value]
        session["running"] += 1
        self._sent[key] = replica

    def _number(self, replica: str) -> int:
        """Number of a replica, which may be away."""
        if replica not in self._numbers:
            self._numbers[replica] = len(self._numbers)
            self._row_of = np.append(self._row_of, NONE)
        return self._numbers[replica]

    def lost(self, replica: str) -> None:
        """See `Routing.lost`."""
        known, number = self._known.table, self._numbers.get(replica, NONE - 1)
        known["home"][known["home"] == number] = NONE
        at_it = known["counts_at"] == number
        known["counts_at"][at_it], known["until_s"][at_it] = NONE, 0.0
        if number >= 0 and self._row_of[number] != NONE:
            forget_replica(self._row_of[number], self._table)
        self._events += 1

    def leave(self, key: Hashable, how: str = "answered") -> None:
        """See `Routing.leave`."""
        row = self._requests.pop(key, None)
        if row is None:
            return
        self.left[how] += 1
        session = self._known.table[self._asked.table["session"][row]]
        session["open"] -= 1
        if self._sent.pop(key, None) is not None:
            self._events += 1
            session["running"] -= 1
            session["answered_s"] = self.clock()
            session["until_s"] = session["answered_s"] + self._active_for_s
        self._asked.give(row)
        if (key,) in self._sessions:  # its session does not continue
            self._forget((key,))

    def too_large(self) -> list[tuple[Hashable, UserError]]:
        """See `Routing.too_large`."""
        most = max([self._kind_of(replica).kv_tokens for replica in self._replicas], default=self._kind.kv_tokens)
        prompts = self._asked.table["prompt"]
        found: list[tuple[Hashable, UserError]] = [
            (key, UserError(f"request: prompt_tokens {prompts[row]:,}: a replica has {most:,}"))
            for key, row in self._requests.items()
            if prompts[row] > most
        ]
        for key, _ in found:
            self.leave(key, "rejected")
        return found

    def round(self, replicas: Sequence[Replica], queued: Mapping[str, int]) -> list[tuple[Hashable, str]]:
        """See `Routing.round` and `answer_round`; a request whose replica is full waits for it."""
        began = time.monotonic()
        if replicas != self._replicas:
            self._take(replicas)
        if self._fleet is None:
            return []
        names, order = [replica.name for replica in replicas], np.array(list(self._requests.values()), np.int64)
        others = np.array([queued.get(name, 0) for name in names], np.int64)
        starts = np.empty((len(order), 2), np.int64)
        since = np.array([self._decided_s, self._events])
        self._grow(3 * (self.waiting + self._told) + 8)
        self._fleet.now["time"] = now = self.clock()
        known, heard = self._known.table, self._heard[: self._heard_end]
        count, answered = _answer_round(
            *(known, heard, self._asked.table, order, self._row_of, self._number_of, self._places),
            *(others, self._foreign, since, self._values, self._rng, np.empty_like(order), starts, self._table),
        )
        self._foreign, self._decided_s, self._events, self._told = others, now, 0, 0
        keys = list(self._requests)
        found = [(keys[position], names[at]) for position, at in starts[:count].tolist()]
        self._sent.update(found)
        self._shared = {name for name, calls in zip(names, others.tolist(), strict=True) if calls > 0}
        self._started, self._decisions = self._started + count, self._decisions + answered
        self._waited_s += count * now - float(self._asked.table["asked_s"][order[starts[:count, 0]]].sum())
        self._rounds, self._deciding_s = self._rounds + 1, self._deciding_s + time.monotonic() - began
        return found

    def _take(self, replicas: Sequence[Replica]) -> None:
        """Set the current replicas; the memory of those that stay is kept."""
        before = {replica.name: at for at, replica in enumerate(self._replicas)}
        gone = [at for name, at in before.items() if name not in {replica.name for replica in replicas}]
        for at in gone:
            forget_replica(at, self._table)
        former, self._replicas, self._fleet = self._fleet, list(replicas), None
        for replica in replicas:
            self._numbers.setdefault(replica.name, len(self._numbers))
        self._number_of = np.array([self._numbers[replica.name] for replica in replicas], np.int64)
        self._row_of = np.full(len(self._numbers), NONE, np.int64)
        self._row_of[self._number_of] = np.arange(len(replicas))
        self._places = np.array([replica.max_concurrent for replica in replicas], np.int64)
        self._foreign, self._events = np.zeros(len(replicas), np.int64), self._events + len(self._requests)
        if replicas:
            _, tasks, first_task, successors = requests([1], [1]).arrays  # sessions and calls come from outside
            tree = np.zeros(self._most_prefixes, TREE)
            tree["above"] = NONE
            scripts = tree, tasks, first_task, successors
            kinds = [self._kind_of(replica) for replica in replicas]
            self._fleet = new_fleet(kinds, scripts, np.zeros(0, START), 1, True)
            if former is None:
                self._remembered = 0
            else:
                self._keep_memory(former, [before.get(replica.name, NONE) for replica in replicas])
            self._table = fleet_handles(self._fleet)

    def _kind_of(self, replica: Replica) -> LanguageModelReplica:
        return self._kind.model_copy(update={"kv_tokens": replica.kv_tokens} if replica.kv_tokens else {})

    def _keep_memory(self, former: Fleet, rows: list[int]) -> None:
        """Copy the memory of a former fleet; `rows` are the rows there of the current replicas."""
        assert self._fleet is not None
        new = self._fleet._replace(kept=former.kept, sessions=former.sessions, agents=former.agents)
        for name in ("free_kept", "kept_left"):
            new.now[name] = former.now[name]
        now_at = np.full(len(former.replicas), NONE)
        for at, row in enumerate(rows):
            if row != NONE:
                now_at[row] = at
                for name in ("used", "oldest", "newest"):
                    new.replicas[name][at] = former.replicas[name][row]
                new.prefixes[at, : former.prefixes.shape[1]] = former.prefixes[row]
        new.kept["replica"] = now_at[new.kept["replica"]]
        self._fleet = new

    def _grow(self, contexts: int) -> None:
        """Grow the fleet by rows for a number of contexts, and for all sessions."""
        assert self._fleet is not None
        sessions, begun = len(self._known.table), self._remembered
        left = min(self._fleet.now[f"{name}_left"] for name in ("kept", "calls", "active"))
        if left >= contexts and begun == sessions:
            return
        self._fleet.spare[0] = max(contexts, len(self._fleet.kept))
        self._fleet = grown(self._fleet)
        for name in ("sessions", "agents"):
            rows = getattr(self._fleet, name)
            more = np.zeros((max(0, sessions - len(rows)), *rows.shape[1:]), rows.dtype)
            self._fleet = self._fleet._replace(**{name: np.concatenate([rows, more])})
        self._fleet.agents["kept"][begun:sessions] = NONE
        self._remembered = sessions
        self._table = fleet_handles(self._fleet)

    def stats(self) -> LiveStats:
        """See `Routing.stats`."""
        left, started, rounds = self.left, self._started, self._rounds
        return LiveStats(
            servers=len(self._replicas),
            waiting=self.waiting,
            running=len(self._sent),
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
