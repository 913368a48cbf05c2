"""Sweeps on clusters of several nodes: spread over them, and whatever is killed, the results are the same."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.ray]

from nodes import Nodes, assert_same, await_that, epochs_saved, kill_driver, nodes  # noqa: E402

from rllib_scale.cli import main  # noqa: E402
from rllib_scale.results.tables import EPISODE_COLUMNS, read_manifest, read_table  # noqa: E402

EPOCHS = 30
SWEEP = f"""
name: faults
methods: [scale]
seeds: [1, 2, 3]
training: {{epochs: {EPOCHS}, steps_per_epoch: 64, minibatch_size: 32, passes: 1, num_envs: 2}}
evaluation: {{scales: [8], episodes: 2, heuristics: [fastest-idle], features: false}}
resources: {{env_runners: 2}}
checkpoints: {{every_epochs: 5}}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweeps") / "faults.yaml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def undisturbed(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the sweep on a single node."""
    results = tmp_path_factory.mktemp("undisturbed") / "results"
    with nodes(6) as single:
        single.finish(file, results)
    return results


@pytest.fixture(scope="module")
def three() -> Iterator[Nodes]:
    """Three nodes, each too small for a training's three CPUs, in all large enough for two trainings."""
    with nodes(2, 2, 2) as cluster:
        yield cluster


def assert_spread(results: Path) -> None:
    """Each training had its learner and its environment runners on more nodes than one."""
    manifest = read_manifest(results)
    assert manifest is not None
    assert len(manifest["nodes"]) == 3
    for places in manifest["nodes"].values():
        assert len(places[-1]["env_runners"]) == 2
        assert len({places[-1]["learner"], *places[-1]["env_runners"]}) > 1


def test_a_training_is_spread_over_two_nodes(file: Path, tmp_path: Path) -> None:
    """Of one CPU each: its learner has one, its environment runner the other."""
    small = ("seeds=[1]", "training.epochs=2", "resources.env_runners=1")
    options = ["--results", str(tmp_path / "results"), *(word for setting in small for word in ("--set", setting))]
    with nodes(1, 1) as two:
        done = CliRunner().invoke(main, ["sweep", str(file), "--address", two.cluster.address, *options])
    assert done.exit_code == 0, done.output
    manifest = read_manifest(tmp_path / "results")
    assert manifest is not None
    ((places,),) = manifest["nodes"].values()
    assert len({places["learner"], *places["env_runners"]}) == 2
    rows = read_table(tmp_path / "results" / "episodes.parquet", EPISODE_COLUMNS)
    assert sorted(rows["method"]) == ["fastest-idle"] * 2 + ["scale"] * 2


@pytest.mark.slow
def test_on_three_nodes_a_sweep_gives_the_rows_of_a_single_one(
    file: Path, undisturbed: Path, three: Nodes, tmp_path: Path
) -> None:
    said = three.finish(file, tmp_path / "results")
    assert re.search(r"waiting \((needs 3 CPUs, [0-2] of 6 are free, the largest node has 2)", said)
    assert_same(tmp_path / "results", undisturbed)
    assert_spread(tmp_path / "results")
    alone = read_manifest(undisturbed)
    assert alone is not None
    assert len({node for places in alone["nodes"].values() for node in places[-1]["env_runners"]}) == 1


@pytest.mark.slow
def test_whatever_is_killed_the_results_are_those_of_an_undisturbed_run(
    file: Path, undisturbed: Path, three: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An environment runner, the driver, a node; and a Ctrl-C."""
    results = tmp_path / "results"
    times: dict[str, float] = {}

    def progress_after(fault: str, process: object) -> None:
        start, before = time.monotonic(), epochs_saved(results)
        await_that(lambda: epochs_saved(results) > before + 10, process)  # type: ignore[arg-type]
        times[fault] = time.monotonic() - start

    driver = three.sweep(file, results)
    await_that(lambda: epochs_saved(results) >= 10, driver)
    three.env_runners()[0].kill()
    progress_after("environment runner", driver)
    kill_driver(driver, 0)
    driver = three.sweep(file, results)
    progress_after("driver", driver)
    victim = three.workers[0]
    three.kill(victim)
    three.workers.append(three.add(2))
    progress_after("node", driver)
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=120)
    assert driver.returncode == 130
    said = three.finish(file, results)
    assert "go on" in said
    assert_same(results, undisturbed)
    assert_spread(results)
    with capsys.disabled():
        print(f"\n3 faults and a Ctrl-C survived; seconds until new checkpoints of 10 epochs: {times}")


@pytest.mark.slow
def test_ten_kills_of_the_driver_at_random_moments_change_nothing(
    file: Path, undisturbed: Path, three: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one sweep after another, as some end before they are killed ten times."""
    generator, survived, sweeps = random.Random(5), 0, 0
    while survived < 10:
        driver = three.sweep(file, tmp_path / str(sweeps))
        kill_driver(driver, generator.uniform(1.0, 25.0))
        if driver.returncode == -9:
            survived += 1
            continue
        assert driver.returncode == 0
        assert_same(tmp_path / str(sweeps), undisturbed)
        sweeps += 1
    three.finish(file, tmp_path / str(sweeps))
    assert_same(tmp_path / str(sweeps), undisturbed)
    with capsys.disabled():
        print(f"\n{survived} kills of the driver survived, in {sweeps + 1} sweeps")
