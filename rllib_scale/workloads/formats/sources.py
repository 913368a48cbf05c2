"""Reading what others have recorded: files and folders, gzip or not, JSON record by record.

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
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rllib_scale.config.yaml_files import explain
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


# ---------------------------------------------------------------------- what is read of a record


class Record(BaseModel):
    """A JSON object, as far as it is read: other keys are left alone."""

    model_config = ConfigDict(strict=True)


R = TypeVar("R", bound=BaseModel)
Seconds = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
"""In whatever unit of time."""
Whole = Annotated[int, Field(ge=0, le=int(MAX_NUMBER))]
"""Tokens, bytes."""


def _since_1970(value: Any) -> float:
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"must be a time such as 2026-06-01T05:40:20Z (got {value!r:.60})") from None


Timestamp = Annotated[float, BeforeValidator(_since_1970)]
"""Seconds since 1970 of an ISO 8601 time; UTC where it does not say."""


def checked(model: type[R], record: Any, where: str) -> R:
    """A record as a model.

    Raises:
        UserError: it is none, or was not JSON: the error that `records` gave in its place.
    """
    if isinstance(record, UserError):
        raise record
    try:
        return model.model_validate(record)
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error, model)}") from None
