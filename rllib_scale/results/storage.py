"""Folders on this machine, on a shared disk or in an object store (file://, s3://, gs://). Free of ray.

A location is a path or a URI of pyarrow. Credentials come from the environment, a profile or an instance role. A URI
that holds credentials is refused, because logs and manifests show it.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import urlsplit

from pyarrow import ArrowInvalid, fs

from rllib_scale.errors import UserError
from rllib_scale.files import check_working_folder, write_atomic
from rllib_scale.zoo import DESCRIPTION

LOCAL = fs.LocalFileSystem()
SCHEMES = ("file", "s3", "gs", "gcs")
LAST = (DESCRIPTION, "manifest.json")
"""Copied after the files that they describe."""
AT_ONCE = 16
"""Files copied at a time: a store answers many requests sooner than one after the other."""
PAUSES_S = (0.2, 1.0, 5.0)
"""Before a read that was refused is repeated."""
OF_UNFINISHED = re.compile(r"trials/run-\d+/(?P<training>[^/]+)/(result\.json|error\.txt)")
"""Files that `status` reads of a training whose policy is not published yet."""
T = TypeVar("T")


def is_uri(text: str) -> bool:
    """Whether a location is a URI and not a path.

    >>> is_uri("s3://bucket/results"), is_uri("/shared/results")
    (True, False)
    """
    return "://" in text


@dataclass(frozen=True)
class Location:
    """A folder or file by path or URI.

    Args:
        text: a path, or a URI with one of SCHEMES; options of pyarrow's may follow after `?`.

    Raises:
        UserError: the scheme is unknown, or the URI holds credentials.
    """

    text: str

    def __post_init__(self) -> None:
        if not is_uri(self.text):
            return
        parts = urlsplit(self.text)
        if parts.scheme not in SCHEMES:
            raise UserError(f"{self.text}: unknown scheme {parts.scheme!r}; valid: a path, {', '.join(SCHEMES)}")
        if parts.username not in (None, "anonymous") or parts.password:
            raise UserError(
                f"{parts.scheme}://...@{parts.hostname}{parts.path}: credentials do not belong in a URI, which is "
                "logged; give them by environment, profile or instance role"
            )

    @cached_property
    def _resolved(self) -> tuple[fs.FileSystem, str]:
        if not is_uri(self.text):
            check_working_folder()
            return LOCAL, os.path.abspath(self.text)
        try:
            # Arrow then sends a small file in one request, not in three.
            quick = ("&" if "?" in self.text else "?") + "allow_delayed_open=true"
            filesystem, path = fs.FileSystem.from_uri(self.text + (quick if self.text.startswith("s3:") else ""))
        except (ArrowInvalid, OSError, ValueError) as error:
            raise UserError(f"{self.text}: {first_line(error)}") from None
        return filesystem, path.rstrip("/")

    def __truediv__(self, name: str) -> Location:
        base, mark, options = self.text.partition("?") if is_uri(self.text) else (self.text, "", "")
        below = Location(f"{base.rstrip('/')}/{name}{mark}{options}")
        filesystem, path = self._resolved
        below.__dict__["_resolved"] = filesystem, f"{path}/{name}"  # one client, and so one pool of connections
        return below

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.path).name

    @property
    def filesystem(self) -> fs.FileSystem:
        """Pyarrow's file system."""
        return self._resolved[0]

    @property
    def path(self) -> str:
        """The path in `filesystem`."""
        return self._resolved[1]

    @property
    def local(self) -> Path | None:
        """The path of a location on this machine; None in an object store."""
        filesystem, path = self._resolved
        return Path(path) if isinstance(filesystem, fs.LocalFileSystem) else None

    def folders(self) -> list[str]:
        """Names of the folders in this one; none if it does not exist."""
        return sorted(info.base_name for info in self._list(recursive=False) if info.type == fs.FileType.Directory)

    def files(self) -> dict[str, fs.FileInfo]:
        """Every file below by its relative path; none if the folder does not exist."""
        return {name: info for name, info in self.entries().items() if info.type == fs.FileType.File}

    def entries(self) -> dict[str, fs.FileInfo]:
        """Every file and folder below by its relative path; a store may name no folders."""
        return {info.path[len(self.path) + 1 :]: info for info in self._list(recursive=True)}

    def names(self) -> list[str]:
        """Names of the entries of this folder; none if it does not exist."""
        return [info.base_name for info in self._list(recursive=False)]

    def read(self, last: int | None = None) -> bytes:
        """The content of the file, or at most its last bytes.

        Raises:
            OSError: it is missing or cannot be read.
        """
        filesystem, path = self._resolved

        def content() -> bytes:
            with filesystem.open_input_file(path) as file:
                if last is not None:
                    file.seek(max(0, file.size() - last))
                return bytes(file.read())

        return _persistently(content)

    def download(self, name: str, target: Path) -> None:
        """Copy a file of this folder to a local path, whole or not at all.

        Raises:
            UserError: it cannot be read here or written there.
        """
        filesystem, path = self._resolved

        def copy(temporary: Path) -> None:
            _persistently(lambda: fs.copy_files(f"{path}/{name}", str(temporary), filesystem, LOCAL))

        write_atomic(target, copy)

    def write(self, content: bytes) -> None:
        """Write the file, whole or not at all: by a renamed file on a disk, by one request to a store.

        Raises:
            UserError: it cannot be written.
        """
        if self.local is not None:
            write_atomic(self.local, lambda path: path.write_bytes(content))
            return
        filesystem, path = self._resolved
        try:
            with filesystem.open_output_stream(path) as stream:
                stream.write(content)
        except OSError as error:
            raise UserError(f"{self}: cannot be written ({first_line(error)})") from None

    def remove(self, name: str) -> None:
        """Remove a file of this folder.

        Raises:
            OSError: it is missing or cannot be removed.
        """
        filesystem, path = self._resolved
        filesystem.delete_file(f"{path}/{name}")

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """A local folder whose files are copied here when the block ends without an error."""
        if self.local is not None:
            self.local.mkdir(parents=True, exist_ok=True)
            yield self.local
            return
        with tempfile.TemporaryDirectory(prefix="rllib-scale-") as name:
            folder = Path(name)
            yield folder
            for file in folder.rglob("*"):
                if file.is_file():
                    (self / file.relative_to(folder).as_posix()).write(file.read_bytes())

    def _list(self, recursive: bool) -> list[fs.FileInfo]:
        filesystem, path = self._resolved
        try:
            return list(filesystem.get_file_info(fs.FileSelector(path, recursive=recursive, allow_not_found=True)))
        except FileNotFoundError:  # a folder that was made between two looks of Arrow's
            return []
        except OSError as error:
            raise UserError(f"{self}: cannot be read ({first_line(error)})") from None


