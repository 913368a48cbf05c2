"""Sweeps and workloads that come with the package, by name: `table4` is tune_configs/table4.yaml."""

from __future__ import annotations

from os.path import exists, isfile  # False for a name that is too long for a file
from pathlib import Path

from rllib_scale.errors import UserError, choice_error

SAMPLE = "sample:"
_HERE = Path(__file__).parent
FOLDER = next((path for path in (_HERE / "tune_configs", _HERE.parent / "tune_configs") if path.is_dir()), _HERE)
"""In an installation it is part of the package, in a clone it is at the top."""


def names() -> list[str]:
    """Names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def summary(name: str) -> str:
    """The first line of a preset, a comment that says what it is for."""
    with (FOLDER / f"{name}.yaml").open(encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()


def sweep_file(text: str) -> Path:
    """The file of a sweep: a preset by its name, or the path of a YAML file.

    Raises:
        UserError: it is the name of a preset and of a file, or of neither.
    """
    if isfile(text):
        if text in names():
            raise UserError(f"{text!r} is a preset and a file here; write ./{text} for the file, or rename it")
        return Path(text)
    if text in names():
        return FOLDER / f"{text}.yaml"
    path = Path(text)
    if path.suffix in (".yaml", ".yml") and path.stem in names():
        raise UserError(f"{text}: no such file; the preset of that name is {path.stem!r}, without folder and ending")
    if path.suffix or len(path.parts) > 1 or exists(path):
        return path  # the reader reports what is wrong
    raise choice_error("preset", text, names())


def workload_file(text: str) -> Path:
    """The file of a workload: a sample by its name, `sample:agents`, or a path as it is given.

    Raises:
        UserError: there is no sample of that name.
    """
    if not text.startswith(SAMPLE):
        return Path(text)
    files = {SAMPLE + path.stem: path for path in (_HERE / "workloads" / "samples").glob("*.json")}
    if text not in files:
        raise choice_error("workload", text, files)
    return files[text]
