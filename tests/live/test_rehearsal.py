"""Whatever may be called while the clock of a cluster or a router runs is compiled and loaded before it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marks import slow

SCHEDULERS = ("fastest-idle", "heft", "min-min", "reserve", "dual-price", "zoo:context-price", "zoo:scale")


@pytest.mark.parametrize(
    ("kind", "scheduler"),
    [
        ("cluster", "adaptive-price"),
        *(slow("cluster", name) for name in SCHEDULERS),
        *(slow("router", name) for name in ("least-loaded", "adaptive-price", "lmetric")),
    ],
)
def test_nothing_is_compiled_or_loaded_while_a_clock_runs(kind: str, scheduler: str) -> None:
    seed = int.from_bytes(os.urandom(4))
    command = [sys.executable, "-m", "live.rehearsed", kind, scheduler, str(seed)]
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": tests}, cwd=tests
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split(), f"seed {seed}"
