"""The base of all config models: strictness, number types, and hashes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from rllib_scale.config.pinned import without_places

MIN_SERVERS = 4
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
    """Base of all config models: unknown keys are refused, and values do not change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text_key: ClassVar[str | None] = None
    """The field that a text sets which stands in place of the mapping."""
    texts: ClassVar[tuple[str, ...]] = ()
    """Other texts that may stand there."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The JSON schema of the mapping, or of a text in its place."""
        reference = handler(core_schema)
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
        """Refuse unknown keys, and what Python takes for a number: True, which is `on` in YAML, "1_0" and "٣"."""
        if isinstance(data, str) and cls.text_key is not None:
            return {cls.text_key: data}
        if not isinstance(data, Mapping):
            return data
        if unknown := [key for key in data if key not in cls.model_fields]:
            meant = {key: found for key in unknown if (found := _meant(cls, str(key))) is not None}
            context = {"keys": [(key,) for key in unknown], "valid": list(cls.model_fields), "meant": meant}
            raise PydanticCustomError("unknown_key", "unknown key", context)
        for key, value in data.items():
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
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Model):
                yield from _settings(kind, f"{above}{name}.")


def _symbols(description: str) -> set[str]:
    """Symbols in a description: its first word before a comma, and `lambda_1`."""
    return {_plain("".join(each)) for each in re.findall(r"^(\w+),|\b([A-Za-z]+_\d)\b", description)}


def _plain(symbol: str) -> str:
    return symbol.replace("_", "").lower()


@cache
def _asks_for_number(model: type[BaseModel], field: str) -> bool:
    types = list(_types_in(model.model_fields[field].annotation))
    return any(kind in (int, float) for kind in types) and not any(kind in (bool, str, Any) for kind in types)


def _types_in(annotation: Any) -> Iterator[Any]:
    """A type and its type arguments, recursively."""
    yield annotation
    for part in get_args(annotation):
        yield from _types_in(part)


def identity(model: BaseModel) -> dict[str, Any]:
    """JSON content that differs from the defaults, with digests in place of paths.

    A new setting does not change its hash.
    """
    return dict(without_places(model.model_dump(mode="json", exclude_defaults=True)))


def settings_of(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Config path and value of each setting in a value, which may be a section.

    >>> list(settings_of("srr", {"lambda_kl": 0.1}))
    [('srr.lambda_kl', 0.1)]
    """
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from settings_of(f"{path}.{key}", item)
    else:
        yield path, value


def digest(content: Any) -> str:
    """Twelve hex digits of the SHA-256 of a JSON value in canonical form."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
