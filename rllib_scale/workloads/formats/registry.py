"""The formats that workloads are imported from, by name."""

from __future__ import annotations

from rllib_scale import plugins
from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import (
    copilot,
    csv_files,
    dynamo,
    kv_cache_tester,
    mooncake,
    otel,
    scaffolding,
    tracelab,
    wfformat,
)
from rllib_scale.workloads.formats.base import Format

_MODULES = (kv_cache_tester, copilot, tracelab, mooncake, dynamo, otel, scaffolding, wfformat, csv_files)
FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _MODULES}


def find_format(name: str) -> Format:
    """The format with this name, import path or entry point.

    Raises:
        UserError: it does not exist; the message lists the valid names.
    """
    if name in FORMATS:
        return FORMATS[name]
    found = plugins.load("format", name, list(FORMATS))[0]
    if not isinstance(found, Format):
        raise UserError(f"format {name!r}: is a {type(found).__name__}; valid: a {Format.__module__}.Format")
    return found
