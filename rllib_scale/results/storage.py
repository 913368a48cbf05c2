"""Folders on this machine, on a shared disk or in an object store (file://, s3://, gs://). Free of ray.

A location is a path or a URI of pyarrow. Credentials come from the environment, a profile or an instance role. A URI
that holds credentials is refused, because logs and manifests show it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from pyarrow import ArrowInvalid, fs

from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic

LOCAL = fs.LocalFileSystem()
SCHEMES = ("file", "s3", "gs", "gcs")
LAST = ("policy.json", "manifest.json")
"""Copied after the files that they describe."""


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
            return fs.LocalFileSystem(), os.path.abspath(self.text)
        try:
            filesystem, path = fs.FileSystem.from_uri(self.text)
        except (ArrowInvalid, OSError, ValueError) as error:
            raise UserError(f"{self.text}: {_first_line(error)}") from None
        return filesystem, path.rstrip("/")

    def __truediv__(self, name: str) -> Location:
        base, mark, options = self.text.partition("?") if is_uri(self.text) else (self.text, "", "")
        return Location(f"{base.rstrip('/')}/{name}{mark}{options}")

    def __str__(self) -> str:
        return self.text

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
        start = len(self._resolved[1]) + 1
        return {info.path[start:]: info for info in self._list(recursive=True) if info.type == fs.FileType.File}

    def read_text(self) -> str:
        """The text of this file.

        Raises:
            OSError: it is missing or cannot be read.
        """
        filesystem, path = self._resolved
        with filesystem.open_input_stream(path) as stream:
            return stream.read().decode("utf-8")

    def download(self, name: str, target: Path) -> None:
        """Copy a file of this folder to a local path, whole or not at all.

        Raises:
            UserError: it cannot be read here or written there.
        """
        filesystem, path = self._resolved
        write_atomic(target, lambda temporary: fs.copy_files(f"{path}/{name}", str(temporary), filesystem, LOCAL))

    def upload(self, name: str, source: Path) -> None:
        """Copy a local file into this bucket, whole or not at all.

        Raises:
            UserError: it cannot be written.
        """
        filesystem, path = self._resolved
        try:
            fs.copy_files(str(source), f"{path}/{name}", LOCAL, filesystem)
        except OSError as error:
            raise UserError(f"{self}: cannot be written ({_first_line(error)})") from None

    @contextmanager
    def reading(self) -> Iterator[Path]:
        """A local folder with the content of this one, for the duration of a block."""
        if self.local is not None:
            yield self.local
            return
        filesystem, path = self._resolved
        with tempfile.TemporaryDirectory(prefix="rllib-scale-") as folder:
            fs.copy_files(path, folder, filesystem, LOCAL)
            yield Path(folder)

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """A local folder whose files are copied here when the block ends without an error."""
        if self.local is not None:
            self.local.mkdir(parents=True, exist_ok=True)
            yield self.local
            return
        filesystem, path = self._resolved
        with tempfile.TemporaryDirectory(prefix="rllib-scale-") as folder:
            yield Path(folder)
            fs.copy_files(folder, path, LOCAL, filesystem)

    def _list(self, recursive: bool) -> list[fs.FileInfo]:
        filesystem, path = self._resolved
        try:
            return list(filesystem.get_file_info(fs.FileSelector(path, recursive=recursive, allow_not_found=True)))
        except FileNotFoundError:  # a folder that was made between two looks of Arrow's
            return []
        except OSError as error:
            raise UserError(f"{self}: cannot be read ({_first_line(error)})") from None


def fetch(source: Location, target: Path, say: Callable[[str], None]) -> None:
    """Copy a results folder to this machine, without Ray Tune's checkpoints and logs.

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
    kept = sorted((name for name in names if not name.startswith("trials/") and not _temporary(name)), key=_in_order)
    for name in kept:
        source.download(name, target / name)
    say(f"fetched {len(kept)} files ({sum(names[name].size for name in kept) / 1e6:.1f} MB) to {target}")


class Mirror:
    """A local results folder whose files are copied to a bucket. Tune writes its checkpoints there itself.

    Args:
        folder: the local folder, made here.
        storage: an empty location, or results of the same sweep, which are fetched first.
        say: receives what was fetched.

    Raises:
        UserError: the location holds something else, or cannot be read.
    """

    def __init__(self, folder: Path, storage: Location, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.storage = storage
        folder.mkdir()
        if names := storage.files():
            if "manifest.json" not in names:
                raise UserError(f"{storage}: not empty and without a manifest.json; give another --results")
            fetch(storage, folder, say)
        self._copied = dict(self._versions())
        for policy in folder.glob("policies/*"):
            if not (policy / "policy.json").is_file():
                shutil.rmtree(policy)  # its upload was interrupted; its checkpoint is still there

    def save(self) -> None:
        """Copy files that are new or have changed since the last call.

        Raises:
            UserError: it cannot be written.
        """
        for name, version in sorted(self._versions(), key=lambda item: _in_order(item[0])):
            if self._copied.get(name) != version:
                self.storage.upload(name, self.folder / name)
                self._copied[name] = version

    def _versions(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Name, size and time of the last change of each file."""
        for path in self.folder.rglob("*"):
            name = path.relative_to(self.folder).as_posix()
            with suppress(FileNotFoundError):  # the file was removed meanwhile
                if path.is_file() and not _temporary(name):
                    stat = path.stat()
                    yield name, (stat.st_size, stat.st_mtime_ns)


@contextmanager
def results_folder(place: str, say: Callable[[str], None]) -> Iterator[tuple[Path, Mirror | None]]:
    """The local folder of a sweep's results, and its mirror if `place` is in a bucket.

    Raises:
        UserError: see `Mirror`; or the results cannot be copied at the end, and are kept.
    """
    storage = Location(place)
    if storage.local is not None:
        yield storage.local if is_uri(place) else Path(place), None
        return
    parent = Path(tempfile.mkdtemp(prefix="rllib-scale-"))
    try:
        mirror = Mirror(parent / "results", storage, say)
    except BaseException:
        shutil.rmtree(parent)
        raise
    try:
        yield mirror.folder, mirror
    finally:
        try:
            mirror.save()
        except UserError as error:
            raise UserError(f"{error}; the results are kept in {mirror.folder}") from None
        say(f"The results are in {storage}")
        shutil.rmtree(parent)


def _temporary(name: str) -> bool:
    """Whether a file has a temporary name, or its name leads out of the folder."""
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _in_order(name: str) -> tuple[int, str]:
    last = PurePosixPath(name).name
    return (LAST.index(last) + 1 if last in LAST else 0), name


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
