"""`execute` refuses what cannot be before any Ray starts: one line, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from live.problems import task, work
from networks.observations import random_network
from rllib_scale.cli import main
from rllib_scale.config import TrialConfig
from rllib_scale.policies.policy import save_policy


def refuse(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one line on stderr of a command that must not start Ray."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr("rllib_scale.clusters.session.ray_session", started)
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 2, (result.exit_code, result.exception)
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture
def small(tmp_path: Path) -> Path:
    work((0.0, [task(1), task(2)], [[0, 1]])).save(tmp_path / "small.json")
    return tmp_path / "small.json"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--scheduler", "fastest-idel"), "unknown scheduler 'fastest-idel'; did you mean 'fastest-idle'?"),
        (("--scenario", "churn"), "unknown scenario 'churn'"),
        (("--time-scale", "0"), "--time-scale"),
        (("--servers", "1"), "cluster.servers: input should be greater than or equal to 4 (got 1)"),
    ],
)
def test_what_cannot_be_played_is_refused(
    options: tuple[str, ...], why: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refuse("execute", small, "--results", tmp_path / "results", *options, monkeypatch=monkeypatch)
    assert why in line
    assert not (tmp_path / "results").exists()


def test_a_policy_that_does_not_fit_the_cluster_is_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_policy(tmp_path / "mlp", random_network(method="ppo"), TrialConfig(method="ppo"), epochs=1)
    line = refuse("execute", small, "--servers", 8, "--scheduler", tmp_path / "mlp", monkeypatch=monkeypatch)
    assert "was trained at 16 server slots and knows no other number; this cluster has 8" in line


def test_a_task_that_fits_no_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work((0.5, [task(1, memory=81.0)], [])).save(tmp_path / "large.json")
    line = refuse("execute", tmp_path / "large.json", monkeypatch=monkeypatch)
    assert line.endswith(
        "large.json: workflow 0, task 0 (arrival_s 0.5) fits no server: memory_gb is 81.0, the largest server has 80.0"
    )
