"""A policy behind Ray Serve's HTTP, and deployments whose requests it routes; on a real local Ray."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import ray

serve = pytest.importorskip("ray.serve", exc_type=ImportError)

from live.test_messages import moments  # noqa: E402
from local_ray import LOCAL_RAY  # noqa: E402
from rllib_scale.config import scenario  # noqa: E402
from rllib_scale.errors import UserError  # noqa: E402
from rllib_scale.live.http import application  # noqa: E402
from rllib_scale.live.serve import router_config  # noqa: E402

pytestmark = LOCAL_RAY
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the replicas cannot import it


@pytest.fixture(scope="module")
def port(local_ray: None) -> Iterator[int]:
    """Of Serve on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    serve.start(http_options=serve.HTTPOptions(host="127.0.0.1", port=number))
    yield number
    serve.shutdown()


def ask(url: str, content: Any = None) -> tuple[int, str]:
    body = None if content is None else json.dumps(content).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_placement_over_http(port: int) -> None:
    env, url = scenario("steady-0.7"), f"http://127.0.0.1:{port}"
    serve.run(application("earliest-finish-transfer", None, env), name="placement", route_prefix="/")
    for content, _, answers in moments("steady-0.7", 8, 5):
        status, text = ask(f"{url}/v1/place", content)
        assert (status, json.loads(text)["answers"]) == (200, answers)
    assert ask(f"{url}/v1/place", {"version": 1})[0] == 400
    assert json.loads(ask(f"{url}/healthz")[1])["policy"] == "earliest-finish-transfer"
    assert 'rllib_scale_requests_total{outcome="placed"} 5.0' in ask(f"{url}/metrics")[1]
    assert "/v1/place" in ask(f"{url}/openapi.json")[1]
    serve.delete("placement")


class Model:
    """Tells which replica it is, after a while."""

    def __call__(self, seconds: float = 0.0) -> int:
        time.sleep(seconds)
        return os.getpid()


def deployed(name: str, config: Any) -> Any:
    options = {"num_replicas": 2, "max_ongoing_requests": 1, "ray_actor_options": {"num_cpus": 0.1}}
    made = serve.deployment(request_router_config=config, **options)(Model)
    return serve.run(made.bind(), name=name, route_prefix=None)


def test_sticky_keeps_a_session_on_its_replica(port: int) -> None:
    handle = deployed("sticky", router_config("sticky", demand={"compute_gflop": 2.0, "moved_gb": 1000.0}))
    mine, yours = handle.options(session_id="mine"), handle.options(session_id="yours")
    first = mine.remote().result()
    assert {mine.remote().result() for _ in range(20)} == {first}
    busy = mine.remote(1.0)
    other = yours.remote().result()
    assert other != first, "a session without a replica takes the one that is free"
    waiting = [mine.remote() for _ in range(4)]
    assert {yours.remote().result() for _ in range(5)} == {other}, "who waits is in nobody's way"
    assert {reply.result() for reply in [busy, *waiting]} == {first}
    serve.delete("sticky")


def test_whatever_is_wrong_each_request_is_told(port: int) -> None:
    """Named as a string nothing is checked before; the requests must not wait for ever."""
    config = router_config("sticky").model_copy(update={"request_router_kwargs": {"scheduler": "stickie"}})
    handle = deployed("wrong", config)
    with pytest.raises(UserError, match="stickie"):
        handle.remote().result(timeout_s=30)
    serve.delete("wrong")
