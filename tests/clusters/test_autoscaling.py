"""Sweeps on a head without CPUs, to which Ray's autoscaler adds nodes when trainings wait and takes them away again.

The nodes are those of Ray's fake provider: processes on this machine. `ray.cluster_utils.AutoscalingCluster` would run
`ray stop`, which ends every Ray on this machine; so the head is started here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.ray, pytest.mark.slow]

from loopback import as_in_a_terminal, free_ports  # noqa: E402
from nodes import alone, start_sweep  # noqa: E402

from rllib_scale.results.tables import EPISODE_COLUMNS, read_manifest, read_table  # noqa: E402

WORKERS = 2
SWEEP = """
name: growing
methods: [scale]
seeds: [1, 2]
training: {epochs: 30, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}
evaluation: {scales: [8], episodes: 2, heuristics: [], features: false}
"""
HEAD_ID = "f" * 51 + "00000"


def configuration(gcs_address: str, version: int) -> dict[str, Any]:
    """Up to two workers of one CPU, taken away after six seconds without work."""
    provider: dict[str, Any] = {"type": "fake_multinode", "gcs_address": gcs_address, "use_node_id_as_ip": True}
    if version == 2:  # wants the provider's default configuration, which is not in Ray's wheel, unless it is "external"
        module = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
        provider |= {"type": "external", "module": module, "disable_node_updaters": True, "launch_multiple": True}
        provider |= {"head_node_id": HEAD_ID}
    empty: dict[str, Any] = {"file_mounts": {}, "auth": {}, "file_mounts_sync_continuously": False}
    lists = ("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands")
    lists += ("head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    worker = {"resources": {"CPU": 1, "object_store_memory": 100_000_000}, "min_workers": 0, "max_workers": WORKERS}
    return {
        "cluster_name": "fake",
        "max_workers": WORKERS,
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 1.0,
        "provider": provider,
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": worker | {"node_config": {}},
        },
        **empty,
        **{name: [] for name in lists},
    }


class Autoscaled:
    """A head with an autoscaler of version 1, or 2 as `ray up` starts it."""

    def __init__(self, base: Path, version: int) -> None:
        import ray

        self.base = base
        port, client_port, agent_port = free_ports(3)
        self.address = f"{ray.util.get_node_ip_address()}:{port}"
        (base / "cluster.json").write_text(json.dumps(configuration(self.address, version)))
        fakes = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "HOME": str(base)}
        if version == 2:
            fakes |= {"RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": HEAD_ID}
            fakes |= {"RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID, "RAY_NODE_TYPE_NAME": "ray.head.default"}
        options = f"--head --block --num-cpus=0 --port={port} --ray-client-server-port={client_port}"
        options += f" --dashboard-agent-listen-port={agent_port} --include-dashboard=false"
        options += " --min-worker-port=0 --max-worker-port=0 --object-store-memory=100000000"
        options += f" --temp-dir={base / 'ray'} --autoscaling-config={base / 'cluster.json'}"
        with (base / "head.log").open("wb") as log:
            self.head = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *options.split()],
                env=os.environ | fakes,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=as_in_a_terminal,
            )
        deadline = time.monotonic() + 120
        while "Ray runtime started" not in (log := (base / "head.log").read_text()):
            assert self.head.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.2)

    def workers(self) -> int:
        """Nodes that are alive beside the head."""
        from ray._raylet import GcsClient

        found = GcsClient(address=self.address).get_all_node_info()
        return sum(info.state == info.ALIVE and not info.is_head_node for info in found.values())

    def await_workers(self, number: int) -> float:
        """Wait until there are so many; returns the seconds."""
        start = time.monotonic()
        while self.workers() != number:
            assert time.monotonic() < start + 120
            time.sleep(0.2)
        return time.monotonic() - start

    def stop(self) -> None:
        """Ctrl-C for the head; then an end to what its autoscaler started, which would outlive it for a minute."""
        started = psutil.Process(self.head.pid).children(recursive=True)
        self.head.send_signal(signal.SIGINT)
        self.head.wait(timeout=60)
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def autoscaled(version: int) -> AbstractContextManager[Autoscaled]:
    return alone(lambda folder: Autoscaled(folder, version))


@pytest.mark.parametrize("version", [2, 1])
def test_workers_come_for_a_sweep_and_go_after_it(
    version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, results = tmp_path / "growing.yaml", tmp_path / "results"
    file.write_text(SWEEP)
    with autoscaled(version) as cluster:
        assert cluster.workers() == 0
        process = start_sweep(cluster.base, cluster.address, file, results)
        came_s = cluster.await_workers(WORKERS)
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
        went_s = cluster.await_workers(0)
    waiting = "0 running, 2 waiting (needs 1 CPUs, 0 of 0 are free, the largest node has 0)"
    assert waiting in said
    assert len(read_table(results / "episodes.parquet", EPISODE_COLUMNS)) == 2 * 2
    manifest = read_manifest(results)
    assert manifest is not None
    learners = {places["learner"] for trial in manifest["nodes"].values() for places in trial}
    assert learners  # one or both: where the second node comes late, the first has trained both by then
    assert HEAD_ID not in learners
    with capsys.disabled():
        print(f"\n0 to {WORKERS} workers {came_s:.0f} s after the sweep's start, 0 again {went_s:.0f} s after its end")


def test_a_training_too_large_for_any_worker_is_told_so_and_can_be_broken_off(tmp_path: Path) -> None:
    file, results = tmp_path / "growing.yaml", tmp_path / "results"
    file.write_text(SWEEP)
    with autoscaled(version=2) as cluster:
        process = start_sweep(cluster.base, cluster.address, file, results, "--set", "resources.cpus=2")
        said = ""
        assert process.stdout is not None
        while "waiting (needs 2 CPUs, 0 of 0 are free" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
