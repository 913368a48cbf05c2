"""Nodes on a cluster in a LangGraph: what LangGraph makes of the function alone, or a refusal where it is declared."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Literal, TypedDict

import langgraph.types
import pytest
import ray
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import Command, StreamWriter, interrupt

from live.problems import TIERS
from local_ray import LOCAL_RAY
from rllib_scale import live
from rllib_scale.errors import UserError

pytestmark = LOCAL_RAY
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the servers cannot import it


@pytest.fixture(scope="module")
def cluster(local_ray: None) -> Iterator[live.Cluster]:
    with live.Cluster(tiers=TIERS) as running:
        yield running


class State(TypedDict, total=False):
    question: str
    answers: Annotated[list[str], operator.add]


class Narrow(TypedDict, total=False):
    question: str


def plain(state: State) -> State:
    return {"answers": [f"{state['question']}: {sorted(state)}"]}


def without_hints(state):  # type: ignore[no-untyped-def]
    return {"answers": [f"{state['question']}: {sorted(state)}"]}


def narrow(state: Narrow) -> State:
    return {"answers": [f"{sorted(state)}"]}


def with_config(state: State, config: RunnableConfig) -> State:
    own = config["configurable"]
    return {"answers": [f"{own['model']} {own['thread_id']} {config['metadata']['langgraph_node']} {config['tags']}"]}


def with_any_config(state, config):  # type: ignore[no-untyped-def]
    return {"answers": [config["configurable"]["model"]]}


def goes_on(state: State) -> Command[Literal["after"]]:
    return Command(update={"answers": ["a"]}, goto="after")


def fails(state: State) -> State:
    raise LookupError("its own")


def more(state: State, *, times: int, suffix: str = "") -> State:
    return {"answers": [state["question"] * times + suffix]}


def with_previous(state: State, previous: Any) -> State:
    return {"answers": [str(previous)]}


class Agent:
    def __init__(self, name: str = "agent") -> None:
        self.name = name

    def step(self, state: Narrow, config: RunnableConfig) -> State:
        return {"answers": [f"{self.name} {sorted(state)} {config['configurable']['model']}"]}

    @staticmethod
    def alone(state: State) -> State:
        return {"answers": ["static"]}

    def __call__(self, state: Narrow) -> State:
        return {"answers": [f"{self.name} {sorted(state)}"]}


class Answer(dict):  # type: ignore[type-arg]
    def __init__(self, state: State) -> None:
        super().__init__(answers=[state["question"]])


LIKE_ALONE: dict[str, Callable[..., Any]] = {
    "function": plain,
    "without hints": without_hints,
    "lambda": lambda state: {"answers": [state["question"]]},
    "input schema": narrow,
    "config": with_config,
    "config without hint": with_any_config,
    "command": goes_on,
    "exception": fails,
    "partial": functools.partial(more, times=2, suffix="!"),
    "previous": with_previous,
    "method": Agent("bound").step,
    "static method": Agent.alone,
    "callable": Agent("called"),
    "class": Answer,
    "invoke of a runnable": RunnableLambda(plain).invoke,
}


async def is_async(state: State) -> State:
    return {}


def yields(state: State) -> Iterator[State]:
    yield {}


async def yields_async(state: State) -> AsyncIterator[State]:
    yield {}


class AsyncAgent:
    async def __call__(self, state: State) -> State:
        return {}


def with_writer(state: State, writer: StreamWriter) -> State:
    return {}


def with_store(state: State, *, store: BaseStore) -> State:
    return {}


def with_runtime(state: State, runtime: Runtime) -> State:
    return {}


def asks(state: State) -> State:
    return {"answers": [interrupt("which?")]}


def asks_by_module(state: State) -> State:
    return {"answers": [langgraph.types.interrupt("which?")]}


def asks_by_import(state: State) -> State:
    from langgraph.types import interrupt as ask

    return {"answers": [ask("which?")]}


def asks_in_another(state: State) -> State:
    return asks(state)


def asks_inside(state: State) -> State:
    return {"answers": [(lambda: interrupt("which?"))()]}


def streams(state: State) -> State:
    get_stream_writer()("piece")
    return {}


REFUSED: dict[str, tuple[Any, str]] = {
    "async": (is_async, "task is_async: is async"),
    "generator": (yields, "task yields: is a generator"),
    "async generator": (yields_async, "task yields_async: is async"),
    "async callable": (AsyncAgent(), "task AsyncAgent: is async"),
    "partial of async": (functools.partial(is_async), "task partial: is async"),
    "partial of an async callable": (functools.partial(AsyncAgent()), "task partial: is async"),
    "partial of a generator": (functools.partial(yields), "task partial: is a generator"),
    "runnable": (RunnableLambda(plain), "RunnableLambda is not callable; valid: a function, `.invoke`"),
    "writer": (with_writer, "node with_writer: needs writer"),
    "store": (with_store, "node with_store: needs store"),
    "runtime": (with_runtime, "node with_runtime: needs runtime"),
    "interrupt": (asks, "node asks: needs interrupt"),
    "interrupt of a module": (asks_by_module, "needs interrupt"),
    "interrupt by an import": (asks_by_import, "needs interrupt"),
    "interrupt in a helper": (asks_in_another, "needs interrupt"),
    "interrupt in a lambda": (asks_inside, "needs interrupt"),
    "interrupt in a partial": (functools.partial(asks), "needs interrupt"),
    "stream writer": (streams, "node streams: needs get_stream_writer"),
}


def outcome(node: Any) -> Any:
    """What a graph with this node, which is given no name, returns or raises."""
    graph = StateGraph(State)
    try:
        graph.add_node(node)
        (name,) = graph.nodes
        graph.add_node("after", lambda state: {"answers": ["after"]})
        graph.add_edge(START, name)
        graph.add_edge("after", END)
        compiled = graph.compile(checkpointer=InMemorySaver())
        config: RunnableConfig = {"configurable": {"thread_id": "7", "model": "small"}, "tags": ["t"]}
        return name, compiled.invoke({"question": "life", "answers": ["given"]}, config)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", LIKE_ALONE)
def test_a_node_gives_what_the_function_alone_gives(cluster: live.Cluster, kind: str) -> None:
    alone = outcome(LIKE_ALONE[kind])
    assert outcome(cluster.node(LIKE_ALONE[kind], memory_gb=2)) == alone
    assert kind == "exception" or isinstance(alone[0], str), alone


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_server_cannot_do_is_refused_where_it_is_declared(cluster: live.Cluster, kind: str) -> None:
    function, message = REFUSED[kind]
    with pytest.raises(UserError, match=message) as error:
        cluster.node(function)
    assert "; valid: " in str(error.value)


def test_nodes_without_names_of_two_functions_are_two_nodes(cluster: live.Cluster) -> None:
    graph = StateGraph(State)
    for function in (plain, narrow):
        graph.add_node(cluster.node(function))
    assert list(graph.nodes) == ["plain", "narrow"]


def test_what_cannot_travel_is_an_error_of_its_task_alone(cluster: live.Cluster) -> None:
    node = cluster.node(with_any_config)
    with pytest.raises(TypeError, match="pickle"):
        node({}, config={"configurable": {"model": sys.stdout}})
    assert node({}, config={"configurable": {"model": "small"}}) == {"answers": ["small"]}
