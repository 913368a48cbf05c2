"""Checkpoints in Tune's folder, and published policies. Imports no ray.

A checkpoint folder holds

    algorithm/      the learner's state, with pickles that name classes of this program and of libraries
    policy/         the policy so far, as it is published
    curve.json      a row for each epoch, published beside the policy
    contents.json   {"format", "version": of the program, "epoch", "sizes": of every other file}; written last, so it
                    proves that the folder is complete
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rllib_scale import __version__
from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import Trial
from rllib_scale.errors import UserError
from rllib_scale.files import write_json
from rllib_scale.results.storage import Location

CONTENTS = "contents.json"
FORMAT = 3
"""Changes when something that a checkpoint's pickles name moves or changes its meaning."""


def seal(checkpoint: Path, epoch: int) -> None:
    """Write the contents list of a complete checkpoint folder."""
    sizes = {str(p.relative_to(checkpoint)): p.stat().st_size for p in sorted(checkpoint.rglob("*")) if p.is_file()}
    write_json(checkpoint / CONTENTS, {"format": FORMAT, "version": __version__, "epoch": epoch, "sizes": sizes})


def epoch_of(checkpoint: Location | Path) -> int:
    """The epoch of a checkpoint folder; -1 if it is not complete."""
    checkpoint = Location(str(checkpoint))
    try:
        contents = json.loads((checkpoint / CONTENTS).read_text())
        sizes = {name: info.size for name, info in checkpoint.files().items()}
        whole = all(sizes.get(name) == size for name, size in contents["sizes"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return -1
    return int(contents["epoch"]) if whole else -1


def check_format(checkpoint: Location) -> None:
    """Refuse to resume from a checkpoint of another version, whose pickles may name classes that have moved.

    Raises:
        UserError: naming both versions.
    """
    contents = json.loads((checkpoint / CONTENTS).read_text())
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
        trial = trials / run / name
        for checkpoint in (trial / folder for folder in trial.folders() if folder.startswith("checkpoint_")):
            epoch = epoch_of(checkpoint)
            if epoch > highest:
                latest, highest = checkpoint, epoch
    return latest


def curve_at(checkpoint: Location) -> list[dict[str, Any]]:
    """The training curve in a checkpoint."""
    return list(json.loads((checkpoint / "curve.json").read_text()))


def settings_at(checkpoint: Location | None, trial: Trial) -> dict[str, Any]:
    """Values of the settings that a search varies, by config path; PBT may have changed those in a checkpoint."""
    if checkpoint is None:
        return dict(trial.overrides)
    described = json.loads((checkpoint / "policy" / "policy.json").read_text())["trial"]
    sections = TrialConfig.model_validate(described).sections()
    return {path: _at(sections, path) for path, _ in trial.overrides}


def _at(content: Any, path: str) -> Any:
    for key in path.split("."):
        content = content[key]
    return content


def publish(checkpoint: Location, target: Path) -> None:
    """Copy policy and curve of a finished training to the results, completely or not at all."""
    with checkpoint.reading() as folder:
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
