"""Folders that may lie elsewhere: on this machine, on a shared disk or in a cloud (file://, s3://, gs://). Free of ray.

A location is written as a path or as a URI that pyarrow understands. Credentials come from where the cloud's own tools
look for them (environment, profile, instance role); in a URI they would end up in logs and manifests and are refused.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from pyarrow import ArrowInvalid, fs

from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic

SCHEMES = ("file", "s3", "gs", "gcs")
PUSH_INTERVAL_S = 60.0
LAST = ("policy.json", "manifest.json")
"""Copied after the other files: where one of these stands, what it describes is there."""


def is_uri(text: str) -> bool:
    """Whether a location is written as a URI and not as a path.

    >>> is_uri("s3://bucket/results"), is_uri("/shared/results")
    (True, False)
    """
    return "://" in text


class Location:
    """A folder or file by path or URI, with the few things that trainings and results ask of it.

    Args:
        text: a path, or a URI with one of SCHEMES; options of pyarrow's may follow after `?`.

    Raises:
        UserError: the scheme is unknown, or the URI holds credentials.
    """

    def __init__(self, text: str | Path | Location) -> None:
        self.text = str(text)
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[type[Location], tuple[str]]:
        return Location, (self.text,)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self._resolved[1]).name

    @property
    def local(self) -> Path | None:
        """The path, where it is one that this machine's other programs see too."""
        filesystem, path = self._resolved
        return Path(path) if isinstance(filesystem, fs.LocalFileSystem) else None

    def folders(self) -> list[str]:
        """Names of the folders in this one; none where it does not exist."""
        return sorted(info.base_name for info in self._list(recursive=False) if info.type == fs.FileType.Directory)

    def files(self) -> dict[str, fs.FileInfo]:
        """Every file below, by its path relative to here; none where it does not exist."""
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
        """Copy one file below to a local path, whole or not at all, with its time of change.

        Raises:
            UserError: it cannot be read here or written there.
        """
        filesystem, path = self._resolved
        try:
            changed = filesystem.get_file_info(f"{path}/{name}").mtime_ns or 0
            stream = filesystem.open_input_stream(f"{path}/{name}")
        except OSError as error:
            raise UserError(f"{self / name}: cannot be read ({_first_line(error)})") from None

        def write(temporary: Path) -> None:
            with temporary.open("wb") as out:
                shutil.copyfileobj(stream, out)
            os.utime(temporary, ns=(changed, changed))

        with stream:
            write_atomic(target, write)

    def upload(self, name: str, source: Path) -> None:
        """Copy a local file to below here. On a disk under a temporary name first; clouds write whole objects."""
        if self.local is not None:
            write_atomic(self.local / name, lambda temporary: shutil.copyfile(source, temporary))
            return
        filesystem, path = self._resolved
        with source.open("rb") as stream, filesystem.open_output_stream(f"{path}/{name}") as out:
            shutil.copyfileobj(stream, out)

    @contextmanager
    def reading(self, only: tuple[str, ...] = ("",)) -> Iterator[Path]:
        """A local folder with what lies here, for the duration of a block; `only` what begins so is surely there."""
        if self.local is not None:
            yield self.local
            return
        with tempfile.TemporaryDirectory(prefix="rllib-scale-") as folder:
            for name in (name for name in self.files() if name.startswith(only)):
                self.download(name, Path(folder) / name)
            yield Path(folder)

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """A local folder whose files are here when the block has ended well."""
        if self.local is not None:
            self.local.mkdir(parents=True, exist_ok=True)
            yield self.local
            return
        with tempfile.TemporaryDirectory(prefix="rllib-scale-") as folder:
            yield Path(folder)
            _push(Path(folder), self, {})

    def _list(self, recursive: bool) -> list[fs.FileInfo]:
        filesystem, path = self._resolved
        try:
            return list(filesystem.get_file_info(fs.FileSelector(path, recursive=recursive, allow_not_found=True)))
        except OSError as error:
            raise UserError(f"{self}: cannot be read ({_first_line(error)})") from None


