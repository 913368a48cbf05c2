"""The reproduction, at toy size: all parts, each training done once, and one report of all rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("ray")

from rllib_scale_analysis import load

from local_ray import LOCAL_RAY
from rllib_scale.errors import UserError
from rllib_scale.results.columns import EPISODE_KEY
from rllib_scale.sweeps.reproduce import PARTS, plans_of_parts
from sweep_runs import episodes, succeed

pytestmark = LOCAL_RAY
TINY = ["algorithm.epochs=1", "algorithm.steps_per_epoch=512", "evaluation.scales=[16]", "evaluation.episodes=2"]
TINY.append("evaluation.heuristics=[fastest-idle]")


def test_a_setting_reaches_the_parts_that_use_it_and_is_refused_if_none_does() -> None:
    plans = plans_of_parts((), ("algorithm.steps_per_epoch=512", "algorithm.batch_size=64", "algorithm.epochs=7"))
    algorithms = [trial.config.algorithm for plan in plans.values() for trial in plan.trials]
    assert {algorithm.epochs for algorithm in algorithms} == {7}
    assert {(a.name, getattr(a, "steps_per_epoch", None)) for a in algorithms} >= {("ppo", 512)}
    assert {a.batch_size for a in algorithms if a.name == "sac"} == {64}
    with pytest.raises(UserError, match=r"algorithm\.population"):
        plans_of_parts((), ("algorithm.population=8",))


@pytest.mark.slow
def test_all_parts_run_once_and_have_one_report(tmp_path: Path) -> None:
    succeed("reproduce", "--results", tmp_path, settings=TINY)
    parts = {name: tmp_path / name for name in PARTS}

    def trained() -> dict[str, list[str]]:
        """Methods that each part trained itself."""
        folders = {name: sorted(part.glob("trials/*/*-s42-*")) for name, part in parts.items()}
        return {name: [path.name.split("-s42")[0] for path in found] for name, found in folders.items()}

    others = {"table3": ["ppo", "ppo-srr"], "table3_off_policy": ["dqn", "sac"], "scenarios": [], "scale_1024": []}
    assert trained() == {"table4": ["crossattn", "scale"]} | others, "the other trainings are reused"
    rows = pd.concat([episodes(part) for part in parts.values()])
    assert rows.duplicated(list(EPISODE_KEY)).any(), "parts share rows, which must not stand twice"
    joined = load(*parts.values())
    assert joined.episodes.set_index(list(EPISODE_KEY)).index.is_unique
    played = [name for name in EPISODE_KEY if name != "protocol"]  # what differs in the reward alone counts once
    assert set(joined.episodes.set_index(played).index) == set(rows.set_index(played).index)
    assert set(joined.training["method"]) == {"crossattn", "dqn", "ppo", "ppo-srr", "sac", "scale"}
    assert (tmp_path / "table4" / "report" / "report.html").is_file()

    before = trained()
    succeed("reproduce", "--results", tmp_path, settings=TINY)
    assert trained() == before
