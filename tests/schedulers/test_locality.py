"""Rules that know where input is: literal choices that differ from fastest-idle's, and whole episodes."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.observation.answers import OPEN, TAKEN
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.model import Workload
from schedulers.instances import TWO

OBSERVATION = EnvConfig().observation
Server = tuple[float, float, float, float, float]


def observe(compute: float, servers: list[Server]) -> tuple[np.ndarray, np.ndarray]:
    """Observation of the set `rounds` and fit: GFLOPS, s to wait, s to move the input, GB of 80 free, share busy."""
    row = [0.0] * 4 + [compute / 20, 0.1, 0.0, 0.0, 0.5] + [0.0] * 4
    for capacity, wait, transfer, free, share in servers:
        row += [capacity / 4, 1.0, wait, 0.0, transfer, free / 80, wait, share]
    fit = [[TAKEN if wait else OPEN for _, wait, *_ in servers]]
    return np.array([row], dtype=np.float32), np.array([fit], dtype=np.uint8)


def choice(name: str, compute: float, servers: list[Server], mask: str = "none", seed: int = 0) -> int:
    rule = make_scheduler(name, OBSERVATION, mask)  # type: ignore[arg-type]
    rule.reset([(seed, 0)])
    return int(rule(*observe(compute, servers))[0])  # type: ignore[operator]


#        GFLOPS, wait, transfer, free, share: the input is on server 0, which is slow
HOME_IDLE = [(1.0, 0.0, 0.0, 80.0, 0.0), (2.0, 0.0, 6.0, 80.0, 0.0), (4.0, 9.0, 6.0, 80.0, 1.0)]
HOME_BUSY = [(1.0, 2.0, 0.0, 40.0, 0.5), (2.0, 0.0, 6.0, 80.0, 0.0), (4.0, 0.5, 6.0, 60.0, 1.0)]
NOWHERE = [(1.0, 0.0, 0.0, 40.0, 0.5), (2.0, 0.0, 0.0, 10.0, 0.9), (4.0, 0.0, 0.0, 30.0, 0.7)]


@pytest.mark.parametrize(
    ("name", "compute", "servers", "chosen"),
    [
        ("earliest-finish-transfer", 10.0, HOME_IDLE, 0),  # 10 s against 6 + 5 and 9 + 6 + 2.5
        ("earliest-finish-transfer", 14.0, HOME_IDLE, 1),  # 14 s against 6 + 7 and 9 + 6 + 3.5
        ("earliest-finish-transfer", 10.0, HOME_BUSY, 2),  # 2 + 10 s, 6 + 5, 0.5 + 6 + 2.5
        ("earliest-finish-transfer:waiting=6", 10.0, HOME_BUSY, 1),  # 6 times 0.5 makes it 11.5 s against 11
        ("sticky", 10.0, HOME_BUSY, 0),  # to wait 2 s is less than to move 6 s
        ("sticky", 10.0, [(1.0, 7.0, 0.0, 40.0, 0.5), *HOME_BUSY[1:]], 2),  # not 7 s: as the earliest finish
        ("sticky", 10.0, NOWHERE, 2),  # no input anywhere: as the earliest finish
        ("prefix-affinity:imbalance=1", 10.0, HOME_BUSY, 0),
        ("prefix-affinity:imbalance=inf", 10.0, [(1.0, 99.0, 0.0, 40.0, 1.0), *HOME_BUSY[1:]], 0),
        ("prefix-affinity", 10.0, NOWHERE, 0),  # no prefix anywhere: the least memory is in use there
        ("least-loaded", 10.0, NOWHERE, 0),
        ("least-loaded", 10.0, [(4.0, 3.0, 0.0, 80.0, 1.0), (1.0, 2.0, 0.0, 80.0, 1.0)], 1),  # the next that is free
    ],
)
def test_a_choice_on_a_literal_cluster(name: str, compute: float, servers: list[Server], chosen: int) -> None:
    assert choice(name, compute, servers) == chosen


def test_out_of_balance_the_prefix_gives_way_to_two_random_servers() -> None:
    busy = [(1.0, 2.0, 0.0, 40.0, 1.0), (2.0, 0.0, 6.0, 80.0, 0.0), (4.0, 1.0, 6.0, 60.0, 1.0)]
    seeds = range(40)
    affine = [choice("prefix-affinity", 10.0, busy, seed=seed) for seed in seeds]
    assert affine == [choice("power-of-two", 10.0, busy, seed=seed) for seed in seeds]
    assert [choice("prefix-affinity:imbalance=1", 10.0, busy, seed=seed) for seed in seeds] == [0] * 40


def test_of_two_random_rows_the_one_that_is_free_earlier_is_taken() -> None:
    waits = [(1.0, wait, 0.0, 80.0, 0.5) for wait in (3.0, 1.0, 2.0, 4.0)]
    chosen = [choice("power-of-two", 10.0, waits, seed=seed) for seed in range(600)]
    # Of the six pairs three have the second row, two of the others the third, and the last the first one.
    assert np.bincount(chosen, minlength=4) / 600 == pytest.approx([1 / 6, 3 / 6, 2 / 6, 0], abs=0.06)


def test_equal_loads_are_shared_out_at_random() -> None:
    idle = [(1.0, 0.0, 0.0, 80.0, 0.0)] * 3
    for name in ("least-loaded", "power-of-two", "prefix-affinity"):
        assert {choice(name, 10.0, idle, seed=seed) for seed in range(40)} == {0, 1, 2}


# ------------------------------------------------------------------- whole episodes

# A runs on fast at 0 to 2; a tool runs for a second; B, at 2.5 on fast, too, until 4.5. A's second call is ready at 3.
CALL = {"compute_gflop": 4, "memory_gb": 5, "output_gb": 6}
CALLS = [
    {"arrival_s": 0, "tasks": [CALL, CALL | {"delay_s": 1}], "edges": [[0, 1]]},
    {"arrival_s": 2.5, "tasks": [CALL], "edges": []},
]


@pytest.mark.parametrize("on_busy", ["step", "reserve"])
@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("fastest-idle", 13.0),  # 6 s to move the cache to slow, 4 s there
        ("sticky", 6.5),  # waits until 4.5, 2 s on fast
        ("prefix-affinity:imbalance=inf", 6.5),
        ("earliest-finish-transfer", 6.5),
    ],
)
def test_a_call_waits_where_its_cache_is(name: str, ends: float, on_busy: str) -> None:
    network = TWO.cluster.model_copy(update={"bandwidth_gb_s": 1.0, "latency_s": 0.0})
    given = Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": CALLS}, "calls")
    more = {"cluster": network, "communication": {"mode": "transfer"}, "decision": {"on_busy": on_busy}}
    env = EnvConfig.model_validate(TWO.model_dump() | more).with_mask("none")
    engine = play(make_scheduler(name, env.observation), env, 0, [0], given)
    second = engine.schedule()
    second = second[(second["workflow"] == 0) & (second["task"] == 1)][0]
    assert second["finish_s"] == pytest.approx(ends, abs=0.11 if on_busy == "step" else 1e-9)  # steps of 0.1 s
    assert second["transfer_s"] == (6.0 if name == "fastest-idle" else 0.0)
    assert (engine.metrics()["waits"] > 0) == (on_busy == "reserve" and name != "fastest-idle")
