"""Checkpoints in Tune's folder, and published policies. Imports no ray.

A checkpoint is one file in a folder that Tune names, epoch-NNNNNN.zip: a store takes a request or more for each file.
Its table of contents is at its end, so it is complete if that can be read. It holds

    algorithm/      the learner's state, with pickles that name classes of this program and of libraries
    policy/         the policy so far, as it is published
    curve.json      a row for each epoch
    contents.json   {"format", "version": of the program}
"""

from __future__ import annotations

import io
import json
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rllib_scale import __version__
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic, write_json
from rllib_scale.results.storage import Location

CONTENTS = "contents.json"
FORMAT = 6
"""Changes when something that a checkpoint's pickles name moves or changes its meaning."""
_FILE = re.compile(r"epoch-(\d{6,})\.zip")
_RUN = re.compile(r"/(run-\d+)/")


@contextmanager
def writing(checkpoint: Path, epoch: int) -> Iterator[Path]:
    """A folder whose content becomes a checkpoint when the block ends without an error.

    Raises:
        UserError: it cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="rllib-scale-") as name:
        folder = Path(name)
        yield folder
        write_json(folder / CONTENTS, {"format": FORMAT, "version": __version__})

        def pack(path: Path) -> None:
            with zipfile.ZipFile(path, "w") as archive:
                for file in sorted(folder.rglob("*")):
                    archive.write(file, file.relative_to(folder))

        write_atomic(checkpoint / f"epoch-{epoch:06d}.zip", pack)


class Checkpoint(NamedTuple):
    """A complete checkpoint: its epoch and its file."""

    epoch: int
    file: Location

    def json(self, name: str) -> Any:
        """The content of a JSON file in it."""
        with zipfile.ZipFile(io.BytesIO(self.file.read())) as archive:
            return json.loads(archive.read(name))

    def curve(self) -> list[dict[str, Any]]:
        """The training curve so far."""
        return list(self.json("curve.json"))


@contextmanager
def reading(checkpoint: Checkpoint) -> Iterator[Path]:
    """A local folder with the content of a checkpoint, for the duration of a block."""
    with tempfile.TemporaryDirectory(prefix="rllib-scale-") as folder:
        with zipfile.ZipFile(io.BytesIO(checkpoint.file.read())) as archive:
            archive.extractall(folder)
        yield Path(folder)


def newest_in(folder: Location | Path) -> Checkpoint | None:
    """The complete checkpoint with the highest epoch below a folder, from one listing."""
    folder = Location(str(folder))
    return _newest(folder, folder.files())


def newest_checkpoints(trials: Location | Path) -> dict[str, Checkpoint]:
    """The complete checkpoint of each training with the highest epoch over all runs, by name, from one listing."""
    trials = Location(str(trials))
    files: dict[str, list[str]] = {}
    for name in trials.files():
        _, _, rest = name.partition("/")  # run-NNN/TRAINING/checkpoint_NNNNNN/epoch-NNNNNN.zip
        files.setdefault(rest.partition("/")[0], []).append(name)
    found = {training: _newest(trials, names) for training, names in files.items()}
    return {training: checkpoint for training, checkpoint in found.items() if checkpoint is not None}


def _newest(folder: Location, names: Iterable[str]) -> Checkpoint | None:
    numbered = ((_FILE.fullmatch(PurePosixPath(name).name), name) for name in names)
    for epoch, name in sorted(((int(match[1]), name) for match, name in numbered if match), reverse=True):
        if folder.local is None or zipfile.is_zipfile(folder.local / name):  # a store shows complete files only
            return Checkpoint(epoch, folder / name)
    return None


def check_formats(checkpoints: Iterable[Checkpoint]) -> None:
    """Refuse to resume from checkpoints of another version, whose pickles may name classes that have moved.

    Of each run, which had one version, one checkpoint is read.

    Raises:
        UserError: naming both versions.
    """
    of_run = {_RUN.findall(str(checkpoint.file))[-1]: checkpoint for checkpoint in checkpoints}
    for checkpoint in of_run.values():
        contents = checkpoint.json(CONTENTS)
        if contents["format"] != FORMAT:
            raise UserError(
                f"{checkpoint.file}: version {contents['version']} of rllib-scale wrote this checkpoint, and version "
                f"{__version__} cannot resume from it; finish the training with that version, or give another "
                "--results and --reuse this folder"
            )
