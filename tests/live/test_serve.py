"""A policy behind Ray Serve's HTTP, on a real local Ray."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

serve = pytest.importorskip("ray.serve", exc_type=ImportError)

from live.test_messages import moments  # noqa: E402
from local_ray import LOCAL_RAY  # noqa: E402
from rllib_scale.config import scenario  # noqa: E402
from rllib_scale.live.http import application  # noqa: E402

pytestmark = LOCAL_RAY
RAY_CPUS = 4


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
