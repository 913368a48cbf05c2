"""Short trainings share the processes that fit, and each process trains one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ray")

from conftest import RAY_CPUS
from local_ray import LOCAL_RAY
from sweep_runs import SHORT, succeed

pytestmark = LOCAL_RAY
TRAININGS = 16
SWEEP = f"""
name: short
methods: [scale]
seeds: {[*range(TRAININGS)]}
training: {{epochs: 2}}
ppo: {{{SHORT}}}
evaluation: {{scales: [8], episodes: 1, heuristics: [], features: false}}
"""


def test_trainings_shorter_than_the_start_of_a_process_use_several_processes_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(SWEEP)
    succeed("sweep", tmp_path / "short.yaml", "--results", tmp_path / "out")
    curves = [*tmp_path.glob("out/trials/run-001/*/result.json")]
    processes = [json.loads(line)["pid"] for path in curves for line in path.read_text().splitlines()]
    assert len(processes) == 2 * TRAININGS
    assert 1 < len(set(processes)) <= RAY_CPUS
