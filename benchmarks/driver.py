"""The driver of a sweep at scale: time until its trainings start on a remote store, and its memory.

The start is that of real `sweep` commands against moto's S3 server, each request `DELAY_S` late: from the command to
the first line of progress, once into an empty folder and once where every training resumes. The memory is that of a
process in which Tune's loop runs with simulated actors, which answer at once, and without loggers, which write each row
to a file. Memory per training shows with many trainings of few epochs, and memory per epoch with few trainings of
many epochs.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from benchmarks.measure import Measure
from rllib_scale.loading import load_sweep
from rllib_scale.results.columns import TRAINING_COLUMNS
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checkpoints import writing
from rllib_scale.sweeps.planning import make_plan

DELAY_S = 0.04
START_AIM_S, MEMORY_AIM_GB = 60.0, 2.0
EPOCHS = 1000
"""Epochs of each training at which the memory is stated."""
WIDE, SHORT, LONG = 3, (50, 100), (50, 2000)
"""Epochs of many trainings; trainings and epochs of a short and a long simulation."""
RUNNING = 320
"""Trainings side by side: twenty nodes of 16 CPUs."""


def bucket() -> AbstractContextManager[str]:
    """Moto's S3 server, for a block; yields the URI of a folder, `%s` where its name goes."""
    from tests.s3_server import s3_server

    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    return s3_server(delay_s=DELAY_S)


def measure_start(sweep_file: Path, trainings: int) -> list[Measure]:
    """Seconds from the command to the first line of progress."""
    found = []
    with bucket() as place:
        home = Location(place % "start")
        for title in ("start", "resume"):
            taken = _seconds_to_progress(["sweep", str(sweep_file), "--results", str(home), "--trust"], trainings)
            name = f"{title} of {trainings:,} trainings on S3, {1000 * DELAY_S:.0f} ms a request"
            found.append(Measure(name, "s", taken, bar=START_AIM_S, aim=START_AIM_S, at_most=True))
            if title == "start":
                _add_checkpoints(home, [trial.name for trial in make_plan(load_sweep(sweep_file), "x").trials])
    return found


def _seconds_to_progress(words: list[str], trainings: int) -> float:
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rllib_scale", *words], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if re.search(rf"trainings \d+/{trainings} done", line):
                return time.perf_counter() - start
        raise SystemExit(f"start: the sweep ended with code {process.wait()}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _add_checkpoints(home: Location, names: list[str]) -> None:
    """A checkpoint and Tune's five other files for each training, as an interrupted run leaves them."""

    def add(name: str) -> None:
        trial = home / "trials" / "run-001" / name
        with (trial / "checkpoint_000000").writing() as folder, writing(folder, 1) as content:
            (content / "curve.json").write_text("[]")
        with trial.writing() as folder:
            for file in ("params.json", "params.pkl", "progress.csv", "result.json", "events.out.tfevents"):
                (folder / file).touch()

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(add, names))


def measure_memory(sweep_file: Path, trainings: int) -> list[Measure]:
    """Peak memory of the driver: of all trainings, and of their epochs by extrapolation."""
    wide = _simulated(sweep_file, trainings, WIDE)
    short, long = (_simulated(sweep_file, *size) for size in (SHORT, LONG))
    per_row = max(0.0, long - short) / (LONG[0] * (LONG[1] - SHORT[1]))
    whole = wide + per_row * trainings * EPOCHS
    name = f"memory of the driver at {trainings:,} trainings of {EPOCHS} epochs, simulated"
    return [
        Measure(f"memory of the driver at {trainings:,} trainings of {WIDE} epochs", "GB", wide, at_most=True),
        Measure(
            name, "GB", whole, bar=MEMORY_AIM_GB, aim=MEMORY_AIM_GB, at_most=True, rounds=({"row_b": 1e9 * per_row},)
        ),
    ]


