"""The compiled model of replicas against one that takes every step, and what holds in every state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from replica_cases import assert_same, played, random_case

from reference.gate import Gate
from reference.replica import simulate
from rllib_scale.simulator.replicas.state import Fleet
from seeds import each_of


@settings(max_examples=15, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_jumps_end_where_steps_end(seed: int) -> None:
    agree(seed)


@pytest.mark.slow
@settings(max_examples=300, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_many_jumps_end_where_steps_end(seed: int) -> None:
    agree(seed)


def agree(seed: int) -> None:
    """A fleet agrees with the model that takes every step call by call: pauses and the order of release, too."""
    case = random_case(seed)
    of = case.replicas, case.scripts, case.starts, case.live, case.closed_loop, case.until_s
    calls, gate = simulate(*of, case.preferred, case.gate)
    fleet = played(case)
    records = fleet.records[: fleet.now[0]["records"]]
    assert_same(records, calls)
    assert isinstance(gate, Gate)
    assert fleet.replicas["active"].tolist() == [gate.count(at) for at in range(len(case.replicas))]
    assert fleet.now[0]["held"] == len(gate.held)


def test_the_cases_have_what_they_are_for() -> None:
    fleets = [played(random_case(seed)) for seed in range(30)]
    rows = np.concatenate([fleet.records[: fleet.now[0]["records"]] for fleet in fleets])
    assert sum(fleet.replicas["preempted"].sum() for fleet in fleets) > 30
    assert sum(fleet.replicas["evicted"].sum() for fleet in fleets) > 1000
    assert (rows["hit"] > 0).mean() > 0.2
    assert (rows["prompt"] > 40).mean() > 0.2, "longer than any budget: chunked"
    assert {random_case(seed).closed_loop for seed in range(30)} == {True, False}


@each_of(range(100), by_default=20)
def test_tokens_are_conserved_and_limits_hold(seed: int) -> None:
    case = random_case(1000 + seed)

    def check(fleet: Fleet) -> None:
        for number, here in enumerate(fleet.replicas):
            assert here["pinned"] <= here["used"] <= here["kv_tokens"]
            assert here["calls"] <= here["max_calls"]
            batch = fleet.calls[fleet.batch[number, : here["calls"]]]
            decoding = batch["started"] >= 0
            assert here["decoding"] == decoding.sum()
            now = np.where(decoding, batch["computed"] + here["decoded"] - batch["started"], batch["target"])
            shared = fleet.prefixes[number]
            pinned = (now - batch["prefix_tokens"]).sum() + shared["tokens"][shared["running"] > 0].sum()
            assert here["pinned"] == pinned
            kept = 0
            row = int(here["oldest"])
            while row >= 0:
                kept += int(fleet.kept[row]["tokens"]) * int(fleet.kept[row]["session"] >= 0)
                row = int(fleet.kept[row]["newer"])
            assert here["used"] == (now - batch["prefix_tokens"]).sum() + shared["tokens"].sum() + kept

    fleet = played(case, check)
    rows = fleet.records[: fleet.now[0]["records"]]
    once = rows["preemptions"] == 0
    assert (rows["prefilled"] == rows["prompt"] - rows["hit"])[once].all()
    assert (rows["asked_s"] <= rows["placed_s"]).all()
    assert (rows["placed_s"] <= rows["admitted_s"]).all()
    assert (rows["admitted_s"] < rows["first_s"]).all()
    assert (rows["first_s"] <= rows["end_s"]).all()
