"""The one way the simulator's functions are compiled, and cached on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

_SOURCES = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()


def compiled(function: Callable[..., Any], allocates: bool = False) -> Any:
    """Compile on first call, or take the machine code of an earlier process.

    Arithmetic is strict IEEE (no fastmath): the same seed gives the same episode on every machine.

    Args:
        function: to be compiled; inlined into every compiled function that calls it.
        allocates: it makes arrays of its own. All others work in the arrays of the engine, which outlive the call, and
            do without counting references to them: the count would take half the time of a step.
    """
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=not allocates, _nrt=allocates)(
        function
    )
    # numba looks at a function's own file alone: without this, a change of reward.py would leave the old reward
    # inside the cached kernel.
    index = dispatcher._cache._cache_file
    index._source_stamp = (index._source_stamp, _SOURCES)
    return dispatcher
