"""A guard takes over on a local Ray; in virtual time in `test_guard_virtual.py`."""

from __future__ import annotations

import logging
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from click.testing import CliRunner

from live.problems import TWO, OnlySlowest, task, work
from local_ray import LOCAL_RAY
from rllib_scale import live
from rllib_scale.cli import main
from rllib_scale.errors import UserError
from rllib_scale.live.guard import Guard

pytestmark = LOCAL_RAY
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the servers cannot import it


def test_a_policy_that_uses_only_the_slowest_server_is_replaced_on_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command: until it is replaced all tasks are on the slow server, later also on the fast one."""
    (tmp_path / "mine.py").write_text("from live.problems import OnlySlowest\n")
    monkeypatch.syspath_prepend(tmp_path)
    work(*((2.0 * k, [task(8.0)], []) for k in range(60))).save(tmp_path / "w.json")
    tiers = ", ".join(f"{{name: {t.name}, count: 1, compute_gflops: {t.compute_gflops}, memory_gb: 80}}" for t in TWO)
    options = ["--set", f"cluster={{tiers: [{tiers}]}}", "--time-scale", "0.02", "--results", str(tmp_path / "results")]
    options += ["--scheduler", "mine:OnlySlowest", "--guard", "fastest-idle", "--schedule", str(tmp_path / "s.csv")]
    done = CliRunner().invoke(main, ["execute", str(tmp_path / "w.json"), *options])
    assert done.exit_code == 0, done.output
    (since,) = re.findall(r"fastest-idle takes over from mine:OnlySlowest after ([0-9.]+) s: 50 workflows", done.output)
    rows = np.genfromtxt(tmp_path / "s.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert rows["outcome"].tolist() == ["finished"] * 60
    assert set(rows[rows["start_s"] < float(since) - 0.1]["tier"]) == {"slow"}
    assert "fast" in rows[rows["start_s"] > float(since)]["tier"]


def double(number: float) -> float:
    time.sleep(0.01 * number)
    return 2 * number


@pytest.mark.slow
def test_a_cluster_of_functions_has_a_guard_too(caplog: pytest.LogCaptureFixture) -> None:
    """Functions of 10 ms that say they need 8 GFLOP: on the slowest server they queue up."""
    with (
        caplog.at_level(logging.WARNING, "rllib_scale.live.guard"),
        live.Cluster(OnlySlowest(), tiers=TWO, guard=live.Guard("fastest-idle", window=20)) as cluster,
    ):
        make = cluster.task(double, compute_gflop=8)
        assert [cluster.gather(*(make(k) for k in range(3))) for _ in range(60)] == [[0, 2, 4]] * 60
    (line,) = caplog.messages
    assert line.startswith("fastest-idle takes over from only-slowest after")


@pytest.mark.slow
def test_what_cannot_guard_is_refused() -> None:
    router_config = pytest.importorskip("rllib_scale.live.serve", exc_type=ImportError).router_config
    for guard, why in (
        ("heft", "heft: plans ahead"),
        ("fastest-idel", "did you mean 'fastest-idle'"),
        (Guard(margin=-1.0), "guard: margin -1, window 50; valid: from 0, from 10"),
        (Guard(window=3), "window 3"),
        (Guard(margin=float("nan")), "margin nan"),
    ):
        with pytest.raises(UserError, match=why):
            live.Cluster(tiers=TWO, guard=guard)
    of_router: list[tuple[Any, str]] = [
        ("heft", "heft: plans ahead"),
        ("fastest-idel", "did you mean 'fastest-idle'"),
        ({"scheduler": "fastest-idle", "window": 3}, "window"),
    ]
    for named, why in of_router:
        with pytest.raises(UserError, match=why):
            router_config("sticky", guard=named)
