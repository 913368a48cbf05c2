"""Metrics of fleets against accounts that are kept literally: over the calls of the reference, and over held ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fleets import fleet
from replica_cases import Case, played, random_case

from reference import replica as reference
from reference.gate import Gate, GateSettings
from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.replicas.arrivals import starts
from rllib_scale.simulator.replicas.metrics import Begun, measure
from rllib_scale.simulator.replicas.spans import open_calls
from seeds import each_of

BEGIN_S, TTFT_S, TPOT_S = 5.0, 0.45, 0.08


@dataclass
class Asked:
    """A call as it went, of whatever time: inf where it has not come to the end of the account."""

    session: int
    turn: int
    output: int
    asked_s: float
    placed_s: float
    first_s: float
    end_s: float


def account(calls: list[Asked], sizes: dict[tuple[int, int], int], begin_s: float, end_s: float) -> dict[str, float]:
    """What can be said of calls and turns; `sizes`: calls of each (session, turn) that are asked in the end."""
    ages, holds, decided, met, answered, open_s = list[float](), list[float](), 0, 0, 0, 0.0
    for call in calls:
        if call.end_s < begin_s:
            continue
        is_open = call.end_s == np.inf
        answered += not is_open
        open_s += max(0.0, min(call.end_s, end_s) - max(call.asked_s, begin_s))
        ages.append(min(call.end_s, end_s) - call.asked_s)
        holds.append(min(call.placed_s, end_s) - call.asked_s)
        first_late = min(call.first_s, end_s) - call.asked_s > TTFT_S
        token_s = (min(call.end_s, end_s) - call.first_s) / (call.output - 1) if call.output > 1 else 0.0
        is_late = first_late or token_s > TPOT_S
        decided += is_late or not is_open
        met += not is_late and not is_open
    turns = dict[tuple[int, int], list[Asked]]()
    for call in calls:
        turns.setdefault((call.session, call.turn), []).append(call)
    integral, begun, lasted = 0.0, 0, list[float]()
    for key, of in turns.items():
        first = min(call.asked_s for call in of)
        last = max(call.end_s for call in of) if len(of) == sizes[key] else np.inf
        integral += max(0.0, min(last, end_s) - max(first, begin_s))
        begun += first >= begin_s
        if last >= begin_s:
            lasted.append(min(last, end_s) - first)
    return {
        "response_censored_s": open_s / max(1, answered),
        "response_censored_p99_s": float(np.quantile(ages, 0.99)),
        "slo_share": met / decided,
        "held_calls": sum(hold > 0 for hold in holds),
        "longest_hold_s": max(holds),
        "jct_censored_s": integral / max(1, begun),
        "jct_censored_p99_s": float(np.quantile(lasted, 0.99)),
    }


def of_reference(case: Case) -> tuple[list[Asked], dict[tuple[int, int], int]]:
    """Calls asked by the end of a case, of the reference that plays until all are answered; sizes."""
    rest = (case.starts, case.live, case.closed_loop)
    every, _ = reference.simulate(case.replicas, case.scripts, *rest, 1e9, case.preferred, case.gate)
    sizes, calls = dict[tuple[int, int], int](), list[Asked]()
    for call in every:
        script = case.scripts.first_task[case.starts[call.session]["script"]]
        turn = int(case.scripts.tasks[script + call.number]["turn"])
        sizes[call.session, turn] = sizes.get((call.session, turn), 0) + 1
        if call.asked <= case.until_s:
            assert call.first is not None
            request_s = case.replicas[call.replica].request_s
            first, end = (time if time - request_s <= case.until_s else np.inf for time in (call.first, call.end))
            calls.append(Asked(call.session, turn, call.output, call.asked, call.asked, first, end))
    return calls, sizes


def measured(case: Case) -> dict[str, float]:
    """Of the time from BEGIN_S on."""
    before, after = played(replace(case, until_s=BEGIN_S)), played(case)
    tiers = [
        {"name": f"r{k}", "count": 1, "replica": of.model_dump(mode="json", exclude={"sources"})}
        for k, of in enumerate(case.replicas)
    ]
    service = {"name": "replica", "warm_up_s": BEGIN_S, "slo_ttft_s": TTFT_S, "slo_tpot_s": TPOT_S}
    settings = {"cluster": {"tiers": tiers}, "service": service, "reward": {"name": "tasks-in-system"}}
    done, begun = after.records[: after.now[0]["records"]], Begun(before.now, before.replicas)
    return measure(done, open_calls(after), after, begun, case.scripts, EnvConfig.model_validate(settings))


@each_of(range(100), by_default=5)
def test_metrics_are_those_of_a_literal_account(seed: int) -> None:
    case = replace(random_case(seed), gate=GateSettings())
    found, expected = measured(case), account(*of_reference(case), BEGIN_S, case.until_s)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-9)


@each_of(range(100), by_default=5)
def test_the_working_set_is_the_mean_of_what_counts(seed: int) -> None:
    case = random_case(seed)
    of = case.replicas, case.scripts, case.starts, case.live, case.closed_loop, case.until_s
    _, gate = reference.simulate(*of, case.preferred, case.gate)
    assert isinstance(gate, Gate)
    rest = sum(gate.count(at) for at in range(len(case.replicas)))
    integral, begin_s = 0.0, BEGIN_S
    for time, tokens in [*gate.counted, (case.until_s, rest)]:
        integral += tokens * max(0.0, time - begin_s)
        begin_s = max(begin_s, time)
    memory_s = sum(of.kv_tokens for of in case.replicas) * (case.until_s - BEGIN_S)
    assert measured(case)["working_set"] == pytest.approx(integral / memory_s, rel=1e-9)


def test_calls_that_are_held_or_still_run_after_a_hold_count() -> None:
    env = fleet(sessions=14, end_s=1500.0, slo_ttft_s=TTFT_S, slo_tpot_s=TPOT_S)
    engine: Any = play(make_policy("lmetric:gate=0.8", env), env, 5, [0])
    metrics, scripts = engine.metrics(), engine.scripts
    opened = engine.open_calls()
    assert (opened["placed_s"] < 0).sum() > 3, "some are held at the end"
    calls = list[Asked]()
    for row in pd.DataFrame(np.concatenate([engine.calls(), opened])).itertuples():
        times = [np.inf if time < 0 else time for time in (row.placed_s, row.first_s, row.end_s)]
        calls.append(Asked(row.session, row.turn, row.output, row.asked_s, *times))
    begun = {int(row["session"]): int(row["script"]) for row in np.concatenate([engine.calls(), opened])}
    skipped = starts(scripts, env.service, 3, 1500.0, 5, 0)["skipped"]
    sizes = dict[tuple[int, int], int]()
    for session, script in begun.items():
        for turn in scripts.tasks["turn"][
            scripts.first_task[script] + skipped[session] : scripts.first_task[script + 1]
        ]:
            sizes[session, int(turn)] = sizes.get((session, int(turn)), 0) + 1
    expected = account(calls, sizes, 100.0, 1500.0)
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-9)
