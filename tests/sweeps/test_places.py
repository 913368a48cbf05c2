"""Trainings that take the places of a sweep one after the other, in Tune on a local Ray."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from rllib_scale.sweeps.stopping import FirstComeFirstServed
from tests.local_ray import LOCAL_RAY

pytestmark = LOCAL_RAY
PLACES, TRAININGS, BEFORE = 2, 6, 3


def test_a_process_that_is_still_starting_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", str(PLACES))  # as a sweep sets it for its own places
    processes, ended = tmp_path / "processes", tmp_path / "ended"
    before = BEFORE

    class Short(tune.Trainable):  # here, as processes of Ray cannot import this file
        """One step without work. The first process starts at once, any other when some trainings have ended."""

        def setup(self, config: dict[str, Any]) -> None:
            self.number = config["number"]
            (processes / str(os.getpid())).touch()
            try:
                (tmp_path / "first").mkdir()
            except FileExistsError:
                deadline = time.monotonic() + 20  # a test that fails is to end
                while len(list(ended.iterdir())) < before and time.monotonic() < deadline:
                    time.sleep(0.02)

        def step(self) -> dict[str, Any]:
            (ended / str(self.number)).touch()
            return {"done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """It has nothing to save; Tune asks."""

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.number = new_config["number"]
            return True

    for folder in (processes, ended):
        folder.mkdir()
    tune.Tuner(
        tune.with_resources(Short, {"CPU": 0.5}),
        param_space={"number": tune.grid_search(list(range(TRAININGS)))},
        tune_config=tune.TuneConfig(scheduler=FirstComeFirstServed(), max_concurrent_trials=PLACES, reuse_actors=True),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert len(list(ended.iterdir())) == TRAININGS
    assert len(list(processes.iterdir())) == PLACES
