"""Trainings that take the places of a sweep one after the other, in Tune on a local Ray."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from local_ray import LOCAL_RAY
from rllib_scale.sweeps.stopping import FirstComeFirstServed

pytestmark = LOCAL_RAY
PLACES, TRAININGS, BEFORE = 2, 6, 3


def test_a_training_whose_process_is_still_starting_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", str(PLACES))  # as a sweep sets it for its own places
    started, ended, before, places = tmp_path / "started", tmp_path / "ended", BEFORE, PLACES
    for folder in (started, ended):
        folder.mkdir()

    def wait_for(path: Path, count: int) -> None:
        deadline = time.monotonic() + 120  # if it fails, the test ends nevertheless
        while len(list(path.iterdir())) < count and time.monotonic() < deadline:
            time.sleep(0.02)

    class Short(tune.Trainable):  # here, as processes of Ray cannot import this file
        """One step. The first training ends when a second process is starting; that is ready when some have ended."""

        def setup(self, config: dict[str, Any]) -> None:
            self.number = config["number"]
            (started / str(self.number)).write_text(str(os.getpid()))
            try:
                (tmp_path / "first").mkdir()
            except FileExistsError:
                wait_for(ended, before)

        def step(self) -> dict[str, Any]:
            wait_for(started, places)
            (ended / str(self.number)).write_text(str(os.getpid()))
            return {"done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """It has nothing to save; Tune asks."""

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.number = new_config["number"]
            return True

    tune.Tuner(
        tune.with_resources(Short, {"CPU": 0.5}),
        param_space={"number": tune.grid_search(list(range(TRAININGS)))},
        tune_config=tune.TuneConfig(scheduler=FirstComeFirstServed(), max_concurrent_trials=PLACES, reuse_actors=True),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    own = {path.name: path.read_text() for path in started.iterdir()}
    trained = {path.name: path.read_text() for path in ended.iterdir()}
    assert len(trained) == TRAININGS
    assert sorted(own) == ["0", "1"], "the first two have a process each, the others one of these"
    assert {name: trained[name] for name in own} == own
