"""State and problem as one table of addresses and shapes, from which compiled code finds all arrays.

Handing an array to compiled code takes numba 0.2 to 0.3 us, and there are three dozen of them: more than the work of a
call for a few environments. A table of addresses is one array.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import from_dtype, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, models, register_model
from numba.np.arrayobj import make_array, populate_array

from rllib_scale.simulator.state import Problem, State, arrays_in

MOST_DIMENSIONS = 3
STATE_ARRAYS, PROBLEM_ARRAYS = (
    {name: (kind, len(dimensions)) for name, (dimensions, kind, _) in arrays_in(layout).items()}
    for layout in (State, Problem)
)
"""Type and number of dimensions of each array, in the order of State and of Problem."""


def handles(state: State, problem: Problem) -> np.ndarray:
    """(A, 4) int64: address and shape of each array, C-contiguous, of state and problem.

    It is good as long as they live: keep both, and make a new one when one of their arrays is replaced.
    """
    return handles_of((*state, *problem), (*STATE_ARRAYS.items(), *PROBLEM_ARRAYS.items()))


def handles_of(arrays: Iterable[np.ndarray], kinds: Iterable[tuple[str, tuple[np.dtype[Any], int]]]) -> np.ndarray:
    """The table of arrays, each with its name, type and dimensions."""
    rows = []
    for array, (name, kind) in zip(arrays, kinds, strict=True):
        if (array.dtype, array.ndim) != kind or not array.flags.c_contiguous:
            raise TypeError(f"{name}: compiled code takes a C-contiguous array of {kind[1]} dimensions of {kind[0]}")
        rows.append((array.ctypes.data, *array.shape, *(1,) * (MOST_DIMENSIONS - array.ndim)))
    return np.array(rows, dtype=np.int64)


class Handle(types.Type):
    """The address of a table's rows, in compiled code. An array is read from there where it is used.

    Passing a few dozen arrays from function to function, eight numbers each, took most of the time of compiling.

    Args:
        name: of what the arrays make up.
        arrays: type and dimensions of each, in the order of the rows.
    """

    def __init__(self, name: str, arrays: dict[str, tuple[np.dtype[Any], int]]) -> None:
        self.row_of = {array: row for row, array in enumerate(arrays)}
        self.kinds = [types.Array(from_dtype(dtype), dimensions, "C") for dtype, dimensions in arrays.values()]
        # A type is its name: one for other arrays is another type, and names other machine code.
        content = hashlib.sha256(repr([*zip(arrays, self.kinds, strict=True)]).encode()).hexdigest()[:16]
        super().__init__(f"Handle of {name} {content}")


register_model(Handle)(models.OpaqueModel)


@infer_getattr
class _ArrayOf(AttributeTemplate):
    key = Handle

    def generic_resolve(self, handle: Handle, array: str) -> Any:
        return handle.kinds[handle.row_of[array]] if array in handle.row_of else None


@lower_getattr_generic(Handle)
def _read_array(context: Any, builder: Any, handle: Handle, address: Any, name: str) -> Any:
    """Code that reads an array's address and shape from its row."""
    row, kind = handle.row_of[name], handle.kinds[handle.row_of[name]]
    word = context.get_value_type(types.intp)
    cells = builder.bitcast(address, word.as_pointer())

    def cell(column: int) -> Any:
        value = builder.load(builder.gep(cells, [ir.Constant(word, row * (MOST_DIMENSIONS + 1) + column)]))
        # No call changes its table, so that a value once read is good until the end.
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    array = make_array(kind)(context, builder)
    shape = [cell(1 + d) for d in range(kind.ndim)]
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [ir.Constant(word, size)]
    for extent in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], extent))
    data = builder.inttoptr(cell(0), array.data.type)
    populate_array(array, data, shape, strides, ir.Constant(word, size), None)
    return array._getvalue()


def arrays_from(name: str, arrays: dict[str, tuple[np.dtype[Any], int]], first: int) -> Any:
    """A compiled function from a table to the `Handle` of its rows from `first` on."""
    result = Handle(name, arrays)

    @intrinsic
    def from_table(typing_context: Any, table: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            cells = make_array(signature.args[0])(context, builder, arguments[0]).data
            at = ir.Constant(context.get_value_type(types.intp), first * (MOST_DIMENSIONS + 1))
            return builder.bitcast(builder.gep(cells, [at]), context.get_value_type(result))

        return result(table), generate

    return from_table


state_of = arrays_from("State", STATE_ARRAYS, 0)
problem_of = arrays_from("Problem", PROBLEM_ARRAYS, len(STATE_ARRAYS))
