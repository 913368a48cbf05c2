"""Functions that a server can run, and wrappers that look like the function itself to LangGraph.

LangGraph reads the name, the signature and the type hints of a node, and passes `config` and other objects to a
node that asks for them. A node on a server gets the part of `config` that can travel. Objects that talk to the running
graph (a stream writer, a store, `interrupt`) cannot leave the driver, and are refused when the node is declared.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import Any

from rllib_scale.code_cache import codes
from rllib_scale.errors import UserError

OF_THE_GRAPH = ("writer", "store", "runtime")
"""Parameters for which LangGraph passes objects of the running graph."""
IN_THE_GRAPH = frozenset({"interrupt", "get_stream_writer", "get_store", "get_config"})
"""Functions of LangGraph that find the running graph in their own process."""
LANGGRAPH = "langgraph"


def check_task(function: Any, name: str) -> None:
    """Refuse a function that a server cannot run to a result.

    Raises:
        UserError: it is not callable, or returns a coroutine or a generator.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function):
        raise UserError(
            f"task {name}: {type(function).__name__} is not callable; valid: a function, `.invoke` of a Runnable"
        )
    for each in (function,) if isinstance(function, type) else (function, function.__call__):
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            raise UserError(f"task {name}: is async, and a server waits for a result; valid: asyncio.run in a function")
        if inspect.isgeneratorfunction(each):
            raise UserError(f"task {name}: is a generator; valid: a function that returns a list")


def name_of(function: Any) -> str:
    """The name that LangGraph gives a node without one."""
    return str(getattr(function, "__name__", type(function).__name__))


def like(function: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with the name, signature and hints of `function`, as a node of a graph.

    Raises:
        UserError: the node would need the running graph.
    """
    name = name_of(function)
    try:
        parameters = set(inspect.signature(function).parameters)
    except ValueError:  # of a function in C
        parameters = set()
    needed = [*sorted(parameters & set(OF_THE_GRAPH)), *sorted(_used(function))]
    if needed:
        raise UserError(
            f"node {name}: needs {needed[0]}, which works in the graph's process alone; valid: state and config, and "
            f"{needed[0]} in a node that is not on the cluster"
        )

    def node(*arguments: Any, **keywords: Any) -> Any:
        if isinstance(keywords.get("config"), dict):
            keywords["config"] = _portable(keywords["config"])
        return call(*arguments, **keywords)

    without_hints = isinstance(function, type | functools.partial)  # as LangGraph reads them
    looks_like: Any = function if without_hints or inspect.isroutine(function) else function.__call__
    functools.update_wrapper(node, looks_like, updated=())
    node.__name__ = name
    if without_hints:
        node.__annotations__ = {}
    return node


def _portable(config: dict[str, Any]) -> dict[str, Any]:
    """A node's config without callbacks and what LangGraph keeps in it for itself."""
    kept = {key: value for key, value in config.items() if key != "callbacks"}
    if isinstance(own := kept.get("configurable"), dict):
        kept["configurable"] = {key: value for key, value in own.items() if not key.startswith("__")}
    return kept


def _used(function: Any) -> set[str]:
    """Functions of IN_THE_GRAPH that a function calls, itself or by functions that it names."""
    found: set[str] = set()
    ahead, seen = [function], set()
    while ahead:
        each: Any = ahead.pop()
        each = each.func if isinstance(each, functools.partial) else each
        each = each if inspect.isroutine(each) or isinstance(each, type) else each.__call__
        each = inspect.unwrap(getattr(each, "__func__", each))
        if not isinstance(each, FunctionType) or each in seen:
            continue
        seen.add(each)
        names = {name for code in codes(each.__code__) for name in code.co_names}
        named = [each.__globals__[name] for name in names if name in each.__globals__]
        named += [cell.cell_contents for cell in each.__closure__ or () if cell != CellType()]
        of_langgraph = [value for value in named if _module_of(value).partition(".")[0] == LANGGRAPH]
        found |= {name_of(value) for value in of_langgraph} & IN_THE_GRAPH
        if any(isinstance(value, ModuleType) for value in of_langgraph) or any(
            name.partition(".")[0] == LANGGRAPH for name in names
        ):  # `types.interrupt`, or an import in the function
            found |= names & IN_THE_GRAPH
        ahead += [value for value in named if isinstance(value, FunctionType) and value not in of_langgraph]
    return found


def _module_of(value: Any) -> str:
    """The module of a function or class, or a module's own name."""
    return str((value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")) or "")