def fetch(source: Location, target: Path, say: Callable[[str], None]) -> None:
    """Copy a results folder to this machine, without Ray Tune's checkpoints and logs. Files keep their times.

    Args:
        source: the results folder.
        target: a local folder, made if need be.
        say: receives the outcome in one line.

    Raises:
        UserError: there are no results, or a file cannot be read or written.
    """
    names = source.files()
    if "manifest.json" not in names:
        raise UserError(f"{source}: no results folder there (no manifest.json)")
    published = {name.split("/")[1] for name in names if name.startswith("policies/")}

    def is_wanted(name: str) -> bool:
        if name.startswith("trials/"):
            unfinished = OF_UNFINISHED.fullmatch(name)
            return unfinished is not None and unfinished["training"] not in published
        return not _temporary(name)

    def download(name: str) -> None:
        source.download(name, target / name)
        os.utime(target / name, ns=(names[name].mtime_ns,) * 2)

    kept = [name for name in names if is_wanted(name)]
    _side_by_side(download, kept)
    newest: dict[PurePosixPath, int] = {}
    for name, info in names.items():
        for folder in PurePosixPath(name).parents:
            newest[folder] = max(newest.get(folder, 0), info.mtime_ns)
    for folder, changed in newest.items():
        if (target / folder).is_dir():
            os.utime(target / folder, ns=(changed, changed))  # `status` reads in it whether a training runs
    say(f"fetched {len(kept)} files ({sum(names[name].size for name in kept) / 1e6:.1f} MB) to {target}")


def _side_by_side(copy: Callable[[str], None], names: Iterable[str]) -> None:
    """Copy files, several at a time, those that LAST names after all others."""
    by_rank: dict[int, list[str]] = {}
    for name in sorted(names):
        last = PurePosixPath(name).name
        by_rank.setdefault(LAST.index(last) + 1 if last in LAST else 0, []).append(name)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _, alike in sorted(by_rank.items()):
            list(pool.map(copy, alike))


def _persistently(read: Callable[[], T]) -> T:
    """Repeat `read` until it succeeds. Arrow does not repeat a short read that a busy store refuses."""
    for pause_s in PAUSES_S:
        try:
            return read()
        except OSError as error:
            if "flush response stream" not in str(error):
                raise
        time.sleep(pause_s)
    return read()


def _temporary(name: str) -> bool:
    """Whether a file has a temporary name, or its name leads out of the folder."""
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def first_line(error: Exception) -> str:
    """A store's error message, without the request and its number."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r" \(Request ID: .*", "", said.partition(" operation: ")[2] or said)
