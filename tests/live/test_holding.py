"""Which replica of a language model a router names, and what it holds; on a real Serve in `test_serve.py`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray.serve", exc_type=ImportError)

from rllib_scale.config.schedulers import FLEET_RULES
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
    for rule, line in zip(("prefix-cache-affinity", "marginal-price"), refused, strict=True):
        assert re.fullmatch(rf"{rule}: reads .*, which a router cannot know; valid: .*two-choices.*", line)


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
