"""The cluster that the tests of this room share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import ROOT, SWEEP, Loopback, documented


@pytest.fixture(scope="session")
def loopback() -> Iterator[Loopback]:
    import ray

    base = Path(tempfile.mkdtemp(prefix="rs", dir="/tmp"))  # Ray's sockets need a short path
    cluster = Loopback(base, ray.util.get_node_ip_address())
    try:
        for folder in ("home", "shared", "clone/tune_configs"):
            (base / folder).mkdir(parents=True)
        (cluster.clone / "tune_configs" / "smoke.yaml").write_text(SWEEP)
        shutil.copy(ROOT / ".rayignore", cluster.clone)
        for line in documented("The token"):
            done = cluster.run(line)
            assert done.returncode == 0, done.stderr
        for line in documented("Without a cloud"):
            if line.startswith("ray start"):
                cluster.start(line)
        yield cluster
    finally:
        cluster.stop()
        left = cluster.leftovers()
        shutil.rmtree(base, ignore_errors=True)
    assert not left  # Ctrl-C ended everything
