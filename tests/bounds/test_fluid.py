"""The fluid bound by hand, and where it is not known."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from bounds.instances import problem, workload
from rllib_scale.bounds import fluid
from rllib_scale.bounds.fluid import fluid_bound
from rllib_scale.bounds.lower_bounds import lower_bounds
from rllib_scale.cli import main
from rllib_scale.config import SCENARIOS
from rllib_scale.errors import UserError
from rllib_scale.workloads.generators import generate


def test_a_task_alone_takes_its_time() -> None:
    env = problem((1, 1.0, 8.0), (1, 2.0, 8.0))
    assert fluid_bound(env, workload((3.0, [8.0], []))) == pytest.approx(4, rel=1e-5)
    assert fluid_bound(env, workload((3.0, [8.0, 4.0], [[0, 1]]), delay_s=1.0)) == pytest.approx(6.5, rel=1e-5)


def test_one_server_takes_one_at_a_time() -> None:
    """Ten of 1 s at 0 on one server end at 1 to 10 s, 5.5 in the mean; finer bins see more of that."""
    work, env = workload((0.0, [1.0] * 10, [])), problem((1, 1.0, 8.0), horizon_s=12.0)
    coarse, fine = fluid_bound(env, work, 4), fluid_bound(env, work, 400)
    assert 1 < coarse < fine <= 5.5
    assert fine == pytest.approx(5.5, rel=0.02)


def test_what_cannot_be_done_counts_up_to_the_horizon() -> None:
    # Two of 4 s end in time on one server; the others count 9 s.
    bound = fluid_bound(problem((1, 1.0, 8.0), horizon_s=9.0), workload((0.0, [4.0] * 5, [])), 90)
    assert bound <= (4 + 8 + 9 + 9 + 9) / 5
    assert bound > 7


def test_it_is_tighter_than_the_capacity_bound_where_there_are_queues() -> None:
    env = SCENARIOS["steady-0.9"][0]
    work = generate(env, 4, 0)
    assert fluid_bound(env, work, 20) > 1.02 * lower_bounds(env, work)["bound_capacity_s"]


def test_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    work = workload((5.0, [1.0, 2.0], []))
    assert math.isnan(fluid_bound(problem((1, 1.0, 8.0), horizon_s=4.0), work))
    resumed = problem((1, 1.0, 8.0), decision={"on_busy": "reserve", "preemption": "resume"})
    assert math.isnan(fluid_bound(resumed, work))
    monkeypatch.setattr(fluid, "MOST_TASKS", 1)
    with pytest.raises(UserError, match="2 tasks arrive in an episode; the fluid bound is for at most 1"):
        fluid_bound(problem((1, 1.0, 8.0)), work)


def test_the_command_writes_a_row_an_episode(tmp_path: Path) -> None:
    output = tmp_path / "bounds.csv"
    shown = CliRunner().invoke(
        main, ["bounds", "steady-0.7", "--scales", "8,16", "--episodes", "2", "--fluid", "--output", str(output)]
    )
    assert shown.exit_code == 0, shown.output
    rows = pd.read_csv(output)
    assert rows[["test_servers", "episode"]].to_numpy().tolist() == [[8, 0], [8, 1], [16, 0], [16, 1]]
    assert (rows["bound_critical_path_s"] <= rows["bound_capacity_s"]).all()
    assert (rows["bound_fluid_s"] > rows["bound_critical_path_s"]).all()
