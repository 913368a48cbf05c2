"""Files that a config names, pinned to their content.

A pinned path is absolute and ends in `#sha256=` and the digest of the file (`rllib_scale.loading`). Hashes of configs
include the digest and not the path. Opening a file that has changed is an error. A path without a digest is unchecked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from rllib_scale import zoo
from rllib_scale.errors import UserError

DIGEST_SEPARATOR = "#sha256="
DIGITS = 16


def split(pinned: str) -> tuple[str, str]:
    """Path and digest of a file; the digest is empty if the file is not pinned."""
    place, _, content = pinned.partition(DIGEST_SEPARATOR)
    return place, content


def check_unchanged(path: Path, content: str, key: str) -> Path:
    """The path of a file that exists and has the digest, if one is given; `key` is its key in the config.

    Raises:
        UserError: the file is missing or has changed since the config was read.
    """
    try:
        found = digest_of(path)
    except ValueError as error:
        raise UserError(f"{key}: {error}; it must be at this path on every node") from None
    if content and found != content:
        raise UserError(
            f"{key}: {path} has changed since the config was read (sha256 {found}..., not {content}...); name it again "
            "for new results, or bring the old file back"
        )
    return path


def content_of(pinned: str) -> str:
    """The digest of a file; where it is not pinned that of its content now, or its path if it cannot be read."""
    place, content = split(pinned)
    try:
        return content or digest_of(Path(place))
    except ValueError:
        return place


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
    """The digest, computed again when the time of the file changes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]


def without_places(content: Any) -> Any:
    """JSON content with the digests of pinned files in place of their paths."""
    return _replaced(content, lambda pinned: split(pinned)[1])


def by_name(content: Any) -> Any:
    """JSON content with `name#sha256=digest` for pinned files, without their folders."""
    return _replaced(content, _named)


def shown(value: Any) -> str:
    """A value in a label: text as it is, anything else as JSON, with `name#sha256=digest` for a pinned file.

    Text that could be another value is in quotes.

    >>> shown({"file": "/data/calls.json#sha256=0123456789abcdef"})
    '{"file": "calls.json#sha256=0123456789abcdef"}'
    """
    named = by_name(value)
    return named if isinstance(named, str) and not _is_json(named) else json.dumps(named, sort_keys=True)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _named(pinned: str) -> str:
    """A pinned file without its folder; a policy of the zoo has a name without a digest."""
    place, content = split(pinned)
    return place if zoo.is_named(place) else f"{Path(place).name}{DIGEST_SEPARATOR}{content}"


def _replaced(content: Any, replace: Callable[[str], str]) -> Any:
    if isinstance(content, dict):
        return {key: _replaced(value, replace) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_replaced(value, replace) for value in content]
    return replace(content) if isinstance(content, str) and DIGEST_SEPARATOR in content else content
