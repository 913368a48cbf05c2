"""Strict reading of config files: YAML 1.2 numbers, no duplicate keys, one line for mistakes."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rllib_scale.errors import UserError, choice_error, nearest, offered
from rllib_scale.files import check_regular

M = TypeVar("M", bound=BaseModel)
MAX_VALUES = 100_000
"""Values of a config with its aliases written out, which may be gigabytes in a few lines."""
MAX_SHOWN = 80
"""Characters of a value in a message."""


class StrictLoader(yaml.SafeLoader):
    """Safe YAML with unique keys, in which `3e-4` is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse duplicate keys."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a list or a mapping cannot be a key", key_node.start_mark
                )
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


# PyYAML follows YAML 1.1, where an exponent needs a dot and a sign: 3e-4 would be the string "3e-4".
StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text.

    Raises:
        UserError: with the line of the mistake.
    """
    try:
        loader = StrictLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if (values := _unfolded(node, {})) > MAX_VALUES:
            raise UserError(f"{source}: its aliases unfold to {values:.3g} values; at most {MAX_VALUES:,}")
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{source}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{source}: not valid YAML: {str(error).splitlines()[0]}") from None


def _unfolded(node: yaml.Node, known: dict[int, float]) -> float:
    """Values of a document with its aliases written out; inf if an alias contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1.0
    if id(node) not in known:
        known[id(node)] = math.inf  # until it is known: an alias inside of itself never ends
        parts = [part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,))]
        known[id(node)] = 1.0 + sum(_unfolded(part, known) for part in parts)
    return known[id(node)]


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        UserError: it is missing, unreadable, not UTF-8 or empty.
    """
    try:
        check_regular(path)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a UTF-8 text file") from None
    except ValueError:
        raise UserError(f"{str(path)!r}: cannot be read (a name of a file has no NUL byte)") from None
    if not text.strip():
        raise UserError(f"{path}: is empty")
    return text


def build_model(model: type[M], data: Any, source: str, below: str = "") -> M:
    """Validate plain data into a config model; `below` is the config path of the data, for messages.

    Raises:
        UserError: one line with the first mistakes, each with its key, its value and what is valid.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{source}: {explain(error, below, data)}") from None


def parse_override(text: str) -> tuple[str, Any]:
    """Split `key.path=value`; the value is YAML."""
    path, separator, value = text.partition("=")
    if not separator or not path:
        raise UserError(f"--set {text!r}: must be KEY=VALUE, without spaces, as --set {path or 'KEY'}=VALUE")
    return path, parse_yaml(value, f"--set {path}")


def set_path(data: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b.c` in nested mappings; missing mappings are made, and the name of a preset is replaced.

    The keys of a grid, of `zip` and of a search's space are config paths: `grid.srr.lambda_kl` sets the key
    `srr.lambda_kl` of `grid`.

    Raises:
        UserError: `zip` has several mappings.
    """
    above = next((keys for keys in ("grid.", "zip.", "search.space.") if path.startswith(keys)), "")
    if above == "zip." and isinstance(groups := data.get("zip"), list):
        if len(groups) != 1:
            raise UserError(f"--set {path}: zip has {len(groups)} mappings; valid: --set zip=[...], all of them")
        data = {"zip": groups[0]}
    *parents, last = [*above.split(".")[:-1], path.removeprefix(above)] if above else path.split(".")
    for key in parents:
        if not isinstance(data.get(key), dict):
            data[key] = {}
        data = data[key]
    data[last] = value


def explain(error: ValidationError, below: str = "", data: Any = None) -> str:
    """One line with each mistake, its key, `below` a config path, and what is valid; `data` is what was validated."""
    every = error.errors()
    within = {item["loc"][:-1] for item in every}  # a list whose entries are wrong is not too short
    items = [
        ((*filter(None, [below]), *_keys((*item["loc"], *key), data, item["type"] == "missing")), item)
        for item in every
        if item["type"] != "too_short" or item["loc"] not in within
        for key in item.get("ctx", {}).get("keys", [()])  # `Model` reports mistakes of a section with their keys
    ]
    items.sort(key=lambda item: item[1]["type"] == "missing")  # a misspelt key before the right one, which is missing
    parts = [_explained(".".join(map(str, loc)), item) for loc, item in items[:3]]
    more = len(items) - len(parts)
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


_PLAIN = (str, int, float, list, tuple)
"""Values without keys, but for those of entries."""


def _keys(loc: tuple[int | str, ...], data: Any, is_missing: bool) -> tuple[int | str, ...]:
    """The keys of a mistake's place, without the names by which a union distinguishes its kinds."""
    keys: list[int | str] = []
    for depth, key in enumerate(loc):
        if isinstance(data, Mapping) and key not in data and not (is_missing and depth == len(loc) - 1):
            continue
        if isinstance(data, _PLAIN) and not (isinstance(data, list | tuple) and isinstance(key, int)):
            continue
        keys.append(key)
        if isinstance(data, Mapping):
            data = data.get(key)
        elif isinstance(data, list | tuple) and isinstance(key, int):
            data = data[key] if key < len(data) else None  # of a pair that has one value
        else:
            data = getattr(data, str(key), None)
    return tuple(keys)


def _explained(where: str, item: ErrorDetails) -> str:
    context = item.get("ctx", {})
    if item["type"] == "unknown_key":
        key, valid = where.rpartition(".")[2], context["valid"]
        near, meant = nearest(key, valid), context["meant"].get(key)
        if meant is not None and not (near and "." in meant and difflib.get_close_matches(key, near[:1], cutoff=0.85)):
            near = [meant, *near]
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        return f"unknown key {where!r}{hint} valid: {offered(valid, [name for name in near if name in valid])}"
    message = item["msg"].removeprefix("Value error, ")
    limit = context.get("le", context.get("ge"))
    if isinstance(limit, float):  # pydantic writes all zeros of 1e-15
        message = f"{message.rpartition(' ')[0]} {limit:g}"
    if item["type"] == "union_tag_invalid":
        valid = re.findall(r"'([^']*)'", context["expected_tags"])
        return f"{where}.name: {choice_error(f'{where}', context['tag'], valid)}"
    if item["type"] == "too_short":
        message = f"must have at least {context['min_length']} entry"
    if item["type"] == "too_long":
        message = f"must have at most {context['max_length']} {'entry' if context['max_length'] == 1 else 'entries'}"
    if item["type"] == "model_type":
        message = "must be a mapping of keys to values"
    message = message[:1].lower() + message[1:]
    message = message.replace("valid tuple", "valid list").replace("valid dictionary", "valid mapping")
    if item["type"] == "literal_error":
        near = difflib.get_close_matches(str(item["input"]), re.findall(r"'([^']*)'", message), n=1)
        message += f"; did you mean {near[0]!r}?" if near else ""
    if item["type"] not in ("value_error", "missing"):
        is_mapping = isinstance(item["input"], (dict, BaseModel))
        message += f" (got {'a mapping' if is_mapping else _short(item['input'])})"
    return f"{where}: {message}" if where and not message.startswith((f"{where}.", f"{where} ")) else message


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
