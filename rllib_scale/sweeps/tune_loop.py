"""Tune's loop without outputs that a sweep does not read: memory and requests of the driver do not grow with epochs.

Tune keeps statistics of every metric of every training, writes them all into each of its snapshots, uploads its whole
folder with each, and reads all curves back in the end. A sweep resumes from checkpoints and reads results by name. The
names of Tune's that are replaced here are private: they are those of Ray 2.60.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from ray.train._internal import storage
from ray.tune import tune
from ray.tune.execution.tune_controller import TuneController
from ray.tune.trainable.metadata import _TrainingRunMetadata

AT_ONCE = 16
"""Files uploaded at a time."""
Version = tuple[int, int]
"""Size and time of the last change of a file [ns]."""


class Loop(TuneController):
    """Tune's loop, which forgets the rows of a training that has ended."""

    def _create_checkpoint_manager(self) -> Any:
        manager = super()._create_checkpoint_manager()
        manager._sync_every_n_trial_checkpoints = None  # each would upload everything, while the loop waits
        return manager

    def save_to_dir(self) -> None:
        """Write the file of the snapshot: its time shows `status` that the sweep runs."""
        path = Path(self.experiment_state_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", encoding="utf-8")

    def stop_trial(self, trial: Any) -> None:
        """Stop a training and forget its rows."""
        super().stop_trial(trial)
        metadata = trial.run_metadata
        metadata.last_result = {}
        manager = metadata.checkpoint_manager
        for result in (*manager.best_checkpoint_results, manager.latest_checkpoint_result):
            if result is not None:
                result.metrics.clear()


class UploadOfChanges(storage._FilesystemSyncer):
    """Uploads the files that are new or have changed since the last upload."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._sent: dict[str, Version] = {}

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_sent": {}}

    def _sync_up_command(self, local_path: str, uri: str, exclude: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._send, {"folder": local_path, "target": uri}

    def _send(self, folder: str, target: str) -> None:
        changed = {path: version for path, version in _versions(folder) if self._sent.get(path) != version}
        if self.storage_filesystem.type_name == "local":
            for parent in {os.path.dirname(path) for path in changed}:
                os.makedirs(os.path.join(target, os.path.relpath(parent, folder)), exist_ok=True)

        def send(path: str) -> None:
            storage._pyarrow_fs_copy_files(
                path, f"{target}/{os.path.relpath(path, folder)}", destination_filesystem=self.storage_filesystem
            )
            self._sent[path] = changed[path]

        with ThreadPoolExecutor(AT_ONCE) as pool:
            _exhaust(pool.map(send, changed))


def _versions(folder: str) -> Iterator[tuple[str, Version]]:
    """Path and version of each file below a folder."""
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _versions(entry.path)
        else:
            stat = entry.stat()
            yield entry.path, (stat.st_size, stat.st_mtime_ns)


def _exhaust(results: Iterable[None]) -> None:
    """Wait for all, and raise the first error."""
    for _ in results:
        pass


@contextmanager
def small_tune() -> Iterator[None]:
    """For a block, let Tune run `Loop`, upload changes alone, keep no statistics and read nothing back."""
    with (
        patch.object(tune, "TuneController", Loop),
        patch.object(tune, "ExperimentAnalysis", lambda **_: SimpleNamespace(trials=[])),
        patch.object(storage, "_FilesystemSyncer", UploadOfChanges),
        patch.object(_TrainingRunMetadata, "update_metric", lambda self, metric, value, step=None: None),
    ):
        yield
