"""The one way that functions of this package are compiled, and cached on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba

ROOMS = ("workloads", "observation", "simulator", "schedulers", "bounds", "networks", "rl")
"""Folders that hold compiled functions, or constants that are compiled into them."""
FAST = frozenset({"reassoc", "contract", "nsz", "arcp"})
"""Sums may be reordered into vector lanes: the last bits differ from machine to machine, never between two calls."""


def sources_stamp(package: Path) -> str:
    """Digest of every file that machine code may have been made from, by path and content."""
    digest = hashlib.sha256()
    for path in sorted(p for room in ROOMS for p in (package / room).rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


SOURCES = sources_stamp(Path(__file__).parent)


def compiled(
    function: Callable[..., Any],
    allocates: bool = False,
    inline: bool | None = None,
    fastmath: Any = False,
    internal: bool = False,
) -> Any:
    """Compile on first call, or take the machine code of an earlier process.

    Args:
        function: to be compiled.
        allocates: it makes arrays of its own. All others work in arrays that outlive the call, and do without counting
            references to them: the count would take half the time of a simulator's step.
        inline: into every compiled function that calls it; by default where it does not allocate. A function that is
            called instead is another one in the process that compiles it than in those that take the cached code, and
            may round in another order.
        fastmath: False is strict IEEE, by which the same seed gives the same episode on every machine; or numba's
            flags, such as FAST.
        internal: it is called by compiled functions only. The code that takes Python's arguments apart is left out: a
            third of the time of compiling the simulator.
    """
    inline = not allocates if inline is None else inline
    dispatcher = numba.njit(
        cache=True,
        nogil=True,
        error_model="numpy",
        forceinline=inline,
        fastmath=fastmath,
        _nrt=allocates,
        no_cfunc_wrapper=True,
        no_cpython_wrapper=internal,
    )(function)
    # numba looks at a function's own file alone: without this, a change of reward.py would leave the old reward
    # inside the cached kernel.
    index = dispatcher._cache._cache_file
    index._source_stamp = (index._source_stamp, SOURCES)
    return _Internal(dispatcher) if internal else dispatcher


class _Internal:
    """What compiled code sees of a function, and Python does not: to call it from there would end the process."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher  # its type refers to it weakly
        self._numba_type_ = numba.types.Dispatcher(dispatcher)
        self.__doc__ = dispatcher.__doc__


internal = partial(compiled, internal=True)
"""For what compiled functions alone call."""
rare = partial(internal, inline=False)
"""For what few episodes need: called, not inlined, which takes longer to run and less to compile."""


class Direct:
    """A compiled function that is always called with the same types.

    numba finds out the types of all arguments at each call: for the two dozen arrays of a batch of environments 3.4 us,
    four times what the call takes otherwise. Here they are found out at the first call and must not change: arrays of
    the same dtype and number of dimensions, C-contiguous.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._call: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """Call the machine code itself."""
        if self._call is None:
            types = tuple(numba.typeof(argument) for argument in args)
            self._function.compile(types)
            self._call = self._function.overloads[types].entry_point
        return self._call(*args)