def _simulated(sweep_file: Path, trainings: int, epochs: int) -> float:
    command = [sys.executable, "-m", "benchmarks.driver", str(sweep_file), str(trainings), str(epochs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


class _Actors:
    """Tune's manager of actors, whose actors answer at once: `train` with a row, `save` with an empty folder."""

    def __init__(self, resource_manager: Any, epochs: int) -> None:
        self.epochs = epochs
        self.events: deque[tuple[Any, Callable[[], object]]] = deque()
        self.trained: dict[Any, int] = {}
        self.storage: dict[Any, Any] = {}
        self._live_actors_to_ray_actors_resources: dict[Any, Any] = {}
        self.numbers = itertools.count()
        self.num_pending_actors = self.num_actor_tasks = 0

    @property
    def num_live_actors(self) -> int:
        return len(self.trained)

    num_total_actors = num_live_actors

    def add_actor(
        self, cls: Any, resource_request: Any, kwargs: Any, on_start: Any, on_stop: Any, on_error: Any
    ) -> Any:
        from ray.air.execution._internal import TrackedActor

        actor = TrackedActor(next(self.numbers), on_start, on_stop, on_error)
        silent = SimpleNamespace(get_auto_filled_metrics=SimpleNamespace(remote=lambda **_: None))
        self._live_actors_to_ray_actors_resources[actor] = (silent, None)
        self.trained[actor], self.storage[actor] = 0, kwargs["storage"]
        self.events.append((actor, lambda: on_start(actor)))
        return actor

    def schedule_actor_task(
        self, tracked_actor: Any, method_name: str, args: Any = (), kwargs: Any = None, on_result: Any = None, **_: Any
    ) -> None:
        answers = {"train": self._row, "save": self._saved, "reset": lambda actor: True}
        if method_name == "reset":
            self.trained[tracked_actor], self.storage[tracked_actor] = 0, kwargs["storage"]
        if method_name in answers:
            answer = answers[method_name]
            self.events.append((tracked_actor, lambda: on_result(tracked_actor, answer(tracked_actor))))

    def _row(self, actor: Any) -> dict[str, Any]:
        self.trained[actor] = epoch = self.trained[actor] + 1
        row: dict[str, Any] = {name: float(epoch) for name, (kind, _) in TRAINING_COLUMNS.items() if kind == "float64"}
        row |= {"runners": 0, "runners_healthy": 0, "runner_restarts": 0, "score": 1.0, "response_recent_s": 1.0}
        row |= {"epoch": epoch, "training_iteration": epoch, "env_steps": 1024 * epoch, "pid": 1, "node_ip": "x"}
        return row | {"done": epoch >= self.epochs, "config": {"trial": "x"}}

    def _saved(self, actor: Any) -> Any:
        from ray.train import Checkpoint
        from ray.train._internal.session import _TrainingResult

        folder = Path(self.storage[actor].trial_fs_path) / f"checkpoint_{self.trained[actor]:06d}"
        folder.mkdir(parents=True)
        return _TrainingResult(Checkpoint(str(folder)), self._row(actor))

    def next(self, timeout: float) -> bool:
        while self.events:
            actor, event = self.events.popleft()
            if actor in self.trained:
                event()
                return True
        return False

    def is_actor_started(self, tracked_actor: Any) -> bool:
        return tracked_actor in self.trained

    def is_actor_failed(self, tracked_actor: Any) -> bool:
        return False

    def remove_actor(self, tracked_actor: Any, **_: Any) -> bool:
        self._live_actors_to_ray_actors_resources.pop(tracked_actor, None)
        return self.trained.pop(tracked_actor, None) is not None

    def clear_actor_task_futures(self, tracked_actor: Any) -> None:
        self.events = deque((actor, event) for actor, event in self.events if actor is not tracked_actor)

    def get_live_actors_resources(self) -> list[Any]:
        return []

    def cleanup(self) -> None:
        pass


def simulate(sweep_file: Path, trainings: int, epochs: int) -> float:
    """Run Tune's loop of a sweep with simulated actors; returns the peak memory of this process [GB]."""
    from functools import partial
    from tempfile import TemporaryDirectory

    from rllib_scale.clusters.session import ray_session
    from rllib_scale.sweeps import tuning
    from rllib_scale.sweeps.evaluations import Evaluations
    from rllib_scale.sweeps.sweep import Sweep

    settings = ["evaluation.heuristics=[]", f"resources.max_concurrent={RUNNING}", f"algorithm.epochs={epochs}"]
    plan = make_plan(load_sweep(sweep_file, settings), "x")
    actors = partial(_Actors, epochs=epochs)
    manager = "ray.tune.execution.tune_controller.RayActorManager"
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    with TemporaryDirectory() as folder, ray_session(num_cpus=1), patch(manager, actors):
        sweep = Sweep(plan, Path(folder) / "results", lambda line: print(line, file=sys.stderr))
        sweep.open()
        tuning._fit(sweep, plan.trials[:trainings], {}, None, Evaluations(sweep, False, 1))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    print(json.dumps(simulate(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
