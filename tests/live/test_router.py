"""Which replica takes which request; on a real Serve in `test_serve.py`."""

from __future__ import annotations

import gc
import heapq
import re
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray.serve", exc_type=ImportError)

from live.problems import resident_mb
from networks.observations import random_network
from rllib_scale.config import TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.live.guarded_routing import GuardedRouting
from rllib_scale.live.holding import HoldingRouter
from rllib_scale.live.requests import Demand, LastCall, Replica, RouterSettings, reported_replica
from rllib_scale.live.routing import Routing
from rllib_scale.live.serve import router_config
from rllib_scale.policies.policy import save_policy
from rllib_scale.schedulers.context import LOAD_UNIT, PRIOR_LOAD
from rllib_scale.schedulers.rules import SCHEDULERS
from seeds import each_of

TWO = [Replica("a", 1, 1.0, 16.0), Replica("b", 1, 1.0, 16.0)]


def routing(scheduler: str, **settings: Any) -> Routing:
    return Routing(RouterSettings(scheduler=scheduler, **settings))


def arrive(of: Routing, key: str, compute: float = 1.0, moved: float = 30.0, home: str | None = None) -> None:
    """A request; the call before it in its session ran on `home`."""
    session = None if home is None else f"of {home}"
    if session is not None and home is not None:
        of.restore(LastCall(session, home, 0.0), of.clock())
    of.arrive(key, Demand(compute_gflop=compute, moved_gb=moved, session=session), of.clock())


def test_a_call_goes_where_the_one_before_it_ran_and_a_new_session_where_the_fewest_are() -> None:
    """Of two idle replicas not to the first one, time and again."""
    one = routing("sticky")
    one.round(TWO, {})
    places = []
    for session in "klmnkn":
        one.arrive(session, Demand(session=session, moved_gb=30.0), one.clock())
        ((_, name),) = one.round(TWO, {})
        one.leave(session)
        places.append(name)
    assert places == ["a", "b", "a", "b", "a", "b"]


def test_what_was_kept_on_a_replica_is_lost_with_it() -> None:
    one = routing("sticky")
    one.round(TWO, {})
    arrive(one, "long", compute=100.0, home="b")
    one.round(TWO, {})
    one.lost("b")
    one.arrive("call", Demand(session="of b", moved_gb=1e6), one.clock())
    assert one.round(TWO, {}) == [("call", "a")], "it does not wait for what is gone"


@pytest.mark.parametrize(("moved", "waits"), [(200.0, True), (20.0, False)])
def test_it_waits_where_that_is_shorter_than_moving(moved: float, waits: bool) -> None:
    """10 s are left on the busy replica; 200 GB take 20 s to move, 20 GB 2 s."""
    one = routing("sticky")
    one.round(TWO, {})
    arrive(one, "long", compute=10.0, home="a")
    assert one.round(TWO, {}) == [("long", "a")]
    arrive(one, "call", moved=moved, home="a")
    arrive(one, "other")
    if waits:
        assert one.round(TWO, {}) == [("other", "b")], "who waits blocks nobody"
        one.leave("long")
        assert one.round(TWO, {}) == [("call", "a")]
    else:
        assert one.round(TWO, {}) == [("call", "b")]


def test_requests_of_other_handles_take_places() -> None:
    one = routing("least-loaded")
    arrive(one, "call")
    assert one.round(TWO, {"a": 1, "b": 1}) == []
    assert one.others_on() == {"a", "b"}
    assert one.round(TWO, {"a": 1}) == [("call", "b")]
    assert one.round(TWO, {"a": 1, "b": 1}) == [], "its own is counted once"
    assert one.others_on() == {"a"}


