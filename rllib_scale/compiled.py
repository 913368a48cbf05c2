"""Compilation of this package's functions by numba, with a cache on disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
from numba.core import codegen, compiler, event

from rllib_scale.code_cache import cache_of, say_once

FAST = frozenset({"reassoc", "contract", "nsz", "arcp"})
"""Sums may be reordered into vector lanes: the last bits differ between machines, never between two calls."""


class _Notice(event.Listener):
    """Says once that functions are compiled, not loaded, as the command is silent meanwhile."""

    def on_start(self, event: event.Event) -> None:
        """Say it for the first function of this package."""
        if event.data["dispatcher"].py_func.__module__.startswith(f"{__package__}."):
            say_once(
                "Compiling for this processor: up to a minute, once after installation "
                "(`rllib-scale doctor --compile` does it ahead)"
            )

    def on_end(self, event: event.Event) -> None:
        """Nothing to say."""


event.register("numba:compile", _Notice())


class _Optimised(codegen.JITCodeLibrary):
    """Code that is linked into that of its callers: no machine code is made of it alone."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """Itself: numba registers the environment of finished machine code there, and this has none of its own."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing to register."""


class _Linked(_Optimised):
    """The same, optimised as a part of its callers only."""

    def _optimize_final_module(self) -> None:
        """Not before it is linked."""


class _OptimisedCompiler(compiler.Compiler):
    """Compiles to `_Optimised`."""

    library: type[codegen.JITCodeLibrary] = _Optimised

    def define_pipelines(self) -> Any:
        """Numba's own pipeline, into that library."""
        self.state.library = self.library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


class _LinkedCompiler(_OptimisedCompiler):
    """Compiles to `_Linked`."""

    library = _Linked


def compiled(
    function: Any,
    allocates: bool = False,
    inline: bool | None = None,
    fastmath: Any = False,
    internal: bool = False,
    per_constant: bool = False,
) -> Any:
    """Compile a function on its first call, or load machine code that an earlier process cached.

    Args:
        function: function to compile.
        allocates: whether it makes arrays. A function that does not, counts no references to arrays: the count would
            take half the time of a simulator's step.
        inline: whether it is inlined into its compiled callers; by default if it does not allocate. A called function
            that is not internal may round in another order in the process that compiles it than in those that load it.
        fastmath: False for strict IEEE, by which a seed gives the same episode on every machine, or numba's flags, such
            as FAST.
        internal: whether only compiled functions call it. The code that unpacks Python's arguments is left out: a third
            of the time of compiling the simulator.
        per_constant: whether it is compiled again for each constant among its arguments, as numba does it. What is
            inlined knows its constants in any case, but after its loops were made.
    """
    inline = not allocates if inline is None else inline
    # Code whose sums may be reordered is optimised by itself, so that its callers do not decide how it rounds.
    pipeline = (_OptimisedCompiler if fastmath else _LinkedCompiler) if internal else compiler.Compiler
    dispatcher = numba.njit(
        pipeline_class=pipeline,
        nogil=True,
        error_model="numpy",
        forceinline=inline,
        fastmath=fastmath,
        _nrt=allocates,
        no_cfunc_wrapper=True,
        no_cpython_wrapper=internal,
    )(function)
    if not per_constant:
        dispatcher.get_call_template = partial(_call_of_any_value, dispatcher.get_call_template)
    if not internal:
        dispatcher._cache = cache_of(function)
    return _Internal(dispatcher) if internal else dispatcher


def _call_of_any_value(get_call_template: Callable[..., Any], args: Any, kws: Any) -> Any:
    """The called function by the types of the arguments, without the values of those that are constants."""
    return get_call_template([*map(numba.types.unliteral, args)], kws)


class _Internal:
    """A function that only compiled code may call: a call from Python would crash the process."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher  # its type refers to it weakly
        self._numba_type_ = numba.types.Dispatcher(dispatcher)
        self.__doc__ = dispatcher.__doc__


internal = partial(compiled, internal=True)
"""Decorator of functions that only compiled functions call."""
rare = partial(internal, inline=False)
"""Decorator of functions that few episodes need: calls are slower than inlined code, and compile faster."""


class Direct:
    """A compiled function whose argument types are those of its first call.

    numba determines the types of all arguments at each call: 3.4 us for the two dozen arrays of a batch of
    environments, four times as long as the rest of the call. Arrays of later calls must have the same dtype and number
    of dimensions, and be C-contiguous.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._call: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """Call the machine code directly."""
        if self._call is None:
            types = tuple(numba.typeof(argument) for argument in args)
            self._function.compile(types)
            self._call = self._function.overloads[types].entry_point
        return self._call(*args)
