"""Traces of played episodes, event by event."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.evaluation.exports import Played, to_trace, write
from rllib_scale.evaluation.play import play
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.record import SCHEDULE
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

# ---------------------------------------------------------------------- an instance worked out by hand
# Servers 0 and 1 of 2 GFLOPS with two places, and server 2 of 1 GFLOPS.

TIERS = [
    {"name": "fast", "count": 2, "compute_gflops": 2.0, "memory_gb": 16.0, "max_concurrent": 2},
    {"name": "slow_one", "count": 1, "compute_gflops": 1.0, "memory_gb": 8.0},
]
WORKLOAD = {
    "format": "rllib-scale-workload",
    "version": 2,
    "workflows": [
        {
            "arrival_s": 0.5,
            "tasks": [
                {"compute_gflop": 4.0, "memory_gb": 4.0, "output_gb": 1.5},
                {"compute_gflop": 2.0, "memory_gb": 0.25, "output_gb": 0.0},
                {"compute_gflop": 6.0, "memory_gb": 1.0, "output_gb": 0.5, "delay_s": 1.0},
            ],
            "edges": [[0, 1], [0, 2], [1, 2]],
        },
        {"arrival_s": 2.0, "tasks": [{"compute_gflop": 3.0, "memory_gb": 1.0, "output_gb": 0.0}], "edges": []},
    ],
}
ATTEMPTS = [  # workflow, task, server, tier, arrival, ready, start, finish, outcome, transfer, work
    (0, 0, 0, "fast", 0.5, 0.5, 0.5, 2.5, "finished", 0.0, 4.0),
    (0, 1, 2, "slow_one", 0.5, 2.5, 2.5, 3.25, "failed", 0.25, 0.5),
    (0, 1, 0, "fast", 0.5, 3.25, 3.5, 4.25, "finished", 0.0, 1.5),
    (1, 0, 0, "fast", 2.0, 2.0, 4.0, 5.0, "failed", 0.0, 2.0),
    (0, 2, 0, "fast", 0.5, 5.25, 5.25, np.nan, "running", 0.5, np.nan),
]


def played() -> Played:
    memory = {"mean": 1, "std": 0, "low": 1, "high": 1}
    env = build_model(EnvConfig, {"cluster": {"tiers": TIERS}, "workload": {"memory_gb": memory}}, "test")
    return Played(env, Workload.from_dict(WORKLOAD, "test"), np.array(ATTEMPTS, dtype=SCHEDULE), 7.0, "by hand")


def test_trace_of_the_instance() -> None:
    content = to_trace(played())
    events = content["traceEvents"]
    assert [
        (e["pid"], e.get("tid"), *e["args"].values()) for e in events if e["ph"] == "M" and "_name" in e["name"]
    ] == [
        (1, None, "workload"),
        (1, 1, "arrivals"),
        (2, None, "fast (2 GFLOPS, 16 GB)"),
        (2, 2, "server 0, place 0"),
        (2, 3, "server 0, place 1"),
        (2, 4, "server 1, place 0"),
        (2, 5, "server 1, place 1"),
        (3, None, "slow_one (1 GFLOPS, 8 GB)"),
        (3, 6, "server 2"),
    ]
    assert [(e["ts"], e["dur"], e["pid"], e["tid"], e["name"]) for e in events if e["ph"] == "X"] == [
        (500_000, 2_000_000, 2, 2, "workflow 0, task 0"),
        (2_500_000, 750_000, 3, 6, "workflow 0, task 1 (failed)"),
        (2_500_000, 250_000, 3, 6, "transfer"),
        (2_750_000, 500_000, 3, 6, "execution"),
        (3_500_000, 750_000, 2, 2, "workflow 0, task 1"),
        (4_000_000, 1_000_000, 2, 3, "workflow 1, task 0 (failed)"),
        (5_250_000, 1_750_000, 2, 2, "workflow 0, task 2 (running)"),
        (5_250_000, 500_000, 2, 2, "transfer"),
        (5_750_000, 1_250_000, 2, 2, "execution"),
    ]
    # Edges 0-1 (an arrow to each attempt), 0-2, 1-2.
    flows = {e["id"]: [] for e in events if e["ph"] == "s"}
    for event in events:
        if event["ph"] in "sf":
            flows[event["id"]].append((event["ph"], event["ts"], event["pid"], event["tid"]))
    assert sorted(flows.values()) == [
        [("s", 2_500_000, 2, 2), ("f", 2_500_000, 3, 6)],
        [("s", 2_500_000, 2, 2), ("f", 3_500_000, 2, 2)],
        [("s", 2_500_000, 2, 2), ("f", 5_250_000, 2, 2)],
        [("s", 4_250_000, 2, 2), ("f", 5_250_000, 2, 2)],
    ]
    assert [(e["ts"], e["name"]) for e in events if e["ph"] == "i"] == [
        (500_000, "workflow 0"),
        (2_000_000, "workflow 1"),
    ]
    # Workflow 1 waits from 2.0 to 4.0 and, failed, from 5.0 on; task 1, failed, from 3.25 to 3.5.
    assert [(e["ts"], e["args"]["tasks"]) for e in events if e["ph"] == "C"] == [
        (2_000_000, 1),
        (3_250_000, 2),
        (3_500_000, 1),
        (4_000_000, 0),
        (5_000_000, 1),
    ]
    failed = next(e for e in events if e.get("cat") == "failed")
    assert failed["args"] == {
        "workflow": 0,
        "task": 1,
        "outcome": "failed",
        "arrival_s": 0.5,
        "ready_s": 2.5,
        "transfer_s": 0.25,
        "work_gflop": 0.5,
        "memory_gb": 0.25,
    }


# ---------------------------------------------------------------------- played episodes

EVERYTHING = {  # servers of several tasks, transfers, delays, failures: each outcome of an attempt
    "cluster": {
        "tiers": [
            {"name": "small", "count": 3, "compute_gflops": 1.0, "memory_gb": 16.0},
            {
                "name": "wide",
                "count": 2,
                "compute_gflops": 2.0,
                "memory_gb": 80.0,
                "max_concurrent": 3,
                "slowdown": 0.1,
            },
        ],
        "bandwidth_gb_s": 0.5,
        "changes": {"failures_per_1000_h": 40_000, "repair_s": 5},
    },
    "workload": {"offered_load": 1.5, "delay_s": {"mean": 1, "std": 1, "low": 0.1}},
    "episode": {"horizon_s": 60, "mask": "feasible"},
    "communication": {"mode": "transfer", "predecessors": "all"},
}


@pytest.mark.parametrize(
    ("problem", "outcomes"),
    [({"episode": {"horizon_s": 40}}, {"finished", "running"}), (EVERYTHING, {"finished", "failed", "running"})],
)
def test_traces_of_episodes_keep_the_rules_of_the_format(problem: dict[str, Any], outcomes: set[str]) -> None:
    env = build_model(EnvConfig, problem, "test")
    engine = play(make_scheduler("fastest-idle", env.observation, env.episode.mask), env, 3, [5])
    whole = Played(env, generate(env, 3, 5), engine.schedule(), float(engine.clock[0]), "an episode")
    assert outcomes <= set(whole.schedule["outcome"].tolist())
    content = json.loads(json.dumps(to_trace(whole), allow_nan=False))
    events = content["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {pid for pid, _ in threads} == set(processes)
    assert len({tid for pid, tid in threads if pid > 1}) == whole.env.cluster.num_places == len(threads) - 1
    for event in events:
        assert type(event["pid"]) is int
        assert event["pid"] > 0
        if event["ph"] != "M":
            assert (event["pid"], event["tid"]) in threads
            assert type(event["ts"]) is int
            assert type(event.get("dur", 0)) is int
            assert event.get("dur", 0) >= 0
    timed = [event["ts"] for event in events if event["ph"] != "M"]
    assert timed == sorted(timed)
    # The slices of a thread nest: one begins after those before it have ended, or lies within them.
    for thread in threads:
        stack: list[int] = []
        for event in (e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == thread):
            while stack and stack[-1] <= event["ts"]:
                stack.pop()
            assert not stack or event["ts"] + event["dur"] <= stack[-1]
            stack.append(event["ts"] + event["dur"])
    names = Counter(e["name"] for e in events if e["ph"] == "X")
    assert sum(names.values()) - names["transfer"] - names["execution"] == len(whole.schedule)
    assert names["transfer"] == np.count_nonzero(whole.schedule["transfer_s"] > 0)
    # An arrow from each finished predecessor to each attempt at its successor.
    tries = Counter(zip(whole.schedule["workflow"].tolist(), whole.schedule["task"].tolist(), strict=True))
    workload = whole.workload
    of_edge = np.repeat(np.arange(workload.num_workflows), np.diff(workload.edge_offsets))
    arrows = sum(tries[w, s] for w, (_, s) in zip(of_edge.tolist(), workload.edges.tolist(), strict=True))
    assert sum(event["ph"] == "s" for event in events) == sum(event["ph"] == "f" for event in events) == arrows > 0
    waiting = [event["args"]["tasks"] for event in events if event["ph"] == "C"]
    assert waiting[-1] == len(engine.snapshot().ready)
    assert max(waiting) > 3


def test_exports_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path / "file" / "out.json", to_trace(played()))
    with pytest.raises(ValueError, match="JSON compliant"):
        write(tmp_path / "out.json", {"value": float("nan")})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