def test_replicas_come_and_go() -> None:
    one = routing("least-loaded")
    for key in ("first", "second", "third"):
        arrive(one, key)
    taken = dict(one.round(TWO, {}))
    assert sorted(taken.values()) == ["a", "b"], "a place is given once"
    assert one.waiting == 1
    three = [*TWO, Replica("c", 1, 1.0, 16.0)]
    assert [name for _, name in one.round(three, {})] == ["c"], "what runs on the others still does"
    arrive(one, "fourth")
    for key in taken:
        one.leave(key)
    assert one.round(three[2:], {}) == []
    assert one.round([], {}) == []
    assert [key for key, _ in one.round(three, {})] == ["fourth"]


@pytest.mark.parametrize("scheduler", ["adaptive-price", "zoo:adaptive-price"])
def test_a_policy_keeps_what_it_has_learned_when_replicas_come_and_go(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another speed comes just when one with the same memory goes: prices are of those that are there."""
    one, ticks, served = routing(scheduler), count(), 0
    monkeypatch.setattr(one, "clock", lambda: next(ticks) / 100)

    def serve(replicas: list[Replica], requests: int) -> None:
        nonlocal served
        for _ in range(requests):
            arrive(one, str(served))
            assert [key for key, _ in one.round(replicas, {})] == [str(served)]
            one.leave(str(served))
            served += 1

    serve(TWO, 20)
    learned = one._policy.learned  # type: ignore[attr-defined]
    assert learned.estimates.counts["sampled"][0] == 20
    arrive(one, "long", compute=100.0)
    assert [key for key, _ in one.round(TWO, {})] == ["long"]
    fast = Replica("c", 1, 4.0, 16.0)
    serve([TWO[0], TWO[1], fast], 5)
    assert sorted(learned.prices.classes["capacity"][0, :2]) == [1.0, 4.0]
    one.leave("long")
    serve([fast._replace(name="d", compute_gflops=2.0)], 5)
    assert one._policy.learned is learned  # type: ignore[attr-defined]
    assert learned.estimates.counts["sampled"][0] == 31, "what ran or waited is not counted again"
    assert learned.prices.means["num_classes"][0] == 1
    assert learned.prices.classes["capacity"][0, 0] == 2.0
    assert one.round([], {}) == []
    serve(TWO, 1)
    assert learned.prices.classes["capacity"][0, 0] == 1.0
    assert learned.estimates.counts["sampled"][0] == 32


def observed_load(one: Routing) -> float:
    """As the policy of a router sees it, over the longer of its times."""
    policy: Any = one._policy
    if hasattr(policy, "learned"):
        return float(PRIOR_LOAD + LOAD_UNIT * policy.learned.inputs[0, 3])
    return float(PRIOR_LOAD + LOAD_UNIT * policy.context[0, 2])


@pytest.mark.parametrize("scheduler", ["adaptive-price", "zoo:context-price"])
def test_the_load_is_that_of_the_requests_and_goes_on_when_replicas_change(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of sessions at load 0.5 on 8 replicas: the call before is no new work, nor is all there is on a ninth."""
    one, now, ends = routing(scheduler), 0.0, []
    monkeypatch.setattr(one, "clock", lambda: now)
    eight = [Replica(f"r{k}", 1, 1.0, 16.0) for k in range(8)]

    def serve(replicas: list[Replica], until: float) -> None:
        nonlocal now, ends
        while now < until:
            now += 1.0
            for key in [key for end, key in ends if end <= now]:
                one.leave(key)
            ends = [each for each in ends if each[0] > now]
            one.arrive(now, Demand(compute_gflop=4.0, session=str(now % 40)), now)
            ends += [(now + 4.0, key) for key, _ in one.round(replicas, {})]

    serve(eight, 600.0)
    assert observed_load(one) == pytest.approx(0.5, abs=0.05)
    serve([*eight, Replica("ninth", 1, 1.0, 16.0)], 603.0)
    assert observed_load(one) == pytest.approx(0.5 * 8 / 9, abs=0.05)
    serve(eight[:4], 604.0)
    assert observed_load(one) == pytest.approx(1.0, abs=0.1)


def test_a_request_that_no_replica_can_hold_is_refused() -> None:
    """Whether it was there before the replicas or came later; one that fits exactly is not."""
    one = routing("sticky")
    one.arrive("early", Demand(memory_gb=17.0), one.clock())
    assert one.too_large() == [], "no replica is known yet"
    assert one.round(TWO, {}) == []
    one.arrive("late", Demand(memory_gb=16.5), one.clock())
    one.arrive("exact", Demand(memory_gb=16.0), one.clock())
    assert [(key, str(wrong)) for key, wrong in one.too_large()] == [
        ("early", "request: memory_gb 17: the largest replica has 16"),
        ("late", "request: memory_gb 16.5: the largest replica has 16"),
    ]
    assert [key for key, _ in one.round(TWO, {})] == ["exact"]
    assert one.waiting == 0
    one.leave("exact")
    arrive(one, "given up")
    one.leave("given up", "dropped")
    stats = one.stats()
    assert (stats.started, stats.ended, stats.dropped, stats.rejected) == (1, 1, 1, 2)
    one.round(TWO[:1], {})
    assert one.stats()[3:-3] == stats[3:-3], "other replicas change nothing of it"


def test_a_request_goes_to_a_replica_with_its_labels_and_places() -> None:
    """By every kind of rule; one that no replica suits is refused, but not before all have said what they have."""
    plain, large = Replica("plain", 4, 9.0, 16.0, ("a100",)), Replica("large", 4, 1.0, 16.0, ("h100", "eu"))
    for scheduler in ("sticky", "least-loaded", "earliest-finish", "adaptive-price", "reserve:waiting=1"):
        one = routing(scheduler)
        one.round([plain, large._replace(labels=None)], {})
        one.arrive("wide", Demand(places=3, labels=("h100",)), one.clock())
        one.arrive("narrow", Demand(places=2, labels=("h100", "eu")), one.clock())
        assert one.round([plain, large._replace(labels=None)], {}) == [] == one.too_large(), scheduler
        ((first, where),) = one.round([plain, large], {})
        assert (where, one.too_large()) == ("large", []), "three of its four places are taken"
        one.leave(first)
        ((_, where),) = one.round([plain, large], {})
        assert where == "large"
    one.arrive("nowhere", Demand(labels=("a100", "eu")), one.clock())
    one.arrive("too wide", Demand(places=5), one.clock())
    one.round([plain, large], {})
    assert [(key, str(wrong)) for key, wrong in one.too_large()] == [
        ("nowhere", "request: labels a100, eu: no replica has them all"),
        ("too wide", "request: places 5: the largest replica has max_ongoing_requests 4"),
    ]


def test_a_call_waits_while_the_replica_of_the_one_before_it_is_away() -> None:
    """It is first seen without the call before it, then behind it."""
    one = routing("adaptive-price")
    one.round(TWO, {})
    arrive(one, "long", compute=100.0, home="a")
    assert one.round(TWO, {}) == [("long", "a")]
    arrive(one, "call", moved=200.0, home="b")
    assert one.round(TWO[:1], {}) == []
    assert one.round(TWO, {}) == [("call", "b")]


def test_a_dispatcher_and_a_policy_decide_too(tmp_path: Path) -> None:
    save_policy(tmp_path / "scale", random_network(), TrialConfig.of(seed=7), epochs=3)
    for name in ("reserve", str(tmp_path / "scale")):
        one = routing(name)
        one.round(TWO, {})
        arrive(one, "call", home="a")
        assert [key for key, _ in one.round(TWO, {})] == ["call"]


def test_a_user_defined_scheduler_that_names_no_request_is_named() -> None:
    one = routing("live.problems:NamesNoTask")
    arrive(one, "call")
    with pytest.raises(
        UserError, match=r"scheduler NamesNoTask: workflow 0, task 99 cannot start on server 0; expected"
    ):
        one.round(TWO, {})


def served(
    one: Routing,
    replicas: list[Replica],
    load: float,
    until: float,
    joins_s: float = 1e9,
    seed: int = 0,
    cancels: float = 0.02,
) -> list[float]:
    """The stay of each request of 1 s in virtual time [s]; one in 20 takes three times as long, some are cancelled.

    From `joins_s` on there is another replica, and another handle takes a place of the first one.
    """
    rng, now, stays = np.random.default_rng(seed), 0.0, {}
    left: set[int] = set()
    one.clock = lambda: now  # type: ignore[method-assign]
    times = np.cumsum(rng.exponential(1 / load / len(replicas), 10_000))
    events = [(at, "arrive", key) for key, at in enumerate(times[times < until].tolist())]
    lasts = np.where(rng.random(len(events)) < 0.05, 3.0, 1.0)
    gone = np.flatnonzero(rng.random(len(events)) < cancels)
    events += [
        (float(times[key] + delay), "cancel", int(key))
        for key, delay in zip(gone, rng.exponential(1.0, len(gone)), strict=True)
    ]
    heapq.heapify(events)
    while events:
        now, what, key = heapq.heappop(events)
        if what == "arrive":
            one.arrive(key, Demand(moved_gb=0.0, session=str(key % 50)), now)
            stays[key] = -now
        elif key in left:
            continue
        else:
            one.leave(key, "answered" if what == "end" else "dropped")
            left.add(key)
            stays[key] += now
            if what == "cancel":
                del stays[key]
        if key % 50 == 49 and one.replica_of(key) is None and what == "arrive":
            one.leave(key, "dropped")
            left.add(key)
            del stays[key]
        late = now >= joins_s
        there = [*replicas, Replica("late", 1, 1.0, 16.0)] if late else replicas
        queued = {replicas[0].name: 1 + sum(one.replica_of(k) == replicas[0].name for k in stays)} if late else {}
        for started, _ in one.round(there, queued):
            heapq.heappush(events, (now + float(lasts[int(str(started))]), "end", int(str(started))))
    return list(stays.values())


def guarding(scheduler: str, guard: dict[str, Any]) -> tuple[GuardedRouting, list[str]]:
    said: list[str] = []
    return GuardedRouting(RouterSettings(scheduler=scheduler, guard=guard), said.append), said


FOUR = [Replica("a", 2, 1.0, 16.0), *(Replica(name, 1, 1.0, 16.0) for name in "bcd")]


@pytest.mark.parametrize("rule", ["least-loaded", "adaptive-price"])
def test_the_guard_of_a_router_takes_over_from_a_bad_scheduler(rule: str) -> None:
    """What comes later is as with the rule alone, or nearly: requests under way are not moved."""
    one, said = guarding("live.problems:OnlySlowest", {"scheduler": rule, "window": 20})
    stays = served(one, FOUR, 0.2, 1000.0)
    alone = served(routing(rule), FOUR, 0.2, 1000.0)
    assert one.stats().guard == "took over"
    assert len(said) == 1
    assert re.fullmatch(rf"{rule} takes over from .* after [0-9.]+ s: 20 requests stayed [0-9.]+ times as .*", said[0])
    half = len(alone) // 2
    assert np.mean(stays[half:]) == pytest.approx(np.mean(alone[half:]), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_the_guard_of_a_router_leaves_a_good_scheduler_alone(load: float) -> None:
    """Requests are cancelled, replicas come, and other handles take places: all of it in the shadow, too.

    Stays of a few dozen requests differ by chance between two rules that are equally good.
    """
    for scheduler, rule in (("least-loaded", "fastest-idle"), ("fastest-idle", "least-loaded"), ("sticky", "sticky")):
        one, said = guarding(scheduler, {"scheduler": rule})
        served(one, FOUR, load, 1500.0, joins_s=500.0)
        assert (one.stats().guard, said) == ("watching", []), scheduler


SAME = ("fastest-idle", "least-loaded", "sticky", "power-of-two", "reserve:waiting=1", "price", "adaptive-price")


@each_of(range(500), by_default=14)
def test_the_same_rule_on_both_sides_of_a_router_does_the_same(case: int) -> None:
    """A fifth of the requests is cancelled, a replica comes, and others take places: it never takes over."""
    rng, name = np.random.default_rng([case, 61]), SAME[case % len(SAME)]
    one, said = guarding(name, {"scheduler": name, "margin": 0.0, "window": 10})
    served(one, FOUR, float(rng.uniform(0.3, 1.1)), 60.0, joins_s=float(rng.uniform(0, 120)), seed=case, cancels=0.2)
    assert (one.stats().guard, said) == ("watching", []), name
    assert one.stats().guard_ratio == pytest.approx(1.0, rel=1e-9)


@each_of(range(300), by_default=12)
def test_no_request_starts_where_it_does_not_fit(case: int) -> None:
    """Random labels and places, whatever replicas have said of themselves by then; all that fit start in the end."""
    rng = np.random.default_rng([case, 61])
    name = ("sticky", "least-loaded", "earliest-finish", "adaptive-price", "reserve:waiting=1", "fastest-idle")[
        case % 6
    ]
    one, names = routing(name), ("a100", "h100", "eu")
    truth = {
        key: Replica(key, int(rng.integers(1, 5)), 1.0, 16.0, tuple(n for n in names if rng.random() < 0.4))
        for key in "klm"[: rng.integers(1, 4)]
    }
    said, runs, waits = set[str](), dict[int, tuple[str, Demand]](), dict[int, Demand]()
    for number in range(40):
        demand = Demand(places=int(rng.integers(1, 5)), labels=tuple(n for n in names if rng.random() < 0.3))
        one.arrive(number, demand, one.clock())
        waits[number] = demand
        if rng.random() < 0.1:
            said |= {*list(truth)[: rng.integers(1, 4)]}
        if number == 30:
            said = {*truth}
        shown = [replica if key in said else replica._replace(labels=None) for key, replica in truth.items()]
        for key, where in one.round(shown, {}):
            demand = waits.pop(int(str(key)))
            assert {*demand.labels} <= ({*truth[where].labels} if where in said else set())
            runs[int(str(key))] = where, demand
        for key, replica in truth.items():
            assert sum(demand.places for where, demand in runs.values() if where == key) <= replica.max_concurrent
        for key, _ in one.too_large():
            demand = waits.pop(int(str(key)))
            assert not any(
                demand.places <= r.max_concurrent and {*demand.labels} <= {*r.labels} for r in truth.values()
            )
        for key in [key for key in runs if rng.random() < 0.4]:
            one.leave(key)
            del runs[key]
    for _ in range(2 * len(waits)):
        for key in runs:
            one.leave(key)
        runs = {int(str(key)): (where, waits.pop(int(str(key)))) for key, where in one.round([*truth.values()], {})}
    assert not waits


def test_a_request_that_is_there_already_is_one_error() -> None:
    holding = HoldingRouter(RouterSettings(scheduler="lmetric", replica={"kv_tokens": 1000}))
    for one in (routing("sticky"), holding):
        one.arrive("call", Demand(), 0.0)
        for key, since_s in (("call", 0.0), ("other", float("nan"))):
            with pytest.raises(ValueError, match=f"request '{key}': "):
                one.arrive(key, Demand(), since_s)
        one.leave("nobody")
        assert (one.waiting, one.stats().ended) == (1, 0)
        assert [key for key, _ in one.round(TWO, {})] == ["call"]


def test_figures_of_a_router_are_of_its_own_requests_and_never_fall() -> None:
    """Without a replica what waits waits; places that others take are no requests of this handle."""
    one = routing("least-loaded")
    arrive(one, "early")
    assert (one.stats().waiting, one.stats().servers) == (1, 0)
    for number in range(60):
        one.arrive(number, Demand(), one.clock())
        one.round(FOUR, {"a": number % 3})
        one.leave(number)
    one.leave("early")
    arrive(one, "last")
    before = one.stats()
    assert (before.ended, before.waiting, before.running) == (61, 1, 0)
    assert before.started <= 61
    assert before.decisions >= before.started
    one.round([], {})
    after = one.stats()
    assert (after.servers, after.waiting) == (0, 1)
    assert after[3:9] == before[3:9], "counters go on"
    one.round(FOUR, {"a": 1})
    assert (one.stats().started, one.stats().running) == (before.started + 1, 1)


@pytest.mark.slow
def test_200_000_requests_take_no_more_memory_than_20_000() -> None:
    """Decided on one after another, as in a handle of Serve; calls of 1,000 sessions."""
    one = routing("sticky")
    one.round(TWO, {})
    used = []
    for number in range(200_000):
        one.arrive(number, Demand(session=str(number % 1000)), one.clock())
        one.round(TWO, {})
        one.leave(number)
        if number in (19_999, 199_999):
            gc.collect()
            used.append(resident_mb())
    first, last = used
    assert last < 1.1 * first, used


def test_a_router_takes_every_rule_that_decides_request_by_request_and_names_those() -> None:
    """A round of those that it refuses takes longer with every request that waits, or they need the workload."""
    taken = []
    for name in SCHEDULERS:
        try:
            one = routing(name)
        except UserError as error:
            refused, valid = str(error), str(error).partition("valid: ")[2]
            assert name in refused
            assert name not in valid.split(", ")
            continue
        taken.append(name)
        for key in "abc":
            arrive(one, key)
        assert len(one.round(TWO, {})) == 2, name
    assert sorted(set(SCHEDULERS) - set(taken)) == ["cpop", "dual-price", "heft", "hungarian", "max-min", "min-min"]
    assert taken == valid.split(", ")


@pytest.mark.parametrize(
    ("stats", "message"),
    [
        ({"compute_gflops": -1}, r"compute_gflops: .*1e-15 \(got -1\)"),
        ({"memory_gb": "much"}, r"memory_gb: .*number.*\(got 'much'\)"),
        ({"labels": "eu"}, r"labels: .*valid list \(got 'eu'\)"),
        ({"labels": ["not one"]}, r"labels\.0: .*\(got 'not one'\)"),
        ({"kv_tokens": 0}, r"kv_tokens: .*greater than or equal to 1 \(got 0\)"),
        (["eu"], r"\['eu'\]; valid: a dict with any of compute_gflops, memory_gb, labels, kv_tokens"),
    ],
)
def test_a_wrong_report_of_a_replica_is_one_error(stats: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^record_routing_stats of replica a: {message}"):
        reported_replica("a", 1, stats, RouterSettings())


def test_what_cannot_be_is_refused_before_a_deployment(tmp_path: Path) -> None:
    save_policy(tmp_path / "mlp", random_network(method="ppo"), TrialConfig.of("ppo"), epochs=3)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"scheduler": "stickie"}, "stickie"),
        ({"scheduler": "heft"}, "heft: plans ahead, and a router decides request by request; valid: .*adaptive-price"),
        ({"scheduler": "dual-price:load=0.7"}, "dual-price:load=0.7: knows the workload's distribution and load"),
        ({"scheduler": "sticky", "scenario": "nowhere"}, "nowhere"),
        ({"scheduler": "sticky", "bandwidth": 1.0}, "bandwidth"),
        ({"scheduler": "sticky", "demand": "no_such_module:f"}, "must be module:function"),
        ({"scheduler": "sticky", "demand": {"compute_gflop": -1}}, "compute_gflop"),
        ({"scheduler": "/no/such/folder"}, "/no/such/folder"),
        ({"guard": "heft"}, "heft: plans ahead"),
        ({"guard": {"window": 3}}, "guard.window"),
        ({"guard": {"margins": 3}}, "guard.margins"),
        ({"scheduler": str(tmp_path / "mlp")}, "trained at 16 servers and knows no other number"),
    ]
    for settings, message in refused:
        with pytest.raises(UserError, match=message) as error:
            router_config(**settings)
        assert "\n" not in str(error.value)
