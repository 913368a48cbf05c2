"""Machine code on disk: where it is kept, and when it may be used again.

numba checks the file of the function alone. Compiled code also holds what it calls and the values that it takes from
modules: constants, positions of names, layouts of records. Many of them follow from the config, so the sources with
compiled functions do not reveal whether they are the same.
"""

from __future__ import annotations

import dis
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import caching, types

SOURCES_OF_CODE = (
    *("workloads/*.py", "observation/*.py", "simulator/*.py", "simulator/replicas/*.py", "schedulers/*.py"),
    *("bounds/*.py", "networks/inputs.py", "networks/compiled/*.py", "rl/ppo/lean_update.py", "rl/ppo/group.py"),
    *("compiled.py", "code_cache.py"),
)
"""Modules with compiled functions."""
FOREIGN = sys.stdlib_module_names | {"numba", "numpy", "llvmlite"}
"""Packages whose functions and classes are named, not looked into."""


# ---------------------------------------------------------------------- when it may be used again


def sources_stamp(package: Path) -> str:
    """Digest of the paths and contents of all sources of machine code."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES_OF_CODE for path in package.glob(pattern)):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


SOURCES = sources_stamp(Path(__file__).parent)


@cache
def values_stamp(function: FunctionType) -> str:
    """Digest of the values that a function takes from modules and closures, and of those of all that it calls.

    Raises:
        TypeError: it takes a value of a kind that cannot be named, which would be in the code and not in the digest.
    """
    digest = hashlib.sha256()
    for name, value in _taken_by(function).items():
        try:
            _add(value, digest.update)
        except TypeError as error:
            where = f"{function.__module__}.{function.__qualname__}"
            raise TypeError(f"{where} is compiled with {name}: {error}") from None
    return digest.hexdigest()


def _taken_by(function: FunctionType) -> dict[str, Any]:
    """Values that the code of a function contains, by name."""
    taken = {"its defaults": function.__defaults__}
    for code in codes(function.__code__):
        for each in dis.get_instructions(code):
            if each.opname == "LOAD_GLOBAL" and each.argval in function.__globals__:  # else it is Python's own
                taken[each.argval] = function.__globals__[each.argval]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        taken[name] = cell.cell_contents
    return taken


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of those that are defined in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


def _add(value: Any, update: Callable[[bytes], None]) -> None:
    """Add a value to a digest.

    Raises:
        TypeError: there is no name for such a value.
    """
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        update(f"{type(value).__name__} {value!r}\n".encode())
    elif isinstance(value, tuple):
        update(f"{type(value).__name__} of {len(value)}\n".encode())
        for each in value:
            _add(each, update)
    elif isinstance(value, np.dtype):
        update(f"{value!r} of {value.itemsize}\n".encode())
    elif isinstance(value, types.Type):
        update(f"type {value}\n".encode())
    elif isinstance(value, ModuleType) and not _is_ours(value.__name__):
        update(f"module {value.__name__}\n".encode())
    elif isinstance(value, type) and (hasattr(value, "_fields") or not _is_ours(value.__module__)):
        update(f"class {value.__module__}.{value.__qualname__} {getattr(value, '_fields', ())}\n".encode())
    else:
        _add_function(value, update)


def _add_function(value: Any, update: Callable[[bytes], None]) -> None:
    """Add a function, compiled or not, by its name and by what it takes itself."""
    numba_type = getattr(value, "_numba_type_", None)
    function = numba_type.dispatcher.py_func if isinstance(numba_type, types.Dispatcher) else value
    function = getattr(function, "_defn", function)  # of an intrinsic
    if not isinstance(function, FunctionType | BuiltinFunctionType | np.ufunc):
        raise TypeError(f"{value!r}, a {type(value).__qualname__}, which has no name in the digest")
    update(f"function {function.__qualname__}\n".encode())
    if isinstance(function, FunctionType) and _is_ours(function.__module__):
        update(values_stamp(function).encode())


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] not in FOREIGN


# ---------------------------------------------------------------------- where it is kept


class Cache(caching.FunctionCache):
    """The machine code of one function, for the sources and values of this process."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The cached code of a signature; None: nothing, or it cannot be read."""
        # Only now: what a module defines after the function is there, too.
        file, own = self._cache_file, self._impl.locator.get_source_stamp()
        file._source_stamp = (own, SOURCES, values_stamp(self._py_func))
        with suppress(OSError):
            return super().load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, where that can be written."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            say_once(f"Compiled code cannot be kept, and is compiled by each process: {error}")


def cache_of(function: FunctionType) -> Any:
    """The cache of a function: where numba finds a folder for it, else in a temporary one, where there is one."""
    with suppress(RuntimeError):  # numba found no folder that can be written
        return Cache(function)
    try:
        folder = _temporary_folder()
    except OSError as error:
        say_once(f"Compiled code cannot be kept, and is compiled by each process: {error}")
        return caching.NullCache()
    say_once(f"Compiled code is kept in {folder}: no other folder can be written (NUMBA_CACHE_DIR names one)")
    # The processes that this one starts use it, too.
    os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = str(folder)
    return Cache(function)


def _temporary_folder() -> Path:
    """A folder that only this user can write, as code that is loaded from it runs."""
    folder = Path(tempfile.gettempdir()) / f"rllib-scale-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return folder
    return Path(tempfile.mkdtemp(prefix="rllib-scale-"))


_said: set[str] = set()


def say_once(line: str) -> None:
    """Print a line on stderr, once, and not in processes that others started, as those of doctor."""
    if line not in _said and parent_process() is None and sys.__stderr__ is not None:
        _said.add(line)
        print(line, file=sys.__stderr__, flush=True)
