"""Checkpoints in Tune's folder, and published policies. Imports no ray.

A checkpoint is one file in a folder that Tune names, epoch-NNNNNN.zip: a store takes a request or more for each file.
Its table of contents stands at its end, so it is complete if that can be read. It holds

    algorithm/      the learner's state, with pickles that name classes of this program and of libraries
    policy/         the policy so far, as it is published
    curve.json      a row for each epoch, published beside the policy
    contents.json   {"format", "version": of the program}
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from rllib_scale import __version__
from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import Trial
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic, write_json
from rllib_scale.results.storage import Location

CONTENTS = "contents.json"
FORMAT = 4
"""Changes when something that a checkpoint's pickles name moves or changes its meaning."""


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


@contextmanager
def reading(checkpoint: Location | Path) -> Iterator[Path]:
    """A local folder with the content of a complete checkpoint, for the duration of a block."""
    with tempfile.TemporaryDirectory(prefix="rllib-scale-") as folder:
        with zipfile.ZipFile(io.BytesIO(_file_of(checkpoint).read())) as archive:
            archive.extractall(folder)
        yield Path(folder)


def _json_at(checkpoint: Location, name: str) -> Any:
    """The content of a JSON file in a checkpoint."""
    with zipfile.ZipFile(io.BytesIO(_file_of(checkpoint).read())) as archive:
        return json.loads(archive.read(name))


def _file_of(checkpoint: Location | Path) -> Location:
    return Location(str(checkpoint)) / _newest(checkpoint)[1]


def _newest(folder: Location | Path) -> tuple[int, str]:
    """Epoch and relative name of the newest complete checkpoint file below a folder; (-1, "") without one.

    A checkpoint of a format before 4, a folder with a contents list, counts with epoch 0; `check_format` refuses it.
    """
    folder = Location(str(folder))
    found = [(-1, "")]
    for name in folder.files():
        path = PurePosixPath(name)
        if path.name == CONTENTS:
            found.append((0, name))
        match = re.fullmatch(r"epoch-(\d{6,})\.zip", path.name)
        # A store shows complete files only.
        if match and (folder.local is None or zipfile.is_zipfile(folder.local / name)):
            found.append((int(match[1]), name))
    return max(found)


def epoch_of(checkpoint: Location | Path) -> int:
    """The epoch of a checkpoint folder; -1 if it is not complete."""
    return _newest(checkpoint)[0]


def check_format(checkpoint: Location) -> None:
    """Refuse to resume from a checkpoint of another version, whose pickles may name classes that have moved.

    Raises:
        UserError: naming both versions.
    """
    if epoch_of(checkpoint) > 0:
        contents = _json_at(checkpoint, CONTENTS)
    else:
        contents = json.loads((checkpoint / CONTENTS).read())
    if contents.get("format") != FORMAT:
        raise UserError(
            f"{checkpoint}: version {contents['version']} of rllib-scale wrote this checkpoint, and version "
            f"{__version__} cannot resume from it; finish the training with that version, or give another --results "
            "and --reuse this folder"
        )


def latest_checkpoint(trials: Location | Path, name: str) -> Location | None:
    """The complete checkpoint of a trial with the highest epoch, over all runs of the sweep."""
    latest, highest = None, -1
    trials = Location(str(trials))
    for run in trials.folders():
        epoch, file = _newest(trials / run / name)
        if epoch > highest:
            latest, highest = trials / run / name / PurePosixPath(file).parent.name, epoch
    return latest


def curve_at(checkpoint: Location) -> list[dict[str, Any]]:
    """The training curve in a checkpoint."""
    return list(_json_at(checkpoint, "curve.json"))


def settings_at(checkpoint: Location | None, trial: Trial) -> dict[str, Any]:
    """Values of the settings that a search varies, by config path; PBT may have changed those in a checkpoint."""
    if checkpoint is None:
        return dict(trial.overrides)
    described = _json_at(checkpoint, "policy/policy.json")["trial"]
    config = TrialConfig.model_validate(described)
    return {path: config.setting(path) for path, _ in trial.overrides}


def publish(checkpoint: Location, target: Path) -> None:
    """Copy policy and curve of a finished training to the results, completely or not at all."""
    with reading(checkpoint) as folder:
        copy_policy(folder / "policy", target, folder / "curve.json")


def copy_policy(source: Path, target: Path, *more: Path) -> None:
    """Copy a policy folder, and more files into it, completely or not at all.

    Raises:
        UserError: the target cannot be written.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        shutil.copytree(source, temporary)
        for path in more:
            shutil.copy(path, temporary)
        shutil.rmtree(target, ignore_errors=True)  # a policy of fewer epochs
        temporary.rename(target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(f"{target}: cannot be written ({error.strerror})") from None
