"""Deployments of Ray Serve whose requests a policy routes; on a real local Ray."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import urllib.request
from collections import Counter
from typing import Any

import pytest
import ray

serve = pytest.importorskip("ray.serve", exc_type=ImportError)

from local_ray import LOCAL_SERVE  # noqa: E402
from rllib_scale.errors import UserError  # noqa: E402
from rllib_scale.live.serve import router_config, router_stats  # noqa: E402

pytestmark = LOCAL_SERVE
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the replicas cannot import it


class Model:
    """Tells which replica it is, after a while."""

    def __call__(self, seconds: float = 0.0) -> int:
        time.sleep(seconds)
        return os.getpid()


class Described:
    """A replica that reports the statistics of its rank, and returns its rank after a while."""

    def __init__(self, stats: list[dict[str, object]]) -> None:
        self.rank = serve.get_replica_context().rank.rank
        self.stats = stats[self.rank]

    def record_routing_stats(self) -> dict[str, object]:
        return self.stats

    def __call__(self, seconds: float = 0.0) -> int:
        time.sleep(seconds)
        return self.rank


def deployed(name: str, config: Any, replicas: int = 2, at_once: int = 1) -> Any:
    options = {"num_replicas": replicas, "max_ongoing_requests": at_once, "ray_actor_options": {"num_cpus": 0.1}}
    made = serve.deployment(request_router_config=config, **options)(Model)
    return serve.run(made.bind(), name=name, route_prefix=None)


def described(name: str, config: Any, stats: list[dict[str, object]], at_once: int = 8) -> Any:
    often = config.model_copy(update={"request_routing_stats_period_s": 0.1})
    options = {"num_replicas": len(stats), "max_ongoing_requests": at_once, "ray_actor_options": {"num_cpus": 0.1}}
    made = serve.deployment(request_router_config=often, **options)(Described)
    return serve.run(made.bind(stats), name=name, route_prefix=None)


def ask_until_it_has_reported(handle: Any) -> None:
    for _ in range(300):
        handle.remote().result(timeout_s=30)
        time.sleep(0.1)


def shown_by_ray(metric: str) -> bool:
    """Whether Prometheus would find a metric at the endpoints of the nodes; it is brought there in seconds."""
    for _ in range(60):
        pages = [
            urllib.request.urlopen(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics").read()
            for node in ray.nodes()
        ]
        if any(metric.encode() in page for page in pages):
            return True
        time.sleep(0.5)
    return False


def test_sticky_keeps_a_session_on_its_replica() -> None:
    handle = deployed("sticky", router_config("sticky", demand={"compute_gflop": 2.0, "moved_gb": 1000.0}))
    mine, yours = handle.options(session_id="mine"), handle.options(session_id="yours")
    first = mine.remote().result()
    assert {mine.remote().result() for _ in range(20)} == {first}
    busy = mine.remote(2.0)
    other = yours.remote().result()
    assert other != first, "a session without a replica takes the one that is free"
    waiting = [mine.remote() for _ in range(4)]
    assert {yours.remote().result() for _ in range(5)} == {other}, "who waits is in nobody's way"
    assert {reply.result() for reply in [busy, *waiting]} == {first}
    stats = router_stats(handle)
    assert stats.servers == 2
    assert stats.started >= 32
    assert (stats.dropped, stats.rejected) == (0, 0)
    assert shown_by_ray("rllib_scale_started")
    serve.delete("sticky")


def test_a_gate_holds_a_call_though_its_replica_has_places() -> None:
    config = router_config("lmetric:gate=1", replica={"kv_tokens": 1000}, demand={"prompt_tokens": 600})
    handle = deployed("held", config, replicas=1, at_once=8)
    mine, yours = handle.options(session_id="mine"), handle.options(session_id="yours")
    first, asked = mine.remote(2.0), time.monotonic()
    held = yours.remote()
    assert first.result() == held.result(), "one replica"
    assert time.monotonic() - asked > 1.9, "600 and 600 tokens do not fit 1000 until it is idle"
    assert router_stats(handle).wait_mean_s > 0.1
    serve.delete("held")


def test_a_guard_takes_over_from_a_router_that_uses_one_replica_of_two() -> None:
    guard = {"scheduler": "least-loaded", "window": 10}
    config = router_config("live.problems:OnlySlowest", demand={"compute_gflop": 0.1}, guard=guard, state="handle")
    handle, used = deployed("guarded", config), []
    for _ in range(20):
        used.append({reply.result() for reply in [handle.remote(0.05) for _ in range(4)]})
        if len(used[-1]) == 2:
            break
    assert len(used[0]) == 1
    assert len(used[-1]) == 2
    assert router_stats(handle).guard == "took over"
    assert shown_by_ray("rllib_scale_guard{")
    serve.delete("guarded")


def test_whatever_is_wrong_each_request_is_told() -> None:
    """Named as a string nothing is checked before, and no replica may be large enough: no request waits for ever."""
    handle = deployed("large", router_config("sticky", memory_gb=16.0, demand={"memory_gb": 17.0}), replicas=1)
    with pytest.raises(UserError, match=r"request: memory_gb 17: the largest replica has 16"):
        handle.remote().result(timeout_s=30)
    serve.delete("large")
    config = router_config("sticky").model_copy(update={"request_router_kwargs": {"scheduler": "stickie"}})
    handle = deployed("wrong", config, replicas=1)
    with pytest.raises(UserError, match="stickie"):
        handle.remote().result(timeout_s=30)
    serve.delete("wrong")


@pytest.mark.slow
def test_a_wrong_report_of_a_replica_fails_each_request() -> None:
    handle = described("odd", router_config("sticky"), [{"compute_gflops": -1.0, "of others": None}])
    with pytest.raises(UserError, match=r"record_routing_stats of replica \w+: compute_gflops: .*\(got -1\.0\)"):
        ask_until_it_has_reported(handle)
    serve.delete("odd")
    handle = deployed("places", router_config("sticky"), replicas=1, at_once=2000)
    with pytest.raises(UserError, match=r"max_ongoing_requests 2000; valid: at most 1024"):
        handle.remote().result(timeout_s=30)
    serve.delete("places")


@pytest.mark.slow
def test_a_gate_counts_with_the_memory_that_each_replica_reports() -> None:
    """Four calls of 1,500 tokens: room for three on one replica and for one on the other."""
    config = router_config(
        "lmetric:gate=1", replica={"kv_tokens": 1000}, demand={"prompt_tokens": 1500}, active_for_s=0.0
    )
    handle = described("unequal", config, [{"kv_tokens": 4600}, {"kv_tokens": 1600}])
    found = Counter[int]()
    for _ in range(100):
        with contextlib.suppress(UserError):  # neither has reported, and a call is too large
            handle.remote().result(timeout_s=30)
            found = Counter([reply.result() for reply in [handle.remote(1.0) for _ in range(4)]])
        if found == {0: 3, 1: 1}:
            break
        time.sleep(0.1)
    assert found == {0: 3, 1: 1}
    serve.delete("unequal")
