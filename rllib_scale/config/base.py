"""The base of all config models: strictness, number types, and hashes."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

MIN_SERVERS = 1
"""Smallest cluster a tier ratio is scaled to."""
MAX_SERVERS = 1_000_000
"""Largest cluster: one observation takes 20 MB."""
MAX_EPISODES = 100_000
"""Episodes of one evaluation; published tables used 150."""
MAX_NUMBER = 1e15
"""Largest number of a config: sums and products of several stay finite."""
Positive = Annotated[float, Field(ge=1 / MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
Finite = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1 / MAX_NUMBER, le=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Episodes = Annotated[int, Field(ge=1, le=MAX_EPISODES)]
Width = Annotated[int, Field(ge=1, le=4096)]
"""Width of a layer."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
MaskMode = Literal["none", "feasible"]
DecisionMode = Literal["argmax", "sample"]


class Model(BaseModel):
    """Base of all config models: unknown keys are refused, and values do not change after validation.

    A section, or a list that is empty by default, changes nothing where it is left empty, as null is in YAML.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text_key: ClassVar[str | None] = None
    """The field that is set by a text in place of the mapping."""
    texts: ClassVar[tuple[str, ...]] = ()
    """Other texts that are valid there."""

    @classmethod
    def written_out(cls, value: Any) -> Any:
        """The mapping that a text abbreviates; other values unchanged."""
        return {cls.text_key: value} if isinstance(value, str) and cls.text_key is not None else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        """The JSON schema of the mapping, or of a text in its place."""
        reference = handler(core)
        schema = handler.resolve_ref_schema(reference)
        if cls.texts or cls.text_key is not None:
            text = {"enum": list(cls.texts)} if cls.texts else schema["properties"][cls.text_key]
            mapping = dict(schema)
            schema.clear()
            schema["anyOf"] = [text, mapping]
        return reference

    @model_validator(mode="before")
    @classmethod
    def _keys_and_numbers(cls, data: Any) -> Any:
        """Refuse unknown keys, null, and what Python takes for a number: True, which is `on` in YAML, "1_0" and "٣"."""
        data = cls.written_out(data)
        if not isinstance(data, Mapping):
            return data
        data = {key: value for key, value in data.items() if value is not None or not _is_left_empty(cls, key)}
        if unknown := [key for key in data if key not in cls.model_fields]:
            meant = {key: found for key in unknown if (found := _meant(cls, str(key))) is not None}
            context = {"keys": [(key,) for key in unknown], "valid": list(cls.model_fields), "meant": meant}
            raise PydanticCustomError("unknown_key", "unknown key", context)
        for key, value in data.items():
            if value is None and not _may_be_null(cls, key):
                said = "null is none of its values; leave it out for its default"
                raise PydanticCustomError("value_error", "{said}", {"keys": [(key,)], "said": said})
            entries = enumerate(value) if isinstance(value, list | tuple) else (("", value),)
            for index, item in entries:
                odd = isinstance(item, bool) or (isinstance(item, str) and ("_" in item or not item.isascii()))
                if odd and _asks_for_number(cls, key):
                    said = "" if index == "" else f"entry {index} "
                    said += f"must be a number, not {str(item).lower() if isinstance(item, bool) else repr(item):.60}"
                    if isinstance(item, bool):
                        said += f" (in YAML also {'on, yes' if item else 'off, no'})"
                    raise PydanticCustomError("value_error", "{said}", {"keys": [(key,)], "said": said})
        return data


def merged(
    models: type[BaseModel] | tuple[type[BaseModel], ...] | None, base: Mapping[str, Any], over: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a section with those of another one over them, section by section; other values are replaced.

    Args:
        models: of the section, or those that it may be; None if it is unknown.
        base: settings.
        over: settings that win; a section in short form is written out, and one that is left empty changes nothing.
    """
    models = models if isinstance(models, tuple) else () if models is None else (models,)
    both = dict(base)
    for key, value in over.items():
        if value is None and any(_is_left_empty(model, key) for model in models):
            continue
        sections, inner = _sections(models, key), both.get(key)
        if sections:
            with suppress(ValueError):  # validation reports it, with its key
                value, inner = sections[0].written_out(value), sections[0].written_out(inner)
        both[key] = (
            merged(sections, inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
        )
    return both


@cache
def _sections(models: tuple[type[BaseModel], ...], key: str) -> tuple[type[Model], ...]:
    """Possible models of a nested section: one, or several distinguished by name; else none."""
    found: dict[type[Model], None] = {}
    for model in (model for model in models if key in model.model_fields):
        kinds = [kind for kind in types_in(model.model_fields[key].annotation) if inspect.isclass(kind)]
        own = [kind for kind in kinds if issubclass(kind, Model)]
        if (len(own) == 1 and tuple not in kinds) or all("name" in kind.model_fields for kind in own):
            found |= dict.fromkeys(own)
    return tuple(found)


@cache
def _is_left_empty(model: type[BaseModel], field: str) -> bool:
    """Whether null there means an empty section: a mapping that cannot be null, or a list that is empty by default."""
    known = model.model_fields.get(field)
    if known is None or _may_be_null(model, field):
        return False
    kinds = [get_origin(kind) or kind for kind in types_in(known.annotation)]
    return known.default == () or any(inspect.isclass(kind) and issubclass(kind, Model | dict) for kind in kinds)


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The types that a value may have."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


@cache
def _may_be_null(model: type[BaseModel], field: str) -> bool:
    """Whether null is a value of a setting; of an unknown one, which is refused, too."""
    known = model.model_fields.get(field)
    return known is None or known.is_required() or any(k in (type(None), Any) for k in _choices(known.annotation))


def _meant(model: type[BaseModel], key: str) -> str | None:
    """Path of the setting that an unknown key means: that of this name in a section below, or of this symbol.

    >>> from rllib_scale.config import EnvConfig, SRRConfig
    >>> _meant(SRRConfig, "lambda1"), _meant(EnvConfig, "offered_load"), _meant(EnvConfig, "load")
    ('lambda_decorrelation', 'workload.offered_load', None)
    """
    settings = list(_settings(model))
    named = [path for path, _ in settings if path.rpartition(".")[2] == key]
    of_symbol = [path for path, field in settings if _plain(key) in _symbols(field.description or "")]
    return min(named or of_symbol, key=lambda path: path.count("."), default=None)


def _settings(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Path and field of each setting, those of sections after their section."""
    for name, field in model.model_fields.items():
        yield above + name, field
        some = [model for each in field.metadata if isinstance(each, Some) for model in each.models]
        for kind in (field.annotation, *get_args(field.annotation), *some):
            if isinstance(kind, type) and issubclass(kind, Model):
                yield from _settings(kind, f"{above}{name}.")


def _symbols(description: str) -> set[str]:
    """Symbols in a description: its first word before a comma, and `lambda_1`."""
    return {_plain("".join(each)) for each in re.findall(r"^(\w+),|\b([A-Za-z]+_\d)\b", description)}


def _plain(symbol: str) -> str:
    return symbol.replace("_", "").lower()


@cache
def _asks_for_number(model: type[BaseModel], field: str) -> bool:
    types = list(types_in(model.model_fields[field].annotation))
    return any(kind in (int, float) for kind in types) and not any(kind in (bool, str, Any) for kind in types)


def types_in(annotation: Any) -> Iterator[Any]:
    """A type and its type arguments, recursively."""
    yield annotation
    for part in get_args(annotation):
        yield from types_in(part)


def models_of(union: Any) -> dict[str, Any]:
    """Models of a union by their discriminator."""
    return {get_args(model.model_fields["name"].annotation)[0]: model for model in get_args(get_args(union)[0])}


class Some:
    """Annotates a mapping with some settings of a model, or of one of several, which checks them when they are merged.

    Only the JSON schema says which settings these are.
    """

    def __init__(self, *models: type[Model]) -> None:
        self.models = models

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        kinds: dict[str, list[Any]] = {}
        for model in self.models:
            schema = handler.resolve_ref_schema(handler(model.__pydantic_core_schema__))
            mapping = next((one for one in schema.get("anyOf", ()) if "properties" in one), schema)
            for name, kind in mapping["properties"].items():
                if kind not in kinds.setdefault(name, []):
                    kinds[name].append(kind)
        settings = {name: found[0] if len(found) == 1 else {"anyOf": found} for name, found in kinds.items()}
        return {"type": "object", "properties": settings, "additionalProperties": False}


def digest(content: Any) -> str:
    """Twelve hex digits of the SHA-256 of a JSON value in canonical form."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
