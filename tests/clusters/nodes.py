"""Ray clusters of several nodes on loopback (`ray.cluster_utils.Cluster`), sweeps on them, and faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import psutil

from rllib_scale.results.tables import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table
from rllib_scale.sweeps.checkpoints import epoch_of

TIMES = ["wall_s", "env_steps_per_s"]
"""Columns of the training table that a clock decides."""


class Nodes:
    """A cluster whose nodes have the CPUs that are given; the first is the head."""

    def __init__(self, base: Path, cpus: Sequence[int]) -> None:
        from ray.cluster_utils import Cluster

        system = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000}
        head = {"num_cpus": cpus[0], "_system_config": system, "include_dashboard": False}
        self.base = base
        self.cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=True)
        self.workers = [self.add(number) for number in cpus[1:]]

    def add(self, cpus: int) -> Any:
        """A node more."""
        return self.cluster.add_node(num_cpus=cpus)

    def kill(self, node: Any) -> None:
        """End a node as a power cut does."""
        self.workers.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        self.cluster.shutdown()

    def sweep(self, file: Path, results: Path, *options: str) -> subprocess.Popen[str]:
        """Start `rllib-scale sweep` on the cluster."""
        return start_sweep(self.base, self.cluster.address, file, results, *options)

    def finish(self, file: Path, results: Path, *options: str) -> str:
        """Run a sweep to its end; returns what it said."""
        process = self.sweep(file, results, *options)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        return output

    def env_runners(self, nodes: Sequence[Any] | None = None) -> list[psutil.Process]:
        """Processes of the environment runners on these nodes, or on all."""
        nodes = [self.cluster.head_node, *self.workers] if nodes is None else nodes
        found = []
        for node in nodes:
            (raylet,) = node.all_processes["raylet"]
            for child in psutil.Process(raylet.process.pid).children(recursive=True):
                try:
                    words = child.cmdline()
                except psutil.Error:
                    continue
                if words and "ArrayEnvRunner" in words[0]:
                    found.append(child)
        return found


def start_sweep(home: Path, address: str, file: Path, results: Path, *options: str) -> subprocess.Popen[str]:
    """Start `rllib-scale sweep` on the cluster at an address."""
    words = ["sweep", str(file), "--address", address, "--results", str(results), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "rllib_scale", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"HOME": str(home)},
        start_new_session=True,
    )


@contextmanager
def alone(make: Callable[[Path], Any]) -> Iterator[Any]:
    """The cluster that `make` starts in a folder, for a block, without a token: it listens on this machine alone."""
    from ray._raylet import AuthenticationTokenLoader, Config

    def read_mode() -> None:
        """What this process has found out about tokens in an earlier session is forgotten."""
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()

    folders = tempfile.TemporaryDirectory(prefix="rn", dir="/tmp", ignore_cleanup_errors=True)
    try:
        # In a folder of its own it is not the Ray that any program on this machine joins by default.
        with folders as folder, mock.patch.dict(os.environ, RAY_AUTH_MODE="disabled", RAY_TMPDIR=folder):
            read_mode()
            cluster = make(Path(folder))
            try:
                yield cluster
            finally:
                cluster.stop()
    finally:
        read_mode()


def nodes(*cpus: int) -> AbstractContextManager[Nodes]:
    """A cluster for a block."""
    return alone(lambda folder: Nodes(folder, cpus))


def await_that(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait while the process runs until something holds."""
    deadline = time.monotonic() + 300
    while not holds():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def epochs_saved(results: Path) -> int:
    """Epochs in the newest whole checkpoints of all trainings, in sum."""
    newest: dict[str, int] = {}
    for path in (results / "trials").glob("run-*/*/checkpoint_*"):
        newest[path.parent.name] = max(newest.get(path.parent.name, 0), epoch_of(path))
    return sum(newest.values())


def kill_driver(process: subprocess.Popen[str], after_s: float) -> None:
    """kill -9 of a sweep's driver after some seconds, unless it ends before."""
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def tables(results: Path) -> dict[str, pd.DataFrame]:
    """What a sweep found out: all but times."""
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    return {
        "episodes": read_table(results / "episodes.parquet", EPISODE_COLUMNS),
        "training": training.drop(columns=TIMES),
    }


def assert_same(results: Path, expected: Path) -> None:
    """The tables of two folders are equal bit for bit, and so are the weights."""
    found, wanted = tables(results), tables(expected)
    for name in wanted:
        pd.testing.assert_frame_equal(found[name], wanted[name], check_exact=True)
    policies = sorted(path.name for path in (expected / "policies").iterdir())
    assert sorted(path.name for path in (results / "policies").iterdir()) == policies
    for name in policies:
        weights = [(folder / "policies" / name / "policy.safetensors").read_bytes() for folder in (results, expected)]
        assert weights[0] == weights[1], name
