"""The formats that workloads are imported from, by name: a module and a line below for each."""

from __future__ import annotations

from rllib_scale import plugins
from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import copilot, csv_files, kv_cache_tester, langgraph, tracelab, wfformat
from rllib_scale.workloads.formats.base import Format

_FORMATS: tuple[Format, ...] = (
    kv_cache_tester.FORMAT,
    copilot.FORMAT,
    tracelab.FORMAT,
    wfformat.FORMAT,
    langgraph.FORMAT,
    csv_files.FORMAT,
)
FORMATS: dict[str, Format] = {entry.name: entry for entry in _FORMATS}


def find_format(name: str) -> Format:
    """The format of a name, or of one's own by its import path or entry point.

    Raises:
        UserError: there is none; with those there are.
    """
    if name in FORMATS:
        return FORMATS[name]
    found = plugins.load("format", name, list(FORMATS))[0]
    if not isinstance(found, Format):
        raise UserError(f"format {name!r}: is a {type(found).__name__}; valid: a {Format.__module__}.Format")
    return found
