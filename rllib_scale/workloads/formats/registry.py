"""The formats that workloads are imported from, by name."""

from __future__ import annotations

from rllib_scale import plugins
from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import copilot, csv_files, kv_cache_tester, langgraph, tracelab, wfformat
from rllib_scale.workloads.formats.base import Format

_MODULES = (kv_cache_tester, copilot, tracelab, wfformat, langgraph, csv_files)
FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _MODULES}


def find_format(name: str) -> Format:
    """The format of a name, of an import path or of an entry point.

    Raises:
        UserError: there is none; the message names those there are.
    """
    if name in FORMATS:
        return FORMATS[name]
    found = plugins.load("format", name, list(FORMATS))[0]
    if not isinstance(found, Format):
        raise UserError(f"format {name!r}: is a {type(found).__name__}; valid: a {Format.__module__}.Format")
    return found
