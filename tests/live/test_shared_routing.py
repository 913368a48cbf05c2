"""One state of several handles whose messages are lost, repeated or late, and which die; on a real Serve in
`test_one_state.py`."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray.serve", exc_type=ImportError)

from rllib_scale.live import shared_routing, stats
from rllib_scale.live.requests import Call, Demand, LastCall, Replica, RouterSettings
from rllib_scale.live.router_client import RouterClient, stats_of
from rllib_scale.live.shared_routing import Report, SharedRouting

TWO = [Replica("a", 64, 1.0, 16.0), Replica("b", 64, 1.0, 16.0)]


def shared(scheduler: str = "lmetric:gate=1", **settings: Any) -> SharedRouting:
    return SharedRouting(RouterSettings(scheduler=scheduler, replica={"kv_tokens": 1000}, **settings))


class Handle:
    """What a handle knows, literally, and its messages, which a network may lose, repeat and delay."""

    def __init__(self, name: str) -> None:
        self.name, self.calls, self.next, self.sent = name, dict[int, Call](), 0, 0
        self.network: list[tuple[int, list[tuple[Any, ...]]]] = []

    def happens(self, *event: Any) -> None:
        self.network.append((self.sent, [event]))
        self.sent += 1

    def register(self, to: SharedRouting) -> None:
        """Messages from before are not sent any more."""
        self.network.clear()
        self.sent = 0
        to.register(self.name, Report(TWO, list(self.calls.values()), [], False))

    def receive(self, of: SharedRouting) -> None:
        for number, replica, _ in of.pop_decisions(self.name):
            if number in self.calls:
                self.calls[number] = self.calls[number]._replace(replica=replica)


@given(st.integers(0, 2**32))
def test_lost_repeated_and_late_messages_and_dead_handles_leave_the_state_that_the_handles_know(seed: int) -> None:
    rng, state = random.Random(seed), shared("least-outstanding", active_for_s=0.0)
    handles = [Handle(name) for name in "xyz"]
    for handle in handles:
        handle.register(state)
    for _ in range(60):
        handle, what = rng.choice(handles), rng.random()
        if what < 0.5:
            call = Call(handle.next, Demand(session=f"s{rng.randrange(6)}", prompt_tokens=100), 0.0)
            handle.calls[handle.next] = call
            handle.next += 1
            handle.happens("arrive", call)
        elif what < 0.9 and handle.calls:
            number = rng.choice(list(handle.calls))
            del handle.calls[number]
            handle.happens("leave", number, "answered")
        elif what > 0.97:  # dies, and another process takes its place
            state.remove(handle.name)
            handles[handles.index(handle)] = handle = Handle(handle.name + "'")
            handle.register(state)
        while handle.network and rng.random() < 0.7:
            number, events = handle.network[0 if rng.random() < 0.8 else rng.randrange(len(handle.network))]
            if rng.random() < 0.8:
                handle.network = [each for each in handle.network if each[0] != number]
            if rng.random() < 0.2:
                continue  # is lost, or comes again later
            if not state.receive(handle.name, number, events):
                handle.register(state)
        state.decide({})
        handle.receive(state)
    for handle in handles:
        handle.register(state)
    state.decide({})
    for handle in handles:
        handle.receive(state)
    stats = state.stats()
    known = [call for handle in handles for call in handle.calls.values()]
    assert (stats.waiting, stats.running) == (0, len(known))
    for handle in handles:
        for number in list(handle.calls):
            assert state.receive(handle.name, handle.sent, [("leave", number, "answered")] * 2), "a second end is none"
            handle.sent += 1
    assert state.stats().running == 0


def test_a_gate_is_free_again_after_the_death_of_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    state = shared(active_for_s=0.0)
    state.register("x", Report(TWO[:1], [], [], False))
    state.register("y", Report(TWO[:1], [], [], False))
    large = Demand(session="s", prompt_tokens=900)
    state.receive("x", 0, [("arrive", Call(0, large, 0.0))])
    assert state.decide({}) == {"x"}
    state.receive("y", 0, [("arrive", Call(0, large.model_copy(update={"session": "t"}), 0.0))])
    assert state.decide({}) == {"x"}, "900 and 900 tokens do not fit 1000"
    monkeypatch.setattr(shared_routing, "SILENT_S", 0.2)
    time.sleep(0.3)
    assert state.is_registered("y")
    state.remove_dead()
    assert state.decide({}) == {"y"}
    assert [decision.replica for decision in state.pop_decisions("y")] == ["a"]


def test_a_restarted_state_waits_for_all_reports_and_takes_the_latest_record_of_a_session() -> None:
    state = shared("session-affinity")
    former = Report(TWO, [], [LastCall("s", "a", 50.0), LastCall("t", "b", 1.0)], True)
    state.register("x", former)
    state.receive(
        "x", 0, [("arrive", Call(0, Demand(session="s"), 0.0)), ("arrive", Call(1, Demand(session="t"), 0.0))]
    )
    assert state.decide({}) == set(), "y may know more"
    state.register("y", former._replace(sessions=[LastCall("s", "b", 2.0), LastCall("t", "a", 9.0)]))
    while not state.decide({}):
        time.sleep(0.05)
    assert {(each.number, each.replica) for each in state.pop_decisions("x")} == {(0, "b"), (1, "b")}


def test_sums_stay_though_handles_that_count_for_themselves_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "MOST_PAST", 2)
    settings = RouterSettings(scheduler="lmetric", replica={"kv_tokens": 1000}, state="handle")
    loop, there = asyncio.new_event_loop(), list[RouterClient]()
    for number in range(1, 6):
        there.append(RouterClient("deployment", settings, loop, lambda: None))
        there[-1].arrive("answered", Demand(prompt_tokens=10), there[-1].clock())
        assert [key for key, *_ in there[-1].round(TWO, {})] == ["answered"]
        there[-1].leave("answered")
        there[-1].arrive("waits", Demand(prompt_tokens=10), there[-1].clock())
        if number > 1:
            del there[0]
            gc.collect()
        shown = stats_of(*stats.remembered("deployment"))
        assert (shown.started, shown.ended, shown.rounds) == (number, number, number)
        assert (shown.servers, shown.waiting) == (2, 1), "what waited there waits no more"
    loop.close()
