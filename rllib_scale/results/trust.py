"""Which results folders this account made itself.

Checkpoints are pickles: loading one runs the code in it. A sweep that goes on in a folder of its own loads its own
checkpoints; in any other folder it stops and asks for `--trust`. Policies and tables hold no pickle and need no trust.
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
    """Note that this account made the results folder at `location`; `created` is the date in its manifest."""
    record = _record()
    # Where the home cannot be written, the price is having to say --trust later.
    with contextlib.suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps([location, created]) + "\n")


def is_own(location: str, created: str) -> bool:
    """Whether this account made the folder at `location`, and nobody replaced it since."""
    try:
        return json.dumps([location, created]) in _record().read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
