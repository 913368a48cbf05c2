"""The reader that all formats share: JSON, JSON lines and CSV, gzipped or not, one record at a time.

A format is a pydantic model of its record and a function that adds a record to an `Accumulator`. Every mistake is a
`UserError` of one line that names the file, the line, the key, the value and what is valid. Only a .json file, which is
one record, is held as a whole.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from rllib_scale.config.base import MAX_NUMBER
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.files import check_regular
from rllib_scale.workloads.formats.base import Progress

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
MAX_RECORD_BYTES = 64 * 2**20
"""Longest JSON record that is parsed; the parsed one takes several times as much memory."""
MAX_ROW_BYTES = 2**20
"""Longest line of a CSV file."""


MAX_UNREAD = 200
"""Names of keys that are not read and counted one by one; a damaged file may have any number."""


class Record(BaseModel):
    """A JSON object of a source; keys that the model does not have are counted, see `Progress.unread`."""

    model_config = ConfigDict(strict=True, extra="allow")


def either(*names: str, **more: Any) -> Any:
    """A field that a source has under one of these names."""
    return Field(validation_alias=AliasChoices(*names), **more)


R = TypeVar("R", bound=BaseModel)
Amount = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
"""A time in any unit, or bytes."""
Whole = Annotated[int, Field(ge=0, le=int(MAX_NUMBER))]
"""Tokens, bytes."""
BlockSize = Annotated[int, Field(ge=1, le=int(MAX_NUMBER))]
"""Tokens that a hash stands for."""


def _since_1970(value: Any) -> float:
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"must be a time such as 2026-06-01T05:40:20Z (got {value!r:.60})") from None


def _digits(value: Any) -> Any:
    """An integer that JSON has as a text, as protocol buffers write 64 bits."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value


def _clock_s(value: Any) -> float:
    value = _digits(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value / 1e9
    return _since_1970(value)


Timestamp = Annotated[float, BeforeValidator(_since_1970)]
"""Seconds since 1970 of an ISO 8601 time, UTC by default."""
Clock = Annotated[float, BeforeValidator(_clock_s)]
"""The same, or of nanoseconds since 1970."""
Digits = Annotated[Whole, BeforeValidator(_digits)]
"""`Whole`, or its digits as a text."""


def read_json(sources: Sequence[Path], model: type[R], add: Callable[[R, str], None], progress: Progress) -> None:
    """Call `add(record, where)` for every JSON record: a .json file is one, any other file has one per line.

    Raises:
        UserError: a source cannot be read; or a record is bad, by its model or by `add`, and `progress` skips none.
    """
    for path in _find_files(sources):
        whole = path.name.endswith((".json", ".json.gz"))
        for where, text in _pieces(path, whole, MAX_RECORD_BYTES):
            progress.advance(where)
            if text.isspace() and not whole:
                continue
            try:
                record = build_model(model, _parse(text, where), where)
                add(record, where)
            except UserError as error:
                progress.bad(error)
            else:
                _count_unread(record, "", progress.unread)


def _count_unread(value: Any, path: str, unread: Counter[str]) -> None:
    """Count the keys of a record, at any depth, that its model does not have."""
    if isinstance(value, list):
        for entry in value:
            if not isinstance(entry, BaseModel):
                return
            _count_unread(entry, path, unread)
    elif isinstance(value, BaseModel):
        for key in value.model_extra or ():
            name = f"{path}{key:.60}"
            unread[name if name in unread or len(unread) < MAX_UNREAD else "other keys"] += 1
        for key, field in type(value).model_fields.items():
            _count_unread(getattr(value, key), f"{path}{field.alias or key}.", unread)


def read_csv(path: Path, model: type[BaseModel], progress: Progress) -> Iterator[tuple[str, dict[str, str]]]:
    """Place and values of each row of a CSV file; its header has fields of the model, all required ones among them.

    Raises:
        UserError: the file cannot be read, or the header or a row does not match.
    """
    reader = csv.reader((_decode(text, where) for where, text in _pieces(path, False, MAX_ROW_BYTES)), strict=True)
    header: list[str] = []
    try:
        for values in reader:
            where = f"{path} line {reader.line_num}"
            progress.advance(where)
            if not header:
                header = [value.strip() for value in values]
                _check_header(header, model, where)
            elif values:
                if len(values) != len(header):
                    raise UserError(f"{where}: {len(values)} values; the header names {len(header)} columns")
                yield where, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num}: not valid CSV: {error}") from None
    if not header:
        raise UserError(f"{path}: empty; needed: a header with {', '.join(model.model_fields)}")


def _check_header(header: list[str], model: type[BaseModel], where: str) -> None:
    fields = model.model_fields
    wrong = {name: "is unknown" for name in header if name not in fields}
    wrong |= {name: "appears twice" for name in header if header.count(name) > 1}
    wrong |= {name: "is missing" for name in fields if fields[name].is_required() and name not in header}
    if wrong:
        name, what = next(iter(wrong.items()))
        raise UserError(f"{where}: column {name!r:.60} {what}; valid: {', '.join(fields)}")


def _find_files(sources: Sequence[Path]) -> list[Path]:
    """The sources that are files, and the JSON files in those that are folders, at any depth and sorted."""
    files: list[Path] = []
    for source in sources:
        found = [source]
        if source.is_dir():
            found = sorted(path for path in source.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())
        if not found:
            raise UserError(f"{source}: the folder has no file that ends in {', '.join(SUFFIXES)}")
        if not source.exists():
            raise UserError(f"{source}: cannot be read (no such file or folder)")
        files += found
    return files


def _pieces(path: Path, whole: bool, limit: int) -> Iterator[tuple[str, bytes]]:
    """Place and content of a file as a whole or of each line, unzipped if its name ends in .gz; up to `limit` bytes."""
    where = str(path)
    try:
        check_regular(path)
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            for number in itertools.count(1):
                where = str(path) if whole else f"{path} line {number}"
                text = file.read(limit + 1) if whole else file.readline(limit + 1)
                if len(text) > limit:
                    advice = ": use JSON lines (.jsonl)" if whole else ""
                    raise UserError(f"{where}: longer than {limit // 2**20} MiB{advice}")
                if not text and not (whole and number == 1):
                    return
                yield where, text.removeprefix(codecs.BOM_UTF8) if number == 1 else text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{where}: not a whole gzip file ({error})") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


def _decode(text: bytes, where: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8 text") from None


def _parse(text: bytes, where: str) -> Any:
    try:
        return json.loads(_decode(text, where))
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON: {str(error).partition(';')[0]}") from None
