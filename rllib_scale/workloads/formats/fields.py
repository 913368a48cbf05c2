"""Field types of the models of records: numbers, times and keys with several names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from rllib_scale.config.base import MAX_NUMBER


class Record(BaseModel):
    """A JSON object of a source; keys that the model does not have are counted, see `Progress.unread`."""

    model_config = ConfigDict(strict=True, extra="allow")


def either(*names: str, **more: Any) -> Any:
    """A field that a source has under one of these names."""
    return Field(validation_alias=AliasChoices(*names), **more)


R = TypeVar("R", bound=BaseModel)
Name = str | int
"""An id."""
Amount = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
"""A time in any unit, or bytes."""
Whole = Annotated[int, Field(ge=0, le=int(MAX_NUMBER))]
"""Tokens, bytes."""
BlockSize = Annotated[int, Field(ge=1, le=int(MAX_NUMBER))]
"""Tokens of the block of a hash."""


def _since_1970(value: Any) -> float:
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"must be a time such as 2026-06-01T05:40:20Z (got {value!r:.60})") from None


def _digits(value: Any) -> Any:
    """An integer that JSON has as a text, as protocol buffers write 64 bits, or as a float, as tables do."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value


def _clock(value: Any) -> int | float:
    value = _digits(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return round(_since_1970(value) * 1e6) * 1000


Timestamp = Annotated[float, BeforeValidator(_since_1970)]
"""Seconds since 1970 of an ISO 8601 time, UTC by default."""
Clock = Annotated[int | float, BeforeValidator(_clock)]
"""Nanoseconds since 1970 of such a time, or a number since 1970 in a unit that `unit_s` gives."""
Digits = Annotated[Whole, BeforeValidator(_digits)]
"""`Whole`, or its digits as a text."""
