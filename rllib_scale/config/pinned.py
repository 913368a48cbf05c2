"""Files that a config names, held to the content that they had when it was read.

In YAML a path stands, relative to the folder of that YAML file or to the working directory. Once validated it is
absolute and ends in `#sha256=` and the digest of the content: configs travel and are kept in that form, hashes of
configs hold the digest alone, and whoever opens the file is told where it is no longer the same. A config that was
pinned is read without its files.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo

from rllib_scale import plugins
from rllib_scale.errors import UserError

MARK = "#sha256="
DIGITS = 16


def folders_of(info: ValidationInfo) -> list[Path]:
    """Where relative paths begin: the folder of the YAML file, the working directory."""
    folder = (info.context or {}).get("folder")
    return [*([Path(folder)] if folder else []), Path()]


def pin(value: str, folders: list[Path]) -> str:
    """A path with the digest of the file that is there, looked for in each of the folders; a pinned one as it is.

    Raises:
        ValueError: there is none, or it cannot be read.
    """
    if MARK in value:
        return value
    paths = list(dict.fromkeys((folder / value).absolute() for folder in folders))
    for path in paths:
        if path.is_file():
            return f"{path}{MARK}{digest_of(path)}"
    raise ValueError(f"no file {' or '.join(map(str, paths))}")


def pin_code(kind: plugins.Kind, name: str, info: ValidationInfo) -> str:
    """An import path or an entry point with the digest of its source: `rllib_scale.plugins.pinned`.

    Raises:
        ValueError: see there.
    """
    try:
        return plugins.pinned(kind, name, bool(info.context and info.context.get("foreign")))
    except UserError as error:
        raise ValueError(str(error)) from None


def split(pinned: str) -> tuple[str, str]:
    """Place and digest of a pinned file."""
    place, _, content = pinned.rpartition(MARK)
    return place, content


def check_unchanged(path: Path, content: str, key: str) -> Path:
    """The path again, of a file that is there and has that digest; `key` is where the config names it.

    Raises:
        UserError: it is missing, or its content is another than when the config was read.
    """
    try:
        found = digest_of(path)
    except ValueError as error:
        raise UserError(f"{key}: {error}; it must be at this path on every node") from None
    if found != content:
        raise UserError(
            f"{key}: {path} has changed since the config was read (sha256 {found}..., not {content}...); name it anew "
            "for new results, or bring the old file back"
        )
    return path


def digest_of(path: Path) -> str:
    """First digits of the SHA-256 of a file.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        return _digest(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None


@lru_cache
def _digest(path: Path, mtime_ns: int) -> str:
    """Read again when its time has changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]


def without_places(content: Any) -> Any:
    """JSON content in which pinned files are their digests alone."""
    if isinstance(content, dict):
        return {key: without_places(value) for key, value in content.items()}
    if isinstance(content, list):
        return [without_places(value) for value in content]
    return split(content)[1] if isinstance(content, str) and MARK in content else content
