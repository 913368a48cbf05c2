"""The reader that all formats share: JSON, JSON lines and CSV, gzipped or not, one record at a time.

A format is a pydantic model of its record and a function that adds a record to an `Accumulator`. Every mistake is a
`UserError` of one line that names the file, the line, the key, the value and what is valid. Only a .json file, which is
one record, is held as a whole.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.files import check_regular
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.fields import R

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
MAX_RECORD_BYTES = 64 * 2**20
"""Longest JSON record that is parsed; the parsed one takes several times as much memory."""
MAX_ROW_BYTES = 2**20
"""Longest line of a CSV file."""
PEEKED_BYTES = 2**16
"""Bytes read from the start of a file to distinguish files."""
DAMAGED = (OSError, EOFError, zlib.error)
"""Errors of opening and reading a damaged file; `gzip.BadGzipFile` is an OSError."""
_SPACE = re.compile(r"\s*")


def read_json(sources: Sequence[Path], model: type[R], add: Callable[[R, str], None], progress: Progress) -> None:
    """Call `add(record, where)` for every JSON record.

    A .json file, and one whose first line only opens a bracket, is read as a whole: records one after the other, or
    lists of them. Any other file has a record, or a list of them, per line.

    Raises:
        UserError: a source cannot be read; or a record is bad, by its model or by `add`, and `progress` skips none.
    """
    for path in distinct_files(_find_files(sources), progress):
        whole, found = _is_whole(path), False
        for where, text in _pieces(path, whole, MAX_RECORD_BYTES):
            progress.advance(where)
            for at, value in _values(text, where):
                found = True
                try:
                    if isinstance(value, UserError):
                        raise value
                    record = build_model(model, value, at)
                    add(record, at)
                except UserError as error:
                    progress.bad(error, _parts(value))
                else:
                    _count_unread(record, "", progress)
        if not found:
            progress.bad(UserError(f"{path}: is empty; needed: JSON records"))


def read_part(model: type[R], value: Any, where: str, progress: Progress) -> R | None:
    """A part of a record that is bad or good by itself; None if it is skipped.

    Raises:
        UserError: it is bad, and `progress` skips none.
    """
    try:
        part = build_model(model, value, where)
    except UserError as error:
        progress.bad(error)
        return None
    _count_unread(part, "", progress)
    return part


def distinct_files(files: Sequence[Path], progress: Progress) -> list[Path]:
    """The files without those whose content, gzip or not, another one has; these are counted."""
    beginnings = [hash(_content(path, PEEKED_BYTES)) for path in files]
    several, distinct = Counter(beginnings), []
    for path, beginning in zip(files, beginnings, strict=True):
        if several[beginning] == 1 or not _is_repeated(path, progress):
            distinct.append(path)
    return distinct


def _is_repeated(path: Path, progress: Progress) -> bool:
    content = hashlib.sha256()
    try:
        with _opened(path) as file:
            while block := file.read(2**20):
                content.update(block)
    except DAMAGED:
        return False
    return progress.seen.is_equal("files with the content of another one, left out", content.digest())


def _count_unread(value: Any, path: str, progress: Progress) -> None:
    """Count the keys of a record, at any depth, that its model does not have."""
    if isinstance(value, list):
        for entry in value:
            if not isinstance(entry, BaseModel):
                return
            _count_unread(entry, path, progress)
    elif isinstance(value, BaseModel):
        progress.count_unread(f"{path}{key:.60}" for key in value.model_extra or ())
        for key, field in type(value).model_fields.items():
            _count_unread(getattr(value, key), f"{path}{field.alias or key}.", progress)


def read_csv(path: Path, model: type[BaseModel], progress: Progress) -> Iterator[tuple[str, dict[str, str]]]:
    """Place and values of each row of a CSV file; its header has fields of the model, all required ones among them.

    An empty cell is a missing value.

    Raises:
        UserError: the file cannot be read, or the header or a row does not match.
    """
    reader = csv.reader((_decode(text, where) for where, text in _pieces(path, False, MAX_ROW_BYTES)), strict=True)
    header: list[str] = []
    required = {name for name, field in model.model_fields.items() if field.is_required()}
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
                row = dict(zip(header, values, strict=True))
                yield where, {name: value for name, value in row.items() if value.strip() or name in required}
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num}: not valid CSV: {error}") from None
    if not header:
        raise UserError(f"{path}: is empty; needed: a header with {', '.join(model.model_fields)}")


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


def _opened(path: Path) -> IO[bytes]:
    """A file, unzipped if its name ends in .gz."""
    check_regular(path)
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def _content(path: Path, size: int) -> bytes:
    """The beginning of a file; of one that cannot be read, which is said where it is read, nothing."""
    try:
        with _opened(path) as file:
            return file.read(size)
    except DAMAGED:
        return b""


def _is_whole(path: Path) -> bool:
    """Whether lines of a file are no records of their own."""
    first, newline, _ = _content(path, PEEKED_BYTES).partition(b"\n")
    return path.name.endswith((".json", ".json.gz")) or (bool(newline) and first.strip() in (b"{", b"["))


def _values(text: bytes, where: str) -> Iterator[tuple[str, Any]]:
    """Place and value of each JSON value of a text, and of each entry of a list; at its end what is no JSON."""
    try:
        decoded, at = _decode(text, where), 0
        for number in itertools.count(1):
            space = _SPACE.match(decoded, at)
            if space is None or space.end() == len(decoded):
                return
            value, at = _parse(decoded, space.end(), where)
            of = where if number == 1 else f"{where} value {number}"
            if isinstance(value, list):
                yield from ((f"{of} entry {entry}", each) for entry, each in enumerate(value, 1))
            else:
                yield of, value
    except UserError as error:
        yield where, error


def _parts(value: Any) -> str:
    """Number of entries of each list of a record."""
    lists = {key: each for key, each in value.items() if isinstance(each, list)} if isinstance(value, dict) else {}
    return ", ".join(f"{key:.40}: {len(each)}" for key, each in lists.items())


def _pieces(path: Path, whole: bool, limit: int) -> Iterator[tuple[str, bytes]]:
    """Place and content of a file as a whole or of each line, unzipped if its name ends in .gz; up to `limit` bytes."""
    where = str(path)
    try:
        check_regular(path)
        with _opened(path) as file:
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


def _parse(text: str, begin: int, where: str) -> tuple[Any, int]:
    """The JSON value that begins at a character, and where it ends."""
    try:
        return json.JSONDecoder().raw_decode(text, begin)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON: {str(error).partition(';')[0]}") from None
