"""User code by name: `package.module:Name`, or an entry point of an installed package.

Validation appends `#source=` and the digest of the file that defines the code. Configs travel and are stored in this
form: their hashes include the digest, they are read again without an import, and loading code that has changed is an
error. The working directory is searched for modules, too.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable
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
    """The object that a name stands for, and the digest of its source.

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
    digest = hashlib.sha256(Path(str(source.__file__)).read_bytes()).hexdigest()[:DIGITS]
    if wanted and wanted != digest:
        raise UserError(
            f"{kind} {plain!r}: {source.__file__} is not what the config was read with (sha256 {digest}, not "
            f"{wanted}); name it anew for new results, or bring the old file back"
        )
    for each in (module, source.__name__):
        _ship(each.partition(".")[0])
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


def _ship(package: str) -> None:
    module = sys.modules[package]
    places = [*getattr(module, "__path__", ()), str(getattr(module, "__file__", None) or "")]
    place = Path(places[0]).resolve()
    paths = sysconfig.get_paths()
    installed = {Path(paths[key]).resolve() for key in ("purelib", "platlib", "stdlib", "platstdlib")}
    if package != __package__ and places[0] and not any(place.is_relative_to(folder) for folder in installed):
        _shipped[package] = str(place)
