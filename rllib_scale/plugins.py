"""User code by name: `package.module:Name`, or an entry point of an installed package.

Validation appends `#source=` and a digest: of the file that defines the code, and of the user's own modules that it
imports by a statement, recursively. Configs travel and are stored in this form: their hashes include the digest, they
are read again without an import, and loading code that has changed is an error. The working directory is searched for
modules, too.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from rllib_scale.errors import UserError, choice_error

Kind = Literal["scheduler", "format", "scenario", "generator", "encoder", "reward"]
GROUPS: dict[Kind, str] = {
    "scheduler": "rllib_scale.schedulers",
    "format": "rllib_scale.formats",
    "scenario": "rllib_scale.scenarios",
    "generator": "rllib_scale.generators",
    "encoder": "rllib_scale.encoders",
    "reward": "rllib_scale.rewards",
}
"""The group of entry points of each kind."""
SOURCE_SEPARATOR = "#source="
DIGITS = 16
OURS = ("rllib_scale", "rllib_scale_analysis")
INSTALLED = ("site-packages", "dist-packages")
"""Names of folders of installed packages."""

_shipped: dict[str, str] = {}
"""Top-level package -> its folder or file, of loaded code that is not installed."""


def unpinned(name: str) -> str:
    """A name without its digest."""
    return name.partition(SOURCE_SEPARATOR)[0]


def entry_points(kind: Kind) -> dict[str, str]:
    """Name -> import path of the entry points of installed packages."""
    return {point.name: point.value for point in metadata.entry_points(group=GROUPS[kind])}


def is_import_path(name: str) -> bool:
    """Whether a name has the form `package.module:Name`.

    >>> is_import_path("my_package.rules:Greedy"), is_import_path("reserve:waiting=2"), is_import_path("out/policy")
    (True, False, False)
    """
    parts = unpinned(name).split(":")
    return len(parts) == 2 and all(word.isidentifier() for part in parts for word in part.split("."))


def load(kind: Kind, name: str, valid: list[str]) -> tuple[Any, str]:
    """The object of a name, and the digest of its source.

    Args:
        kind: kind of the object, for messages and entry points.
        name: an import path or the name of an entry point, with or without a digest.
        valid: other valid names, for messages.

    Raises:
        UserError: it does not exist, cannot be imported, or its source has another digest.
    """
    plain, _, wanted = name.partition(SOURCE_SEPARATOR)
    declared = entry_points(kind)
    path = declared.get(plain, plain)
    if not is_import_path(path):
        if not (valid or declared):
            raise UserError(f"unknown {kind} {plain!r}; valid: package.module:Name")
        raise UserError(f"{choice_error(kind, plain, [*valid, *declared])}; or package.module:Name")
    module, _, attribute = path.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)  # last, so that it hides no installed package
    found = _imported(kind, plain, module)
    for word in attribute.split("."):
        if not hasattr(found, word):
            own = [
                key for key, value in vars(found).items() if key.isupper() or getattr(value, "__module__", "") == module
            ]
            raise UserError(f"{kind} {plain!r}: {choice_error(f'name in {module}', word, own or ['none'])}")
        found = getattr(found, word)
    defined = isinstance(found, type) or inspect.isfunction(found)
    source = (inspect.getmodule(found) if defined else None) or sys.modules[module]
    if getattr(source, "__file__", None) is None:
        raise UserError(f"{kind} {plain!r}: module {source.__name__} has no source file")
    sources = _sources(source.__name__, Path(str(source.__file__)))
    digest = _digest(sources)
    if wanted and wanted != digest:
        raise UserError(
            f"{kind} {plain!r}: {source.__file__}, or a module of yours that it imports, is not what the config was "
            f"read with (sha256 {digest}, not {wanted}); name it again for new results, or bring the old files back"
        )
    for package in {each.partition(".")[0] for each in (module, *sources)}:
        if (place := _own_place(package)) is not None:
            _shipped[package] = str(place)
    return found, digest


def pinned(kind: Kind, name: str) -> str:
    """A name with the digest of its source; a pinned name stays as it is.

    Raises:
        UserError: see `load`.
    """
    return name if SOURCE_SEPARATOR in name else name + SOURCE_SEPARATOR + load(kind, name, [])[1]


def call(kind: Kind, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a user-defined function.

    Raises:
        UserError: the function raises an exception.
    """
    try:
        return function(*arguments)
    except UserError:
        raise
    except Exception as error:  # user code may raise anything
        raise _failed(kind, name, "failed", error) from error


