"""Workflows of callables on a real local Ray: results, exceptions, cancellation, time-outs, a graph's node."""

from __future__ import annotations

import concurrent.futures
import gc
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from live.problems import TIERS, NamesNoTask, resident_mb
from local_ray import LOCAL_RAY
from networks.observations import random_network
from rllib_scale import live
from rllib_scale.config import TierConfig, TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.policies.policy import TrainedPolicy

pytestmark = LOCAL_RAY
for _module in (__name__, resident_mb.__module__):
    ray.cloudpickle.register_pickle_by_value(sys.modules[_module])  # the servers cannot import it

DOCUMENT = (Path(__file__).parents[2] / "docs" / "live.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cluster(local_ray: None) -> Iterator[live.Cluster]:
    with live.Cluster(tiers=TIERS) as running:
        yield running


def add(*numbers: float, more: float = 0) -> float:
    return sum(numbers) + more


def joined(*texts: str, end: object = "") -> str:
    return "".join(texts) + str(end) if end else f"({''.join(texts)})"


def on_server(value: object = None) -> str:
    return str(ray.get_runtime_context().get_actor_id())


def broken(value: object = None) -> None:
    raise LookupError("the task's own")


def spin(seconds: float, began: str | None = None) -> None:
    if began:
        Path(began).touch()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def run_until(there: str) -> None:
    while not Path(there).exists():
        time.sleep(0.01)


def sleep_outside_of_python(began: str, seconds: float) -> None:
    Path(began).touch()
    time.sleep(seconds)


def await_that(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_workflow_of_functions(cluster: live.Cluster) -> None:
    one = cluster.task(add, compute_gflop=2, memory_gb=1, timeout_s=600)
    a, b = one(1, 2), one(10)
    c = cluster.task(add)(a, b, more=a)
    assert cluster.gather(c, b) == [16, 10]
    assert (a.done(), a.result()) == (True, 3), "what was needed has a result, too"
    assert c.flow is a.flow, "one workflow"
    assert c.flow is not None
    assert c.flow.edges.tolist() == [[0, 2], [1, 2]]
    later = cluster.task(add)(c, 1)
    assert later.result() == 17, "of a workflow that has ended"
    assert cluster.task(joined)(*(cluster.task(joined)(text) for text in "xyz"), end=later).result() == "(x)(y)(z)17"
    backend = cluster.backend
    kept = (backend.outputs, backend.failed, backend.inbox.deadlines, backend.overheads_s, backend.flows)
    assert not any(kept), "nothing is kept of a workflow that has ended"
    stats = cluster.stats()
    assert (stats.servers, stats.waiting, stats.running, stats.guard) == (2, 0, 0, "none")
    assert stats.started == stats.ended == backend.engine.num_started >= 8
    assert stats.decisions >= stats.started
    assert stats.wait_mean_s >= 0
    assert stats.round_mean_s > 0


def test_the_demand_decides_where_it_runs(cluster: live.Cluster, tmp_path: Path) -> None:
    """By fastest-idle to the fast one, and so does what fits no other."""
    first = cluster.task(on_server)().result()
    assert cluster.task(on_server, memory_gb=12)().result() == first
    full = [cluster.task(run_until)(str(tmp_path / "ended")).submit() for _ in range(2)]
    assert cluster.task(on_server, memory_gb=1)().result() != first
    (tmp_path / "ended").touch()
    cluster.gather(*full)


def test_an_exception_is_the_tasks_own_and_fails_what_needs_it(cluster: live.Cluster) -> None:
    bad = cluster.task(broken)(1)
    after, apart = cluster.task(add)(bad), cluster.task(add)(4)
    for future in (bad, after):
        with pytest.raises(LookupError, match="the task's own") as caught:
            future.result()
        assert "in broken" in caught.value.__notes__[0]
    assert isinstance(bad.exception(), LookupError)
    with pytest.raises(LookupError):
        cluster.task(add)(bad, 1).result()  # asked for later
    assert apart.result() == 4


def test_what_cannot_be_packed_is_an_error_of_its_own(cluster: live.Cluster) -> None:
    with pytest.raises(TypeError, match="pickle"):
        cluster.task(add)(threading.Lock()).result()
    assert cluster.task(add)(1).result() == 1, "nothing else was harmed"


def test_cancellation_frees_the_server(cluster: live.Cluster, tmp_path: Path) -> None:
    held = cluster.task(spin, memory_gb=8)
    running = [held(600.0, str(tmp_path / str(number))).submit() for number in range(3)]
    waiting = cluster.task(add)(1, 2)
    dependent = cluster.task(add)(running[0])
    dependent.submit()
    await_that(lambda: len(list(tmp_path.iterdir())) == 3)
    assert all(future.cancel() for future in running)
    for future in (*running, dependent):
        with pytest.raises(concurrent.futures.CancelledError):
            future.result()
    assert waiting.result() == 3
    assert not waiting.cancel(), "it has ended"
    never = cluster.task(add)(1)
    assert never.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        never.result()


def test_a_call_that_cannot_be_interrupted_ends_with_its_server(
    cluster: live.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rllib_scale.live.backend.GRACE_S", 0.5)
    stuck = cluster.task(sleep_outside_of_python, memory_gb=12)(str(tmp_path / "began"), 600.0).submit()
    await_that((tmp_path / "began").exists)
    stuck.cancel()
    after = cluster.task(add, memory_gb=12)(1)
    assert after.result(timeout=60) == 1, "its server is there again"


def test_time_outs(cluster: live.Cluster) -> None:
    future = cluster.task(spin)(0.5)
    with pytest.raises(TimeoutError):
        future.result(timeout=0.01)
    assert future.result() is None, "it went on"
    with pytest.raises(TimeoutError, match=r"task 0 did not end within 0.2 s"):
        cluster.task(spin, timeout_s=0.2)(600.0).result()


def test_what_cannot_be_is_refused_before_anything_starts(cluster: live.Cluster) -> None:
    for demand, why in (
        ({"compute_gflop": 0}, r"compute_gflop: input should be greater than .* \(got 0\)"),
        ({"places": 3}, "fits no server: places is 3, the largest server has max_concurrent 2"),
        ({"labels": ["a10"]}, "fits no server: unknown label 'a10'; valid: none"),
        ({"memory_gb": 17}, "fits no server: memory_gb is 17.0, the largest server has 16.0"),
        ({"output_gb": -1}, r"output_gb: input should be greater than or equal to 0 \(got -1\)"),
        ({"timeout_s": 0}, r"timeout_s: input should be greater than .* \(got 0\)"),
        ({"memory": 1}, "unknown key 'memory'"),
    ):
        with pytest.raises(UserError, match=f"task add: {why}"):
            cluster.task(add, **demand)
    with pytest.raises(UserError, match="task add: argument 0 contains a future"):
        cluster.task(add)([cluster.task(add)(1)])
    policy = TrainedPolicy(random_network(method="ppo"), TrialConfig.of("ppo"), epochs=1)
    with pytest.raises(UserError, match=r"trained at 16 servers and knows no other number \(got 2\)"):
        live.Cluster(policy, tiers=TIERS)
    with pytest.raises(UserError, match="did you mean 'fastest-idle'"):
        live.Cluster("fastest-idel", tiers=TIERS)
    with pytest.raises(UserError, match="dual-price: knows the workload's distribution and load in advance, and"):
        live.Cluster("dual-price", tiers=TIERS)
    with pytest.raises(UserError, match="dual-price:load=1: knows"):
        live.Cluster(tiers=TIERS, guard="dual-price:load=1")


def test_nothing_waits_for_a_cluster_that_does_not_run_or_is_another(cluster: live.Cluster) -> None:
    other = live.Cluster(tiers=TIERS)
    with pytest.raises(UserError, match="it does not run"):
        other.task(add)
    with other:
        late = other.task(add)(1)
        for ask in (lambda: cluster.gather(late, timeout=60), cluster.task(add)(late).submit):
            with pytest.raises(UserError, match="of another cluster"):
                ask()
    with pytest.raises(UserError, match="it does not run"):
        late.result(timeout=60)


def test_what_waits_for_a_result_goes_on_though_that_is_to_be_made_again(cluster: live.Cluster) -> None:
    """As when another one has found that it is lost: the thread that decides cannot wait for what it has to start."""
    given = cluster.task(add)(1)
    assert given.result() == 1
    busy = [cluster.task(spin)(1.0).submit() for _ in range(3)]
    waits = cluster.task(add)(given, 2).submit()
    cluster.forget(given)
    assert waits.result(timeout=60) == 3
    assert given.result(timeout=60) == 1
    assert [each.result() for each in busy] == [None] * 3


def test_a_scheduler_that_names_no_task_is_an_error_of_every_task(local_ray: None) -> None:
    with live.Cluster(NamesNoTask(), tiers=TIERS) as cluster:
        futures = [cluster.task(add)(k).submit() for k in range(2)]
        for future in futures:
            with pytest.raises(
                UserError, match=r"scheduler NamesNoTask: workflow 0, task 99 cannot start on server 0; exp"
            ):
                future.result()


def test_a_trained_policy_places_and_the_end_of_the_block_awaits_all() -> None:
    policy = TrainedPolicy(random_network(method="scale"), TrialConfig.of(), epochs=1)
    with live.Cluster(policy, tiers=TIERS) as cluster:
        futures = [cluster.task(add)(k).submit() for k in range(6)]
    assert all(future.done() for future in futures)
    assert cluster.backend.engine.num_started == 6


def test_an_exception_in_the_block_cancels_what_runs() -> None:
    def leave() -> None:
        with live.Cluster(tiers=TIERS) as cluster:
            futures.append(cluster.task(spin)(600.0).submit())
            raise KeyError

    futures: list[live.TaskFuture] = []
    with pytest.raises(KeyError):
        leave()
    with pytest.raises(concurrent.futures.CancelledError):
        futures[0].result()


def test_a_node_of_a_graph_is_a_plain_callable(cluster: live.Cluster) -> None:
    """What LangGraph calls with its state; from threads of its own."""

    def llm(state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [*state["messages"], f"answer {len(state['messages'])}"]}

    node = cluster.node(llm, compute_gflop=1, memory_gb=2)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        states = list(threads.map(node, [{"messages": ["a"]}, {"messages": ["b", "c"]}]))
    assert [state["messages"][-1] for state in states] == ["answer 1", "answer 2"]


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL))
def test_the_examples_of_the_document_run(code: str) -> None:
    exec(code, {"__name__": "__main__"})


@pytest.mark.slow
def test_200_000_tasks_take_no_more_memory_than_20_000() -> None:
    """Functions on two servers, in workflows of 100 tasks and one that fails; memory of driver and servers."""
    tiers = (TierConfig(name="actors", count=2, max_concurrent=32, compute_gflops=1.0, memory_gb=8.0),)
    with live.Cluster("price", tiers=tiers) as cluster:
        make, fail, measure = (cluster.task(each, timeout_s=3600) for each in (add, broken, resident_mb))
        used = []
        for batch in range(2000):
            cluster.gather(*(make(k) for k in range(100)))
            assert isinstance(fail().exception(), LookupError)
            if batch in (199, 1999):
                gc.collect()
                used.append(resident_mb() + max(cluster.gather(*(measure() for _ in range(40)))))
    first, last = used
    assert last < 1.1 * first, used
