"""Reading what others have recorded: files and folders, gzip or not, JSON record by record, and checks of its fields.

Whatever is wrong is a `UserError` of one line that names the file, the line, the key and the value. A file is never
held as a whole, unless it is one record.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from rllib_scale.errors import UserError
from rllib_scale.files import check_regular

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
MAX_RECORD_BYTES = 64 * 2**20
"""The longest JSON record that is parsed; parsed, it takes several times that in memory."""
MAX_NUMBER = 1e15
"""Larger values are no seconds, milliseconds or tokens of anything."""


def find_files(sources: Sequence[Path], suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """The files that sources mean: files as given, folders as their files of these suffixes at any depth, sorted.

    Raises:
        UserError: a source is missing, or a folder holds no such file.
    """
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            found = sorted(path for path in source.rglob("*") if path.name.endswith(suffixes) and path.is_file())
            if not found:
                raise UserError(f"{source}: the folder holds no file that ends in {', '.join(suffixes)}")
            files += found
        elif source.exists():
            files.append(source)
        else:
            raise UserError(f"{source}: cannot be read (no such file or folder)")
    return files


def lines(path: Path, limit: int = MAX_RECORD_BYTES) -> Iterator[tuple[int, bytes]]:
    """Lines of a file, gunzipped where its name ends in .gz, numbered from 1.

    Raises:
        UserError: the file cannot be read, is no gzip file or a torn one, or a line is longer than `limit` bytes.
    """
    number = 0
    try:
        with _open(path) as file:
            while line := file.readline(limit + 1):
                number += 1
                if len(line) > limit:
                    raise UserError(f"{path} line {number}: longer than {limit // 2**20} MiB, which is no one record")
                yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} after line {number}: not a whole gzip file ({error})") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


def records(path: Path) -> Iterator[tuple[str, Any]]:
    """JSON records of a file and where each stands: the one of a .json file, or one a line of any other.

    A record that is not JSON comes as a `UserError` in its place, for the reader to raise or to go on from.

    Raises:
        UserError: the file as a whole cannot be read.
    """
    if path.name.endswith((".json", ".json.gz")):
        try:
            with _open(path) as file:
                content = file.read(MAX_RECORD_BYTES + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(f"{path}: not a whole gzip file ({error})") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
        if len(content) > MAX_RECORD_BYTES:
            raise UserError(f"{path}: longer than {MAX_RECORD_BYTES // 2**20} MiB: use JSON lines (.jsonl)")
        yield str(path), _parse(content, str(path))
        return
    for number, line in lines(path):
        if not line.isspace():
            where = f"{path} line {number}"
            yield where, _parse(line, where)


def _open(path: Path) -> BufferedIOBase:
    check_regular(path)
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")


def _parse(text: bytes, where: str) -> Any:
    try:
        return json.loads(text.decode("utf-8"))
    except UnicodeDecodeError:
        return UserError(f"{where}: not UTF-8 text")
    except json.JSONDecodeError as error:
        return UserError(f"{where}: not valid JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError) as error:
        return UserError(f"{where}: not valid JSON: {str(error).partition(';')[0]}")


# ---------------------------------------------------------------------- fields of a record


def mapping(value: Any, where: str) -> dict[str, Any]:
    """A JSON object."""
    if isinstance(value, UserError):
        raise value
    if not isinstance(value, dict):
        raise UserError(f"{where}: must be a mapping of keys to values (got {_shown(value)})")
    return value


def field(data: dict[str, Any], key: str, where: str) -> Any:
    """The value of a key that must be there."""
    try:
        return data[key]
    except KeyError:
        raise UserError(f"{where}: key {key!r} is missing") from None


def items(data: dict[str, Any], key: str, where: str) -> list[Any]:
    """A list."""
    value = field(data, key, where)
    if not isinstance(value, list):
        raise UserError(f"{where}: {key} must be a list (got {_shown(value)})")
    return value


def text(data: dict[str, Any], key: str, where: str) -> str:
    """A string."""
    value = field(data, key, where)
    if not isinstance(value, str):
        raise UserError(f"{where}: {key} must be text (got {_shown(value)})")
    return value


def seconds(data: dict[str, Any], key: str, where: str) -> float:
    """A number, at least 0, in whatever unit of time."""
    value = field(data, key, where)
    if type(value) not in (int, float) or not 0 <= value <= MAX_NUMBER:
        raise UserError(f"{where}: {key} must be a number from 0 to {MAX_NUMBER:g} (got {_shown(value)})")
    return float(value)


def seconds_if_any(data: dict[str, Any], key: str, where: str) -> float | None:
    """As `seconds`; None where it is missing, null or 0: a time that nobody took."""
    return None if data.get(key) is None else seconds(data, key, where) or None


def tokens(data: dict[str, Any], key: str, where: str) -> int:
    """A whole number, at least 0."""
    value = field(data, key, where)
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise UserError(f"{where}: {key} must be a whole number from 0 to {MAX_NUMBER:g} (got {_shown(value)})")
    return value


def timestamp(data: dict[str, Any], key: str, where: str) -> float:
    """Seconds since 1970 of an ISO 8601 time; UTC where it does not say."""
    value = text(data, key, where)
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise UserError(f"{where}: {key} must be a time such as 2026-06-01T05:40:20Z (got {_shown(value)})") from None


def _shown(value: Any) -> str:
    """A value in an error: on one line, and not long."""
    return f"{value!r:.60}" if not isinstance(value, int) or abs(value) < 10**20 else "a huge number"
