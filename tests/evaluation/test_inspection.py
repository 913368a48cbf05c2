"""Every decision of an episode that is played again can be looked into: what was chosen, what came of it, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from played_results import play_folder
from rllib_scale.evaluation.inspection import AVOIDABLE, IDLE, NO_FIT, STARTED, UNAVOIDABLE, inspect_episode, look
from rllib_scale.evaluation.replay import Replay

CAUSES = {"invalid_no_fit": NO_FIT, "invalid_busy_avoidable": AVOIDABLE, "invalid_busy_unavoidable": UNAVOIDABLE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """Random policies and heuristics on three episodes, as a sweep leaves them, and the rows."""
    home = tmp_path_factory.mktemp("results") / "r"
    evaluation = {
        "scales": [16, 32],
        "episodes": 3,
        "masks": ["none", "feasible"],
        "decisions": ["argmax", "sample"],
        "heuristics": ["fastest-idle", "round-robin", "heft"],
        "features": False,
    }
    return home, play_folder(
        home, methods=["scale", "attention-model", "set-transformer", "ppo"], evaluation=evaluation
    )


def of(
    rows: pd.DataFrame, method: str, servers: int = 16, mask: str = "none", decision: str = "argmax"
) -> dict[str, Any]:
    """Its third episode."""
    place = {"method": method, "test_servers": servers, "mask": mask, "decision": decision, "episode": 2}
    (row,) = [row for row in rows.to_dict("records") if place.items() <= row.items()]
    return row


@pytest.mark.parametrize(
    ("method", "place"),
    [
        ("scale", {}),
        ("scale", {"servers": 32, "mask": "feasible"}),
        ("scale", {"decision": "sample"}),
        ("attention-model", {}),
        ("set-transformer", {"mask": "feasible"}),
        ("ppo", {}),
        ("fastest-idle", {}),
        ("round-robin", {"servers": 32}),
        ("heft", {}),
    ],
)
def test_decisions_are_those_that_the_engine_carried_out(
    folder: tuple[Path, pd.DataFrame], method: str, place: dict[str, Any]
) -> None:
    row = of(folder[1], method, **place)
    inspected = inspect_episode(Replay(folder[0]), row)
    decisions, schedule = inspected.decisions, inspected.episode.schedule
    assert len(decisions) == row["decisions"]
    started = decisions[decisions["outcome"] == STARTED]
    assert len(started) == len(schedule) > 0
    for name in ("workflow", "task", "server"):
        assert started[name].tolist() == schedule[name].tolist()
    assert started["clock_s"].tolist() == schedule["start_s"].tolist()
    for metric, cause in CAUSES.items():
        assert (decisions["outcome"] == cause).sum() == row[metric]
    tasks = np.diff(inspected.workload.task_offsets)
    assert (schedule["task"] < tasks[schedule["workflow"]]).all()
    assert schedule["arrival_s"].tolist() == inspected.workload.arrival_s[schedule["workflow"]].tolist()


@pytest.mark.parametrize(
    ("method", "place", "has_attention"),
    [
        ("scale", {}, True),
        ("scale", {"servers": 32, "mask": "feasible"}, True),
        ("attention-model", {}, True),
        ("set-transformer", {"mask": "feasible"}, False),
        ("ppo", {}, False),
    ],
)
def test_the_server_chosen_is_the_most_probable(
    folder: tuple[Path, pd.DataFrame], method: str, place: dict[str, Any], has_attention: bool
) -> None:
    row = of(folder[1], method, **place)
    inspected = inspect_episode(Replay(folder[0]), row)
    for k in range(0, len(inspected.decisions), 5):
        view = look(inspected, k)
        assert view is not None
        assert view.probabilities.sum() == pytest.approx(1)
        chosen = view.probabilities[inspected.decisions["server"][k]]
        assert chosen == pytest.approx(view.probabilities.max(), rel=1e-4)
        servers = inspected.servers(k)
        assert servers is not None
        assert (inspected.decisions["outcome"][k] == STARTED) == (servers[inspected.decisions["server"][k]] == IDLE)
        if row["mask"] == "feasible":
            assert (view.probabilities[servers != IDLE] == 0).all()
        assert (view.attention is not None) == has_attention
        if view.attention is not None:
            assert view.attention.shape == (2, 4, row["test_servers"])
            assert view.attention.sum(-1) == pytest.approx(np.ones((2, 4)))


@pytest.mark.parametrize("method", ["fastest-idle", "heft"])
def test_heuristics_have_neither_probabilities_nor_attention(folder: tuple[Path, pd.DataFrame], method: str) -> None:
    assert look(inspect_episode(Replay(folder[0]), of(folder[1], method)), 0) is None


def test_observations_of_a_huge_episode_are_not_kept(
    folder: tuple[Path, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = of(folder[1], "scale")
    monkeypatch.setattr("rllib_scale.evaluation.inspection.MOST_BYTES", 10_000)
    inspected = inspect_episode(Replay(folder[0]), row)
    assert len(inspected.decisions) == row["decisions"]
    assert (inspected.observations, inspected.servers(0), look(inspected, 0)) == (None, None, None)
