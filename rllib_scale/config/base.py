"""What every config model shares: strictness, number types, and the hash of a config."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

MIN_SERVERS = 4
"""Smallest cluster a tier ratio is scaled to."""
MAX_SERVERS = 1_000_000
"""Largest one; beyond it an observation alone takes more than 20 MB."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
MaskMode = Literal["none", "feasible"]
DecisionMode = Literal["argmax", "sample"]


class Model(BaseModel):
    """Base of every config model: unknown keys are refused and values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


YOUNGER: dict[str, JsonValue] = {"younger": True}
"""`json_schema_extra` of a field that came after version 0.1, so that `lasting` leaves it out at its default."""


def lasting(model: BaseModel) -> dict[str, Any]:
    """A model as JSON, without the fields that are YOUNGER and at their default.

    What is hashed by it keeps its hash when a setting is added, and is found again by it.
    """
    content = model.model_dump(mode="json")
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if field.json_schema_extra == YOUNGER and value == field.get_default(call_default_factory=True):
            del content[name]
        elif isinstance(value, BaseModel):
            content[name] = lasting(value)
        elif isinstance(value, tuple):
            content[name] = [
                lasting(item) if isinstance(item, BaseModel) else plain
                for item, plain in zip(value, content[name], strict=True)
            ]
    return content


def digest(content: Any) -> str:
    """Twelve hex digits of the SHA-256 of a JSON value in canonical form."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
