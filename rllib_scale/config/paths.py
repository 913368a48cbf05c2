"""Types of settings by their config paths, and what a text there refers to.

A path may lead through unions: then all members that have it count.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel

from rllib_scale.config.base import Model, Some, types_in
from rllib_scale.errors import UserError

Kind = Literal["file", "table", "generator", "encoder", "reward", "policy", "scheduler", "scenario", "replica"]
Resolve = Callable[[Kind, str], Any]
"""Resolves a text that refers to something; raises a UserError if that does not exist."""


@dataclass(frozen=True)
class Refers:
    """Annotates a text that names a file, user code, a scheduler or a scenario: `Annotated[str, Refers("file")]`."""

    kind: Kind


class MayChange:
    """Annotates a setting that may have another value in later epochs of the same training."""


T = TypeVar("T")
Changing = Annotated[T, MayChange()]


class ByPath:
    """Annotates a mapping from config paths of its model to several values each, or to a distribution of values."""


def types_at(model: type[BaseModel], path: str) -> list[Any]:
    """The types of the setting at a path below a model, with what annotates them; empty if there is none.

    >>> from rllib_scale.config.algorithms import PPO
    >>> int in types_at(PPO, "passes"), types_at(PPO, "problems.servers.first")
    (True, [])
    """
    kinds: list[Any] = [model]
    for key in path.split("."):
        kinds = list(_below(kinds, key))
    return kinds


def is_integer(model: type[BaseModel], path: str) -> bool:
    """Whether the setting at a path below a model is an integer."""
    kinds = types_at(model, path)
    return int in kinds and float not in kinds


def may_change(model: type[BaseModel], path: str) -> bool:
    """Whether the setting at a path below a model may change during a training."""
    return any(isinstance(kind, MayChange) for kind in types_at(model, path))


def resolved(model: type[BaseModel], value: Any, resolve: Resolve) -> Any:
    """Plain data of a model with every text that refers to something resolved, wherever it is written.

    Data of wrong types stay as they are: validation refuses them later.

    Raises:
        UserError: with the path of the text.
    """
    return _resolved([model], value, resolve, "", model)


def _resolved(kinds: list[Any], value: Any, resolve: Resolve, path: str, root: type[BaseModel]) -> Any:
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, each in value.items():
            if any(isinstance(kind, ByPath) for kind in kinds):
                below = types_at(root, str(key))
                # A distribution has its values below the name of its kind.
                given = {"": each} if not isinstance(each, Mapping) else each
                new = {
                    name: [_resolved(below, item, resolve, f"{path}.{key}", root) for item in several]
                    if isinstance(several, list | tuple)
                    else several
                    for name, several in given.items()
                }
                found[key] = new if isinstance(each, Mapping) else new[""]
            else:
                found[key] = _resolved(list(_below(kinds, str(key))), each, resolve, f"{path}.{key}".lstrip("."), root)
        return found
    if isinstance(value, list | tuple):
        return [_resolved(kinds, item, resolve, path, root) for item in value]
    references = {kind.kind: None for kind in _with_short_forms(kinds) if isinstance(kind, Refers)}
    if not isinstance(value, str) or len(references) != 1:
        return value
    try:
        return resolve(next(iter(references)), value)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _below(kinds: Iterable[Any], key: str) -> Iterator[Any]:
    """The types of a key's value in mappings of some types."""
    for kind in kinds:
        if inspect.isclass(kind) and issubclass(kind, BaseModel) and key in kind.model_fields:
            field = kind.model_fields[key]
            yield from _unfolded([field.annotation, *field.metadata])
        elif get_origin(kind) is dict:
            yield from _unfolded(get_args(kind)[1:])


def _unfolded(kinds: Iterable[Any]) -> Iterator[Any]:
    """The types in some types, and the models of which a mapping may have some settings."""
    for kind in kinds:
        for part in types_in(kind):
            yield part
            yield from part.models if isinstance(part, Some) else ()


def _with_short_forms(kinds: Iterable[Any]) -> Iterator[Any]:
    """The types of a text: some types, and those of the key that a text sets in place of a model."""
    for kind in kinds:
        yield kind
        if inspect.isclass(kind) and issubclass(kind, Model) and kind.text_key is not None:
            yield from _below([kind], kind.text_key)
