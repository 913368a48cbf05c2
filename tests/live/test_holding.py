"""Which replica of a language model a router names, and what it holds; on a real Serve in `test_serve.py`."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray.serve", exc_type=ImportError)

from rllib_scale.config.replica_rules import FLEET_RULES
from rllib_scale.errors import UserError
from rllib_scale.live import holding
from rllib_scale.live.holding import HoldingRouter
from rllib_scale.live.requests import Demand, Replica, RouterSettings
from rllib_scale.live.serve import router_config

TWO = [Replica("a", 64, 1.0, 16.0), Replica("b", 64, 1.0, 16.0)]


class Router(HoldingRouter):
    """On a clock of the test."""

    now_s = 0.0

    def __init__(self, scheduler: str, kv_tokens: int = 1000, **settings: Any) -> None:
        super().__init__(RouterSettings(scheduler=scheduler, replica={"kv_tokens": kv_tokens}, **settings))

    def clock(self) -> float:
        return self.now_s

    def asks(self, session: str, tokens: int, replicas: list[Replica] = TWO) -> str | None:
        """Where a call starts, named by its session; None: it is held."""
        self.arrive(session, Demand(session=session, prompt_tokens=tokens), self.now_s)
        return dict(self.round(replicas, {})).get(session)


def test_a_gate_holds_what_would_not_fit_and_lets_it_go_once_a_session_is_inactive() -> None:
    router = Router("lmetric:gate=1", active_for_s=30.0)
    homes = {session: router.asks(session, 600) for session in "klm"}
    assert {homes["k"], homes["l"]} == {"a", "b"}
    assert homes["m"] is None, "either replica has 600 of 1000 tokens in use"
    router.leave("k")
    assert router.round(TWO, {}) == [("m", homes["k"])], "an idle replica takes what the gate would hold"
    router.leave("l")
    router.leave("m")
    router.arrive("busy", Demand(session="l", prompt_tokens=700), router.now_s)
    assert router.round(TWO, {}) == [("busy", homes["l"])], "its session is active there"
    router.asks("more", 350)
    assert router.asks("n", 600) is None
    router.now_s = 29.0
    assert router.round(TWO, {}) == []
    router.now_s = 31.0
    assert router.round(TWO, {}) == [("n", homes["k"])], "of k and m nothing is active any more"
    assert router.stats()[:4] == (2, 0, 3, 6)


def test_without_a_gate_none_is_held_and_a_context_is_worth_waiting_for() -> None:
    router = Router("lmetric")
    assert all(router.asks(f"s{number}", 900) for number in range(6))
    kept = Router("lmetric", kv_tokens=100_000)
    home = kept.asks("k", 800)
    kept.leave("k")
    others = [kept.asks(f"s{number}", 10) for number in range(8)]
    assert home in others
    assert kept.asks("k", 810) == home, "10 new tokens beside some calls, not 810 beside as many"
    kept.lost("a")
    kept.leave("k")
    assert kept.asks("k", 820, [TWO[1]]) == "b"


def test_a_shared_prefix_counts_once() -> None:
    router, one = Router("lmetric:gate=1"), TWO[:1]
    for number in range(8):
        demand = Demand(session=f"s{number}", prompt_tokens=400, prefix="tools", prefix_tokens=300)
        router.arrive(number, demand, 0.0)
    assert [key for key, _ in router.round(one, {})] == [*range(7)], "300 + 7 x 100 tokens"
    router.arrive("other", Demand(prompt_tokens=400), 0.0)
    router.leave(0)
    router.now_s = 100.0
    assert router.round(one, {}) == [(7, "a")]


class Machine:
    """The gate of one replica, literally: who runs and who is idle, in unique tokens."""

    def __init__(self, gate: float, memory: int, active_for_s: float, order: float, head_after_s: float) -> None:
        self.limit, self.active_for_s = gate * memory, active_for_s
        self.order, self.head_after_s = order, head_after_s
        self.demands, self.running = dict[str, Demand](), dict[str, int]()
        self.idle: list[tuple[float, str]] = []  # the one that has been idle longest is the first
        self.waiting: dict[int, tuple[float, Demand]] = {}
        self.new, self.ends, self.made_room = list[int](), 0, False

    def tokens(self, *others: Demand) -> int:
        those = [self.demands[name] for name in {*self.running, *(name for _, name in self.idle)}]
        those += others
        return sum(each.prompt_tokens - each.prefix_tokens for each in those) + sum(
            tokens for _, tokens in {(each.prefix, each.prefix_tokens) for each in those}
        )

    def pause(self) -> None:
        while self.tokens() > self.limit and self.idle:
            self.idle.pop(0)
            self.made_room = True

    def line(self, key: int, now_s: float) -> tuple[float, ...]:
        """Its place among held calls."""
        asked_s, demand = self.waiting[key]
        if now_s - asked_s > self.head_after_s:
            return -math.inf, key
        return asked_s / 60 + self.order * demand.prompt_tokens / 1e5, key

    def round(self, now_s: float) -> list[int]:
        active = [each for each in self.idle if each[0] + self.active_for_s > now_s]
        events, self.idle = self.ends + len(self.idle) - len(active), active
        self.pause()
        started = self.offer_held(4 * events, now_s)
        while self.new:
            key, self.made_room = self.new.pop(0), False
            started += self.offer(key)
            if self.made_room:
                started += self.offer_held(4, now_s)
        self.ends = 0
        return started

    def offer_held(self, offers: int, now_s: float) -> list[int]:
        """At an event; and again, if what goes then makes room."""
        started, self.made_room = list[int](), True
        while self.made_room:
            self.made_room = False
            held = sorted((key for key in self.waiting if key not in self.new), key=lambda key: self.line(key, now_s))
            for place, key in enumerate(held):
                if place < offers or not self.running:
                    started += self.offer(key)
            offers = 4
        return started

    def offer(self, key: int) -> list[int]:
        """The call, if it starts."""
        demand, counted = self.waiting[key][1], self.tokens()
        assert demand.session is not None
        is_active = demand.session in self.running or demand.session in [name for _, name in self.idle]
        if self.running and not is_active and self.tokens(demand) > self.limit:
            return []
        del self.waiting[key]
        self.idle = [each for each in self.idle if each[1] != demand.session]
        self.running[demand.session] = self.running.get(demand.session, 0) + 1
        self.demands[demand.session] = demand
        self.made_room |= self.tokens() < counted
        self.pause()
        return [key]

    def end(self, session: str, now_s: float) -> None:
        self.ends += 1
        self.running[session] -= 1
        if self.running[session] == 0:
            del self.running[session]
            self.idle.append((now_s, session))


@given(st.integers(0, 2**32), st.booleans())
def test_a_gate_is_the_machine_of_running_idle_and_away_sessions(seed: int, has_order: bool) -> None:
    """Prompts of sessions are new with an order, as what is needed depends on the caches otherwise."""
    rng, order, head_after_s = random.Random(seed), 300.0 * has_order, 30.0 if has_order else math.inf
    parameters = f",order={order},head_after_s={head_after_s}" if has_order else ""
    router = Router(f"lmetric:gate=0.8{parameters}", active_for_s=20.0)
    machine = Machine(0.8, 1000, 20.0, order, head_after_s)
    running, one = dict[int, str](), TWO[:1]
    for number in range(100):
        router.now_s += rng.expovariate(1.0)
        if running and rng.random() < 0.45:
            key = rng.choice([*running])
            router.leave(key)
            machine.end(running.pop(key), router.now_s)
        else:
            prefix, tokens = (None, 0) if has_order else rng.choice([(None, 0), ("p", 50), ("q", 120)])
            session = f"s{number if has_order else rng.randrange(12)}"
            demand = Demand(session=session, prompt_tokens=rng.randint(120, 400), prefix=prefix, prefix_tokens=tokens)
            router.arrive(number, demand, router.now_s)
            machine.waiting[number] = router.now_s, demand
            machine.new.append(number)
        asked = {key: str(each.session) for key, (_, each) in machine.waiting.items()}
        started = machine.round(router.now_s)
        assert [key for key, _ in router.round(one, {})] == started
        running |= {key: asked[key] for key in started}


def test_a_full_replica_is_waited_for_and_calls_of_other_handles_count() -> None:
    narrow = [Replica("a", 1, 1.0, 16.0), Replica("b", 1, 1.0, 16.0)]
    router = Router("session-affinity")
    home = router.asks("k", 10, narrow)
    router.arrive("again", Demand(session="k", prompt_tokens=20), 0.0)
    assert router.round(narrow, {}) == [], "its replica is full"
    router.leave("k")
    assert router.round(narrow, {}) == [("again", home)]
    other = Router("least-outstanding")
    other.arrive("x", Demand(prompt_tokens=10), 0.0)
    assert other.round(TWO, {"a": 3, "b": 2}) == [("x", "b")]
    assert other.others_on() == {"a", "b"}


def test_an_answer_of_the_rule_is_a_decision_and_a_wait_without_one_is_none() -> None:
    router, small = Router("lmetric"), [each._replace(max_concurrent=1) for each in TWO]
    for session in "klm":
        router.arrive(session, Demand(session=session, prompt_tokens=10), 0.0)
    assert len(router.round(small, {})) == 2
    assert router.stats().decisions == 2, "no replica has a place for m: the rule is not asked"
    router.round(small, {})
    assert router.stats().decisions == 2
    router.leave("k")
    assert [session for session, _ in router.round(small, {})] == ["m"]
    assert router.stats().decisions == 3


def test_a_rule_whose_terms_a_router_does_not_know_is_refused_and_no_other_reads_them() -> None:
    """Whatever stands where only a simulator writes, the others decide the same."""
    refused: list[str] = []
    for name in FLEET_RULES:
        try:
            routers = Router(name, kv_tokens=100_000), Router(name, kv_tokens=100_000)
        except UserError as error:
            refused.append(str(error))
            continue
        rng, places = np.random.default_rng(1), []
        for number in range(40):
            session, tokens = f"s{int(rng.integers(12))}-{number % 2}", int(rng.integers(10, 3000))
            for router, is_other in zip(routers, (False, True), strict=True):
                if is_other and number:
                    for term in ("decoding", "context", "backlog"):
                        router._fleet.replicas[term] = rng.integers(0, 5000, len(TWO))
                places.append(router.asks(f"{session}-{number}", tokens))
        assert places[::2] == places[1::2], name
        assert {*places} == {"a", "b"}, name
    unable = {name: spec for name, spec in FLEET_RULES.items() if spec.no_router}
    for (rule, spec), line in zip(unable.items(), refused, strict=True):
        why = "reads .*, which a router cannot know" if spec.reads else "decides for all that waits together"
        assert re.fullmatch(rf"{rule}: {why}; valid: .*two-choices.*", line)


def test_a_request_without_a_session_counts_while_it_runs_and_not_after() -> None:
    router = Router("lmetric:gate=1")
    for key in "kl":
        router.arrive(key, Demand(prompt_tokens=600), 0.0)
    assert {name for _, name in router.round(TWO, {})} == {"a", "b"}
    assert router.asks("m", 600) is None, "either replica has 600 of 1000 tokens in use"
    router.asks("beside", 300)
    router.leave("l")
    (started,) = router.round(TWO, {})
    assert started[0] == "m"


def test_of_many_sessions_those_heard_of_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "SESSIONS", 40)
    router, homes = Router("session-affinity", kv_tokens=10**6), dict[str, str | None]()
    for number in range(3000):
        session = f"s{number // 2 % 10}" if number % 2 else f"once{number}"
        home = router.asks(session, 10)
        assert homes.setdefault(session, home) == home, "one of the 10 is never the one that was longest silent"
        router.leave(session)
    assert router.stats().ended == 3000


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match=r"lmetric:gate=1: replica is not given; valid: a preset as h100/8b"):
        router_config("lmetric:gate=1")
    with pytest.raises(UserError, match="guard: not with lmetric, which decides on LLM replicas; valid: active_for_s,"):
        router_config("lmetric", replica="h100/8b", guard="fastest-idle")
    with pytest.raises(UserError, match="prefix: not with reserve"):
        router_config("reserve", demand={"prefix": "tools", "prefix_tokens": 1})
    with pytest.raises(UserError, match=r"prefix_tokens 0: .*prefix 'tools'.*; valid: both or neither"):
        router_config("lmetric", replica="h100/8b", demand={"prefix": "tools"})
    of_all = {"scheduler", "demand", "seed", "session", "state", "fallback_after_s", "prefix", "prefix_tokens"}
    for key in (RouterSettings.model_fields | Demand.model_fields).keys() - of_all:
        refused = []
        for scheduler, needed in (("lmetric", {"replica": "h100/8b"}), ("reserve", {})):
            value = {"labels": ["eu"], "scenario": "steady-0.7", "guard": "fastest-idle", "replica": "h100/8b"}.get(
                key, 2
            )
            settings = {key: value} if key in RouterSettings.model_fields else {}
            demand = {key: value} if key in Demand.model_fields and not settings else {}
            try:
                router_config(scheduler, **needed | settings, demand=demand)
            except UserError as error:
                refused.append(str(error).partition(",")[0])
        assert refused in ([f"{key}: not with lmetric"], [f"{key}: not with reserve"]), (
            "used by one, refused by the other"
        )
    router = Router("lmetric:gate=1")
    assert router.asks("k", 1001) is None
    ((key, wrong),) = router.too_large()
    assert key == "k"
    assert str(wrong) == "request: prompt_tokens 1,001: a replica has 1,000"
    assert router.stats().rejected == 1
