"""Assigns requests to replicas by a scheduler, for `rllib_scale.live.serve`. It knows no Ray.

A replica is a server, which runs several requests at once. A request is a task; the call before it in its session is
its predecessor, whose output, such as a KV cache, is where that call ran. All waiting requests of a handle are decided
on together, in rounds, so that a request that waits for its replica does not block others, and two do not count on the
same place.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice

import numpy as np

from rllib_scale.config import ClusterConfig, EnvConfig, TierConfig
from rllib_scale.config.cluster import label_bits
from rllib_scale.config.rules import HeuristicSpec
from rllib_scale.config.schedulers import HEURISTICS, PolicySpec, RuleSpec, parse_scheduler
from rllib_scale.errors import UserError
from rllib_scale.live.requests import Demand, LastCall, Replica, RouterSettings, check_arrival
from rllib_scale.live.servers import for_servers
from rllib_scale.live.stats import LiveStats, stats_of
from rllib_scale.loading import named_scenario, resolve
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.simulator.rehearsal import rehearse
from rllib_scale.workloads.fitting import fits
from rllib_scale.workloads.model import TASK_DEMAND

SESSIONS = 100_000
"""Sessions whose last replica is remembered; the one that was longest silent is forgotten first."""
CHAIN = np.array([(0, 1)], dtype=np.int64)
"""Edges from the call before to a call."""
RECENT = 4
"""Sessions per place that are assumed to continue: the most recent ones."""


@dataclass
class _Known:
    """A request that waits or runs; in the engine it is a workflow."""

    number: int  # of its workflow
    demand: Demand
    arrival_s: float
    home: str | None  # the replica of the call before, or that of a new session
    moved_gb: float  # to any other
    replica: str | None = None  # where it runs
    start_s: float = 0.0
    is_entered: bool = False  # whether the engine knows it
    entered_home: int = -1  # the server of the call before it there


def policy_of(settings: RouterSettings) -> tuple[Policy, EnvConfig]:
    """The policy of a router, and its problem without servers.

    Raises:
        UserError: the scheduler or scenario does not exist, or cannot decide request by request for replicas that
            come and go.
    """
    env = named_scenario(settings.scenario)
    # A request waits for a busy replica while others are decided on; a policy with a mask waits only without it.
    env = env.model_copy(update={"decision": env.decision.model_copy(update={"on_busy": "reserve"})})
    name = settings.scheduler
    spec = resolve(parse_scheduler(name))
    policy = make_policy(spec, env.with_mask("feasible" if isinstance(spec, PolicySpec) else "none"))
    known = (
        HEURISTICS[spec.name] if isinstance(spec, RuleSpec) else HeuristicSpec(plans=getattr(policy, "plans", False))
    )
    if known.no_router:
        routers = ", ".join(other for other, its in HEURISTICS.items() if not its.no_router)
        raise UserError(f"{name}: {known.no_router}, and a router decides request by request; valid: {routers}")
    trial = getattr(policy, "trial", None)  # of an exported policy
    if trial is not None and not trial.any_scale:
        count = trial.env.cluster.num_rows
        raise UserError(f"{name}: was trained at {count} servers and knows no other number; replicas come and go")
    return policy, env


class Routing:
    """The requests that one handle has to route or has routed, and decisions of a scheduler on waiting ones.

    Args:
        settings: settings of the router.

    Raises:
        UserError: see `policy_of`.
    """

    def __init__(self, settings: RouterSettings) -> None:
        self.settings = settings
        self._policy, self._base = policy_of(settings)
        rehearse(self._policy, self._policy.problem(self._base))
        self._known: dict[Hashable, _Known] = {}
        self._keys: dict[int, Hashable] = {}  # by number
        self._numbers = count()
        self._replicas: list[Replica] = []
        self._index: dict[str, int] = {}
        self._others: dict[str, list[_Known]] = {}  # replica -> what it runs of other handles, in the engine
        self._taken: Mapping[str, int] = {}  # replica -> how many requests of other handles it has
        self._engine: EventEngine | None = None
        self._counted: int | None = None  # number of the first request that the policy has not seen; None: it saw none
        self._former: EventEngine | None = None  # before the replicas changed last
        self._started: list[Attempt] = []  # in this round
        self._sessions: OrderedDict[str, str] = OrderedDict()  # -> replica of the last call, the last one heard of last
        self.left: Counter[str] = Counter()  # requests that are known no more, by how they left
        self._stayed_s = 0.0  # of these requests
        self.guard, self.guard_ratio = "none", math.nan  # see LiveStats
        self.decided_s = 0.0  # when the last round was
        self._began = time.monotonic()

    def clock(self) -> float:
        """Time since the start [s]."""
        return time.monotonic() - self._began

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return sum(known.replica is None for known in self._known.values())

    def replica_of(self, key: Hashable) -> str | None:
        """The replica where a request runs; None: it waits, or is not known."""
        known = self._known.get(key)
        return None if known is None else known.replica

    # ------------------------------------------------------------------ what happens

    def arrive(self, key: Hashable, demand: Demand, since_s: float) -> None:
        """Add a waiting request.

        Args:
            key: its name from now on.
            demand: its demand.
            since_s: its time of arrival [s of `clock`].

        Raises:
            ValueError: it is known already, or its time is not finite.
        """
        check_arrival(key, since_s, self._known)
        home, moved = self._sessions.get(demand.session or ""), demand.moved_gb
        if home not in self._index and demand.session:
            home, moved = self._home(), 0.0
        known = self._known[key] = _Known(next(self._numbers), demand, since_s, home, moved)
        self._keys[known.number] = key
        if self._engine is not None:
            self._engine.advance(self.clock())
        self._enter(known)

    def _home(self) -> str | None:
        """Home of a new session: the replica with the fewest active sessions; preferred if all else is equal.

        Without it equal replicas would get sessions by number, and on one with many they wait or move.
        """
        if not self._index:
            return None
        recent = RECENT * sum(replica.max_concurrent for replica in self._replicas)
        calls = Counter(islice(reversed(self._sessions.values()), recent))
        return min(self._replicas, key=lambda replica: calls[replica.name] / replica.max_concurrent).name

    def restore(self, last: LastCall, at_s: float) -> None:
        """The last call of a session ended at that time, unless a later one is known."""
        if last.session not in self._sessions:
            self._ran(last.session, last.replica)

    def start(self, key: Hashable, replica: str, start_s: float) -> None:
        """A waiting request runs on a replica since that time, by a decision made elsewhere."""
        known = self._known[key]
        self._start(known, replica, start_s)
        self._go_on(known)

    def _start(self, known: _Known, replica: str, start_s: float) -> None:
        known.replica, known.start_s = replica, start_s
        if known.demand.session is not None:
            self._ran(known.demand.session, replica)

    def _ran(self, session: str, replica: str) -> None:
        """A call of a session runs on a replica: what it leaves is there."""
        self._sessions[session] = replica
        self._sessions.move_to_end(session)
        if len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)

    def lost(self, replica: str) -> None:
        """A replica is gone, and what sessions had left there."""
        for session in [session for session, at in self._sessions.items() if at == replica]:
            del self._sessions[session]

    def leave(self, key: Hashable, how: str = "answered") -> None:
        """Forget a request, if it is known.

        Args:
            key: name of the request.
            how: it was `answered`, `dropped` (cancelled or lost), `rejected`, or will come `again`.
        """
        if key in self._known:
            known = self._known.pop(key)
            del self._keys[known.number]
            self._drop(known)
            self.left[how] += 1
            self._stayed_s += self.clock() - known.arrival_s if how != "again" else 0.0

    def spent_s(self) -> float:
        """Time that requests have been there, those under way included [s]."""
        return self._stayed_s + sum(self.clock() - known.arrival_s for known in self._known.values())

    def stats(self) -> LiveStats:
        """Current numbers of requests and their times."""
        counted = {"ended": self.left["answered"], "dropped": self.left["dropped"], "rejected": self.left["rejected"]}
        waiting, engine = self.waiting, self._engine or self._former
        now = {"servers": len(self._replicas), "waiting": waiting, "running": len(self._known) - waiting}
        return stats_of(engine, self.guard, self.guard_ratio, **now, **counted)

    def _running(self) -> list[Attempt]:
        return [] if self._engine is None else self._engine.running()

    def _drop(self, known: _Known) -> None:
        """Report the end of a request to the engine, if it knows the request."""
        engine = self._engine
        if engine is None or not known.is_entered:
            return
        engine.advance(self.clock())
        for attempt in engine.give_up(known.number):
            engine.stopped(attempt)

    def _hold(self, taken: Mapping[str, int]) -> None:
        """Occupy places in the engine for requests of other handles on each replica."""
        self._taken = taken
        for name, others in self._others.items():
            while len(others) > taken.get(name, 0):
                self._drop(others.pop())
            while len(others) < taken.get(name, 0) and self._has_place(name):
                mean = sum(known.demand.compute_gflop for known in self._known.values()) / max(1, len(self._known))
                demand, now = Demand(compute_gflop=mean or 1.0), self.clock()
                others.append(_Known(next(self._numbers), demand, now, None, 0.0, name, now))
                self._enter(others[-1])
                self._go_on(others[-1])

    def _has_place(self, name: str) -> bool:
        at = self._index[name]
        running = 0 if self._engine is None else sum(each.server == at for each in self._engine.attempts.values())
        return running < self._replicas[at].max_concurrent

    def others_on(self) -> set[str]:
        """Replicas that run requests of other handles, as far as is known."""
        return {name for name in self._index if self._taken.get(name, 0) > 0}

    def too_large(self) -> list[tuple[Hashable, UserError]]:
        """Forget waiting requests that fit no replica of the last round; returns the reason for each."""
        found: list[tuple[Hashable, UserError]] = []
        for key, known in self._known.items():
            if known.replica is None and (why := self._why_nowhere(known.demand)):
                found.append((key, UserError(f"request: {why}")))
        for key, _ in found:
            self.leave(key, "rejected")
        return found

    def _why_nowhere(self, need: Demand) -> str:
        """Why no replica of the last round can hold a request; empty: one can, or has not said yet what it has."""
        alike = [each for each in self._replicas if each.labels is None or {*need.labels} <= {*each.labels}]
        if not self._replicas or any(
            fits(need.memory_gb, need.places, 0, each.memory_gb, each.max_concurrent, 0) for each in alike
        ):
            return ""
        if not alike:
            return f"labels {', '.join(need.labels)}: no replica has them all"
        most = max(each.max_concurrent for each in alike)
        if need.places > most:
            return f"places {need.places}: the largest replica has max_ongoing_requests {most}"
        largest = max(each.memory_gb for each in alike if each.max_concurrent >= need.places)
        return f"memory_gb {need.memory_gb:g}: the largest replica has {largest:g}"

    def round(self, replicas: Sequence[Replica], queued: Mapping[str, int]) -> list[tuple[Hashable, str]]:
        """Ask the scheduler: the requests that start now, and where.

        Args:
            replicas: that there are.
            queued: how many requests each is known to have, those of other handles included.

        Raises:
            UserError: it cannot decide for such replicas.
        """
        own = Counter(known.replica for known in self._known.values())
        return self._decide(list(replicas), {name: max(0, count - own[name]) for name, count in queued.items()})

    def _decide(self, replicas: list[Replica], taken: Mapping[str, int]) -> list[tuple[Hashable, str]]:
        """See `round`; `taken`: how many requests of others each replica has."""
        if replicas != self._replicas:
            self._begin_anew(replicas)
        engine = self._engine
        if engine is None:
            return []
        now = self.decided_s = self.clock()
        engine.advance(now)
        self._hold(taken)
        self._started.clear()
        if engine.num_waiting:
            asks = iter([True])
            engine.play(self._policy, lambda: next(asks, False))
            if not engine.attempts:
                engine.start_any()
        found: list[tuple[Hashable, str]] = []
        for attempt in self._started:
            key = self._keys[attempt.workflow]
            replica = self._replicas[attempt.server].name
            self._start(self._known[key], replica, now)
            found.append((key, replica))
        return found

    # ------------------------------------------------------------------ the engine

    def _begin_anew(self, replicas: list[Replica]) -> None:
        """Other replicas: an engine of them, and in it the requests that are there."""
        self._replicas, self._index = replicas, {replica.name: at for at, replica in enumerate(replicas)}
        self._others = {name: self._others.get(name, []) for name in self._index}
        if self._engine is not None:
            self._counted, self._former = self._engine.counted, self._engine
        self._engine = None
        if not replicas:
            return
        env = self._problem()
        self._label_names = env.cluster.label_names
        seeds = [(self.settings.seed, 0)]
        if self._counted is None:
            self._policy.reset(seeds)
        else:
            getattr(self._policy, "change_servers", self._policy.reset)(seeds)
        self._engine = EventEngine(env, self._started.append, keeps_ended=False)
        every = sorted(chain(self._known.values(), *self._others.values()), key=lambda known: known.number)
        seen = [known for known in every if known.number < (self._counted or 0)]
        for known in seen:
            self._enter(known)
        self._engine.view()  # the policy has counted these as arrived
        for known in every[len(seen) :]:
            self._enter(known)
        self._engine.advance(self.clock())
        for known in every:
            self._go_on(known)
        if self._former is not None:
            self._engine.go_on_counting(self._former)

    def _problem(self) -> EnvConfig:
        """The replicas as a problem that the policy plays."""
        tiers = tuple(
            TierConfig(
                name=f"replica{at}",
                count=1,
                max_concurrent=replica.max_concurrent,
                compute_gflops=replica.compute_gflops,
                memory_gb=replica.memory_gb,
                slowdown=self.settings.slowdown,
                labels=replica.labels or (),
            )
            for at, replica in enumerate(self._replicas)
        )
        cluster = ClusterConfig(tiers=tiers, bandwidth_gb_s=self.settings.bandwidth_gb_s)
        return self._policy.problem(for_servers(self._base, cluster))

    def _enter(self, known: _Known) -> None:
        """Add a request to the engine: a workflow of one task, after the call before if that is known."""
        engine, demand = self._engine, known.demand
        known.is_entered = engine is not None and (known.replica is None or known.replica in self._index)
        if engine is None or not known.is_entered:
            return
        home = known.entered_home = self._index.get(known.home or "", -1)
        calls = 1 if home < 0 else 2
        labels = label_bits(demand.labels, self._label_names)
        needs = demand.compute_gflop, demand.memory_gb, known.moved_gb, 0.0, demand.places, labels
        demands = np.array([needs] * calls, dtype=TASK_DEMAND)
        engine.advance(known.arrival_s)
        engine.arrive(known.number, known.arrival_s, demands, CHAIN[: calls - 1], home=home)

    def _go_on(self, known: _Known) -> None:
        """Have the engine know that a request runs, if it does; where there is no room, it knows nothing of it."""
        if self._engine is None or known.replica is None or not known.is_entered:
            return
        task, server = int(known.entered_home >= 0), self._index[known.replica]
        if self._engine.resume(known.number, task, server, known.start_s) is None:
            self._drop(known)
            known.is_entered = False