def fetch(source: Location, target: Path, trials: bool, say: Callable[[str], None]) -> None:
    """Copy a results folder to this machine. Run again, it copies what is missing or has changed.

    Args:
        source: where a sweep wrote its results.
        target: folder here, made if need be.
        trials: whether to copy Ray Tune's folder too: checkpoints, which are pickles, and logs.
        say: receives the outcome in one line.

    Raises:
        UserError: there are no results, or something cannot be read or written.
    """
    if not is_uri(str(source)):
        ours, theirs = target.resolve(), Path(str(source)).resolve()
        if ours.is_relative_to(theirs) or theirs.is_relative_to(ours):
            raise UserError(f"{target}: one of it and {source} is in the other; fetch to another place")
    files = source.files()
    if "manifest.json" not in files:
        raise UserError(f"{source}: no results folder there (no manifest.json)")
    copied, size = 0, 0
    for name in sorted(files, key=_in_order):
        here = target / name
        if not _safe(name) or (name.startswith("trials/") and not trials):
            continue
        if here.is_file() and _same(here.stat(), files[name]):
            continue
        source.download(name, here)
        copied, size = copied + 1, size + files[name].size
    say(f"fetched {copied} files ({size / 1e6:.1f} MB) to {target}; the other files were there already")


@contextmanager
def results_folder(place: str, say: Callable[[str], None]) -> Iterator[tuple[Path, Location | None]]:
    """Where a sweep writes its results, and where else they go, if `place` is a URI: see `mirrored`."""
    if not is_uri(place):
        yield Path(place), None
        return
    with mirrored(Location(place), say) as folder:
        yield folder, Location(place)


@contextmanager
def mirrored(storage: Location, say: Callable[[str], None]) -> Iterator[Path]:
    """A local results folder that is kept equal to one elsewhere: fetched first, copied there every minute and at last.

    Tune writes its checkpoints to `storage` by itself; they are in no mirror.

    Raises:
        UserError: there is something that is no results folder, or it cannot be read or written.
    """
    names = storage.files()
    if names and "manifest.json" not in names:
        raise UserError(f"{storage}: not empty and without a manifest.json; give another --results")
    parent = Path(tempfile.mkdtemp(prefix="rllib-scale-"))
    folder = parent / "results"
    folder.mkdir()
    if names:
        fetch(storage, folder, False, say)
    for policy in folder.glob("policies/*"):
        if not (policy / "policy.json").is_file():
            shutil.rmtree(policy)  # the upload was cut off; its checkpoint is still there
    pushed: dict[str, tuple[int, int]] = {}
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(PUSH_INTERVAL_S):
            try:
                _push(folder, storage, pushed)
            except UserError as error:
                say(f"Not copied for now: {error}")

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield folder
    finally:
        ended.set()
        thread.join()
        try:
            _push(folder, storage, pushed)
        except UserError as error:
            raise UserError(f"{error}; the results are kept in {folder}") from None
        say(f"The results are in {storage}")
        shutil.rmtree(parent)


def _push(folder: Path, target: Location, pushed: dict[str, tuple[int, int]]) -> None:
    """Copy what has changed since the last time; `pushed` remembers size and time of what was copied."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for name in sorted(names, key=_in_order):
        if any(part.startswith(".") for part in PurePosixPath(name).parts):
            continue  # half-written, under its temporary name
        stat = (folder / name).stat()
        version = (stat.st_size, stat.st_mtime_ns)
        if pushed.get(name) == version:
            continue
        try:
            target.upload(name, folder / name)
        except OSError as error:
            raise UserError(f"{target}: cannot be written ({_first_line(error)})") from None
        pushed[name] = version


def _same(here: os.stat_result, there: fs.FileInfo) -> bool:
    return here.st_size == there.size and here.st_mtime_ns == (there.mtime_ns or 0)


def _safe(name: str) -> bool:
    """Whether a name stays below the folder and is no temporary file."""
    parts = PurePosixPath(name).parts
    return ".." not in parts and not any(part.startswith(".") for part in parts)


def _in_order(name: str) -> tuple[int, str]:
    last = PurePosixPath(name).name
    return (LAST.index(last) + 1 if last in LAST else 0), name


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
