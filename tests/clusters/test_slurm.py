"""`slurm.sbatch`, with stand-ins for the commands of SLURM and Ray that write down how they were called."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "slurm.sbatch"
STAND_INS = {
    "scontrol": "printf 'one\\ntwo\\nthree\\n'",
    "srun": 'echo "srun $*" >> calls; trap "exit 0" TERM; sleep 30 & wait',
    "ray": 'echo "ray $*" >> calls',
    "rllib-scale": 'trap "echo told >> calls; exit 130" TERM; echo "rllib-scale $*" >> calls; '
    # The job ends with the sweep, and no sweep ends before its nodes have been asked for.
    'until [ "$(grep -c ^srun calls)" -eq "$NODES_ASKED" ]; do sleep 0.05; done; sleep "$RUNS" & wait; exit "$CODE"',
}


def start(folder: Path, nodes: int, runs: float = 0.0, code: int = 0) -> subprocess.Popen[bytes]:
    programs = folder / "bin"
    programs.mkdir()
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (programs / name).chmod(0o755)
    facts = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_ID": "123456", "SLURM_JOB_NUM_NODES": str(nodes)}
    facts |= {
        "SLURM_CPUS_PER_TASK": "8",
        "RUNS": str(runs),
        "NODES_ASKED": str(min(nodes, 2)),  # for the head, and for all others
        "CODE": str(code),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    return subprocess.Popen(["bash", SCRIPT, "table4", "/shared/r"], cwd=folder, env=os.environ | facts)


def test_the_head_starts_first_the_workers_join_it_and_the_sweep_runs_on_it(tmp_path: Path) -> None:
    assert start(tmp_path, nodes=3).wait(timeout=600) == 0
    head, health, workers, sweep = (
        next(line for line in (tmp_path / "calls").read_text().splitlines() if re.search(pattern, line))
        for pattern in ("ray start --head", "health-check", r"--exclude=", r"^rllib-scale ")
    )
    assert "--nodelist=one" in head
    assert "--cpus-per-task=8" in head
    (port,) = re.findall(r"--port=(\d+)", head)
    assert health.endswith(f"--address one:{port}")
    assert "--nodes=2 --ntasks=2 --exclude=one" in workers
    assert f"--address=one:{port}" in workers
    assert sweep == f"rllib-scale sweep table4 --address one:{port} --results /shared/r --trust"


def test_one_node_needs_no_worker_and_the_exit_code_is_the_sweeps(tmp_path: Path) -> None:
    assert start(tmp_path, nodes=1, code=3).wait(timeout=600) == 3
    assert "--exclude" not in (tmp_path / "calls").read_text()


def test_the_signal_before_the_end_reaches_the_sweep(tmp_path: Path) -> None:
    job = start(tmp_path, nodes=2, runs=30)
    calls = tmp_path / "calls"
    while not (calls.exists() and "rllib-scale" in calls.read_text()):
        assert job.poll() is None
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=600) == 130
    assert "told" in calls.read_text()


def test_its_settings_are_those_that_the_page_says_to_change() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    settings = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", text, flags=re.MULTILINE))
    assert settings.keys() >= {"nodes", "cpus-per-task", "time", "signal"}
    assert settings["ntasks-per-node"] == "1"
    assert settings["signal"].startswith("B:TERM@")
    assert text.count("CHANGE:") == 3
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0


@pytest.mark.parametrize("given", [[], ["table4"]])
def test_a_missing_argument_is_named(given: list[str]) -> None:
    done = subprocess.run(["bash", SCRIPT, *given], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "usage: sbatch slurm.sbatch SWEEP RESULTS" in done.stderr
