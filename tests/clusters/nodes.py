"""Ray clusters of several nodes on loopback (`ray.cluster_utils.Cluster`), and sweeps on them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from sweep_runs import start


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

    def sweep(self, file: Path, results: Path, *settings: str) -> subprocess.Popen[str]:
        """Start a sweep on the cluster."""
        words = ["sweep", file, "--address", self.cluster.address, "--results", results]
        return start(self.base, *words, settings=settings)

    def finish(self, file: Path, results: Path) -> str:
        """Run a sweep to its end; returns what it said."""
        process = self.sweep(file, results)
        said, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        return said


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
