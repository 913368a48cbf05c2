"""The results folders that this account made.

Checkpoints are pickles: loading one runs the code in it. A sweep loads checkpoints of a folder that this account made;
for any other folder it asks for `--trust`. Policies and tables hold no pickle and need no trust.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path


def _record() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "rllib-scale" / "folders"


def remember(location: str, created: str) -> None:
    """Record that this account made the results folder at `location`; `created` is the date in its manifest."""
    record = _record()
    # If the home cannot be written, a later command needs --trust.
    with contextlib.suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps([location, created]) + "\n")


def is_own(location: str, created: str) -> bool:
    """Whether this account made the folder at `location` and nobody has replaced it."""
    try:
        return json.dumps([location, created]) in _record().read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
