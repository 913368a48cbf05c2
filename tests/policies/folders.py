"""Folders of policies that are changed by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from rllib_scale.policies.policy import DESCRIPTION, TENSORS


def edit(folder: Path, **changes: object) -> None:
    """Change the description of a policy."""
    description = json.loads((folder / DESCRIPTION).read_text())
    (folder / DESCRIPTION).write_text(json.dumps(description | changes))


def put_tensors(folder: Path, content: bytes) -> None:
    """Replace the tensors of a policy, and their hash in its description."""
    (folder / TENSORS).write_bytes(content)
    edit(folder, sha256=hashlib.sha256(content).hexdigest())