def sources() -> list[str]:
    """Folders and files of loaded code that is not installed, which workers of a cluster may lack."""
    return sorted(_shipped.values())


def _imported(kind: Kind, name: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UserError(
                f"{kind} {name!r}: no module {error.name!r}, neither installed nor in {Path.cwd()}"
            ) from None
        reason: BaseException = error
    except (Exception, SystemExit) as error:  # user code may raise anything
        reason = error
    raise _failed(kind, name, f"{module} cannot be imported", reason) from None


def _failed(kind: Kind, name: str, what: str, reason: BaseException) -> UserError:
    said = (str(reason).splitlines() or [""])[0]
    return UserError(f"{kind} {unpinned(name)!r}: {what} ({type(reason).__name__}: {said})")


def _sources(name: str, file: Path) -> dict[str, Path]:
    """Name -> file of a module, and of those of the user's own that it imports, recursively.

    Own are modules that are not installed, and those of the module's own package.
    """
    sources, unread = {name: file}, [name]
    while unread:
        importing = unread.pop()
        path = sources[importing]
        package = importing if path.stem == "__init__" else importing.rpartition(".")[0]
        for imported in _read(path, path.stat().st_mtime_ns)[1]:
            for each in _with_parents(imported, package):
                found = None if each in sources else _own_file(each, name.partition(".")[0])
                if found is not None:
                    sources[each] = found
                    unread.append(each)
    return sources


def _digest(sources: dict[str, Path]) -> str:
    """The digest of a module's file, the first one, or of it and of those that it imports."""
    first, *imported = ((name, _read(path, path.stat().st_mtime_ns)[0]) for name, path in sources.items())
    if not imported:
        return first[1][:DIGITS]
    return hashlib.sha256(repr([first, *sorted(imported)]).encode()).hexdigest()[:DIGITS]


@lru_cache(maxsize=1024)
def _read(path: Path, mtime_ns: int) -> tuple[str, tuple[str, ...]]:
    """SHA-256 of a file, and the names in its import statements, attributes among them; `.name` is in its package."""
    content, names = path.read_bytes(), []
    try:
        statements = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):  # machine code, or a module that cannot be imported
        statements = []
    for each in statements:
        if isinstance(each, ast.Import):
            names += [alias.name for alias in each.names]
        elif isinstance(each, ast.ImportFrom):
            module = "." * each.level + (each.module or "")
            names += [f"{module}.{alias.name}" if each.module else module + alias.name for alias in each.names]
    return hashlib.sha256(content).hexdigest(), tuple(dict.fromkeys(names))


def _with_parents(imported: str, package: str) -> list[str]:
    """A module and the packages above it, which importing it runs, too.

    >>> _with_parents("..costs.speed", "mine.rules")
    ['mine', 'mine.costs', 'mine.costs.speed']
    """
    try:
        words = importlib.util.resolve_name(imported, package).split(".")
    except ImportError:  # above the top-level package
        return []
    return [".".join(words[: count + 1]) for count in range(len(words))]


def _own_file(name: str, package: str) -> Path | None:
    """The file of a module of `package`, or of one that is not installed; None if it is another or none."""
    top = name.partition(".")[0]
    if top in OURS or (top != package and _own_place(top) is None):
        return None
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # no module, or a package above it that cannot be imported
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin is not None else None


def _own_place(package: str) -> Path | None:
    """The folder or file of a top-level package that is not installed; None for any other."""
    try:
        spec = None if package in sys.modules else importlib.util.find_spec(package)
    except ValueError:
        return None
    if spec is not None:
        places = [*(spec.submodule_search_locations or ()), spec.origin if spec.has_location else None]
    else:
        module = sys.modules.get(package)
        places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
    if package in OURS or not places[0]:
        return None
    place = Path(places[0]).resolve()
    installed = not set(INSTALLED).isdisjoint(place.parts) or place.is_relative_to(sysconfig.get_path("stdlib"))
    return None if installed else place
