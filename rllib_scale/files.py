"""Atomic files."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rllib_scale.errors import UserError


def check_regular(path: Path) -> None:
    """Refuse devices, pipes and sockets, which may have no end.

    Raises:
        UserError: the path is one of these.
        OSError: it does not exist or may not be read.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{path}: is a device, a pipe or a socket; valid: a file")


def check_working_folder() -> None:
    """Refuse to work in a folder that was deleted.

    Raises:
        UserError: it was.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UserError("the working folder is gone; change to another folder") from None


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write(temporary path)`, then rename the file to `path`: readers see the old file or the new one, whole.

    Its content is on the disk before its name, and its name before this returns: a power cut leaves no empty file.

    Raises:
        UserError: the file cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        temporary.touch(exist_ok=False)  # `tempfile` would deny other accounts what the umask permits
        write(temporary)
        _flush(temporary)
        os.replace(temporary, path)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            _flush(path.parent)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_writable(outputs: Mapping[str, Path | None]) -> None:
    """Check before the work that its outputs can be written. `outputs`: option -> path.

    Raises:
        UserError: a path cannot be written, is a folder, or is named twice.
    """
    seen: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        place = Path(os.path.abspath(path))
        if place in seen:
            raise UserError(f"{option} {path}: {seen[place]} names the same file; give another")
        seen[place] = option
        folder = next(parent for parent in place.parents if os.path.lexists(parent))
        if place.is_dir() or (place.exists() and not place.is_file()):
            raise UserError(f"{option} {path}: cannot be written (it is no file)")
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(f"{option} {path}: cannot be written ({folder} is no folder that can be)")


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically."""
    write_atomic(path, lambda p: p.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8"))
