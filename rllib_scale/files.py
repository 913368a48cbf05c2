"""Writing files so that nobody ever reads half of one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rllib_scale.errors import UserError


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write(temporary path)`, then rename it to `path`: readers see the old file or the new one, never a part.

    Raises:
        UserError: it cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically."""
    write_atomic(path, lambda p: p.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8"))
