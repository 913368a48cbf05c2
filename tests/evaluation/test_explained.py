"""A moment of an episode that a price rule played, with what plays it as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from played_results import play_folder
from rllib_scale.errors import UserError
from rllib_scale.evaluation.explained import COLUMNS, explain_played
from rllib_scale.evaluation.replay import Replay


def test_a_moment_has_the_start_that_was_played_and_the_policy_can_be_asked_again(tmp_path: Path) -> None:
    evaluation = {"scales": [16], "episodes": 1, "heuristics": ["adaptive-price", "fastest-idle"]}
    env = {"episode": {"horizon_s": 60.0}}
    rows = play_folder(tmp_path, methods=[], env=env, evaluation=evaluation).to_dict("records")
    played = {row["method"]: Replay(tmp_path).episode(row) for row in rows}
    assert explain_played(played["fastest-idle"], 0.0) is None
    episode = played["adaptive-price"]
    for start in episode.schedule[[0, len(episode.schedule) // 2, -1]]:
        moment = explain_played(episode, start["start_s"])
        assert moment is not None
        assert moment.clock_s == start["start_s"]
        (row,) = (row for row in moment.rows if row["task"] == f"{start['workflow']}.{start['task']}")
        assert row["decision"] == f"starts on {start['server']}"
        assert set(COLUMNS.values()) <= set(row)
        assert set(moment.prices) == {1.0, 2.0, 4.0}
    assert explain_played(episode, 0.0) == explain_played(episode, 0.0)
    with pytest.raises(UserError, match=r"the episode ends at 60 s"):
        explain_played(episode, 100.0)
