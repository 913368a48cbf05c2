"""Sweeps on clusters of several nodes: spread over them, and whatever is killed, the results are the same."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.ray]

import ray  # noqa: E402
from ray.core.generated.gcs_pb2 import ActorTableData  # noqa: E402

from clusters.nodes import nodes  # noqa: E402
from rllib_scale.clusters.session import ray_session  # noqa: E402
from sweep_runs import SHORT, await_that, episodes, kill, refused, saved_epoch, succeed, training, weights  # noqa: E402

SWEEP = f"""
name: faults
methods: [scale]
seeds: [1, 2, 3]
algorithm: {{epochs: 30, {SHORT}}}
evaluation: {{scales: [8], episodes: 2, heuristics: [fastest-idle], features: false}}
resources: {{env_runners: 2}}
checkpoints: {{every_epochs: 5}}
"""
TRAININGS = 250
NO_NODE = f"trainings 0/{TRAININGS} done, {TRAININGS} waiting (no node has joined yet; each needs 1 CPU)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "faults.yaml").write_text(SWEEP)
    return tmp_path / "faults.yaml"


def epochs_saved(results: Path) -> int:
    """Epochs in the newest whole checkpoints of all trainings, in sum."""
    newest: dict[str, int] = {}
    for path in results.glob("trials/run-*/*/checkpoint_*"):
        newest[path.parent.name] = max(newest.get(path.parent.name, 0), saved_epoch(path))
    return sum(newest.values())


def actors() -> list[str]:
    """Class of each actor that the Ray of this session has had, as its dashboard shows it."""
    table = ray._private.state.state._connect_and_get_accessor().get_actor_table(None, None)
    return [ActorTableData.FromString(actor).class_name for actor in table]


def test_a_training_is_spread_over_two_nodes_and_ray_shows_its_class(file: Path, tmp_path: Path) -> None:
    """Each node has one CPU, for the learner or for its environment runner, so neither holds both."""
    small = ["seeds=[1]", "algorithm.epochs=2", "resources.env_runners=1"]
    with nodes(1, 1) as two:
        succeed("sweep", file, "--address", two.cluster.address, "--results", tmp_path / "results", settings=small)
        with ray_session(two.cluster.address):
            assert "SchedulingTrial" in actors()
    assert sorted(episodes(tmp_path / "results")["method"]) == ["fastest-idle"] * 2 + ["scale"] * 2


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:{closed}", "no cluster answers (Connection refused)"),
        ("ray://127.0.0.1:10001", "expected HOST:PORT, or auto on a node of the cluster"),
        pytest.param("127.0.0.1:{mute}", "what answers is not the head of a Ray cluster", marks=pytest.mark.slow),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once_in_one_line(
    address: str, why: str, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("", 0)) as mute:
        with socket.create_server(("", 0)) as server:
            closed = server.getsockname()[1]
        at = address.format(closed=closed, mute=mute.getsockname()[1])
        line = refused("sweep", file, "--address", at, "--results", tmp_path / "results")
    assert f"Ray at {at}: {why}" in line
    assert capfd.readouterr().err == "", "Ray's own lines"


@pytest.mark.slow
def test_remote_learners_train_on_two_nodes(file: Path, tmp_path: Path) -> None:
    """The training's process and two learners take one CPU each, so neither node holds all three."""
    small = ["seeds=[1]", "algorithm.epochs=2", "resources.env_runners=0", "resources.learners=2"]
    with nodes(2, 1) as two:
        succeed("sweep", file, "--address", two.cluster.address, "--results", tmp_path / "results", settings=small)
    assert len(episodes(tmp_path / "results").query("method == 'scale'")) == 2


@pytest.mark.slow
def test_trainings_wait_as_an_autoscaler_sees_it_until_a_node_comes(file: Path, tmp_path: Path) -> None:
    """On a head without CPUs, as that of cluster.yaml: not all at a time, which Ray could not place any more."""
    results = tmp_path / "results"
    small = [f"seeds={[*range(TRAININGS)]}", "resources.env_runners=0", "algorithm.epochs=1"]
    with nodes(0) as cluster:
        process = cluster.sweep(file, results, *small)
        assert process.stdout is not None
        assert any(NO_NODE in line for line in iter(process.stdout.readline, ""))
        with ray_session(cluster.cluster.address):
            groups = ray.util.placement_group_table().values()
            assert [group["state"] for group in groups] == ["PENDING"] * 200
        cluster.add(1)
        assert any("1 running" in line for line in iter(process.stdout.readline, ""))
        kill(process)


@pytest.mark.slow
def test_whatever_is_killed_the_results_are_those_of_an_undisturbed_run(file: Path, tmp_path: Path) -> None:
    """The driver, a node; and a Ctrl-C.

    Each of three nodes is too small for a training's three CPUs.
    """
    results, undisturbed = tmp_path / "results", tmp_path / "undisturbed"
    with nodes(6) as single:
        single.finish(file, undisturbed)
    with nodes(2, 2, 2) as three:
        driver = three.sweep(file, results)

        def await_epochs(more: int) -> None:
            before = epochs_saved(results)
            await_that(lambda: epochs_saved(results) >= before + more, driver)

        await_epochs(20)
        kill(driver)
        driver = three.sweep(file, results)
        await_epochs(15)
        three.kill(three.workers[0])
        three.workers.append(three.add(2))
        await_epochs(15)
        driver.send_signal(signal.SIGINT)
        said, errors = driver.communicate(timeout=120)
        assert driver.returncode == 130
        assert "restart" in said
        assert "raylet" not in said + errors, "what Ray says of a lost node"
        assert "resume" in three.finish(file, results)
    for table in (episodes, training):
        pd.testing.assert_frame_equal(table(results), table(undisturbed), check_exact=True)
    assert weights(results) == weights(undisturbed)
