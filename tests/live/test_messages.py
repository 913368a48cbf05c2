"""Snapshots as JSON, and a policy that answers them: the same decisions as from the snapshot. No Ray Serve runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from networks.observations import random_network
from rllib_scale.config import ObservationConfig, TrialConfig, scenario
from rllib_scale.errors import UserError
from rllib_scale.live.execute import dispatcher_of
from rllib_scale.live.http import Decider, api, policy_of
from rllib_scale.live.messages import SnapshotMessage, cluster_of, from_message, to_message
from rllib_scale.observation.backend import Answer
from rllib_scale.observation.snapshot import Snapshot
from rllib_scale.policies.policy import save_policy
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.backend import SimulatedBackend

FIELDS = [name for name in Snapshot.__dataclass_fields__ if name not in ("workflows", "candidates", "num_arrived")]


def moments(problem: str, servers: int, count: int) -> list[tuple[dict[str, Any], Snapshot, list[list[int]]]]:
    """Messages of the first moments of an episode, their snapshots, and what a rule answers."""
    env = scenario(problem).at_scale(servers)
    backend = SimulatedBackend(env, 3)
    dispatcher, _ = dispatcher_of(make_scheduler("earliest-finish-transfer", env.observation, "feasible"), env)
    dispatcher.reset([(0, 0)])
    found = []
    while len(found) < count and (now := backend.wait()) is not None:
        answers = dispatcher.dispatch(now).tolist()
        found.append((json.loads(json.dumps(to_message(now))), now, answers))
        for answer in answers:
            backend.apply(Answer(*answer))
    return found


@pytest.mark.parametrize(("problem", "servers"), [("steady-0.7", 8), ("coding-agents-0.7", 16)])
def test_a_message_holds_the_moment_and_gets_the_same_answers(problem: str, servers: int) -> None:
    env = scenario(problem).at_scale(servers)
    decider = Decider("earliest-finish-transfer", None, env)
    for content, now, answers in moments(problem, servers, 40):
        message = SnapshotMessage.model_validate_json(json.dumps(content))
        read, numbers = from_message(message, env)
        expected = now.ready.copy()
        expected["workflow"] = [numbers.index(w) for w in now.ready["workflow"].tolist()]
        np.testing.assert_array_equal(read.ready, expected)
        for name in set(FIELDS) - {"ready", "running"}:
            np.testing.assert_array_equal(getattr(read, name), getattr(now, name), name)
        assert [list(answer) for answer in decider(message).answers] == answers
    assert [t.model_dump(exclude={"name"}) for t in cluster_of(now, env.cluster).tiers] == [
        t.model_dump(exclude={"name"}) | {"slot_slowdown": t.slot_slowdown} for t in env.cluster.tiers
    ]


class Reply(NamedTuple):
    status_code: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """Speaks to a web application as its server does (ASGI), without a socket."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def get(self, path: str) -> Reply:
        return self._ask("GET", path, b"")

    def post(self, path: str, content: Any) -> Reply:
        return self._ask("POST", path, content if isinstance(content, bytes) else json.dumps(content).encode())

    def _ask(self, method: str, path: str, body: bytes) -> Reply:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": ""},
            **{"method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []},
            **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)},
        }
        asyncio.run(self.app(scope, receive, send))
        return Reply(sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]).decode())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    folder = tmp_path_factory.mktemp("policy") / "scale"
    save_policy(folder, random_network(method="scale"), TrialConfig(), epochs=1)
    return Client(api(Decider(str(folder), policy_of(str(folder)), scenario("steady-0.7"))))


def test_http(client: Client) -> None:
    content, _, answers = moments("steady-0.7", 8, 1)[0]
    reply = client.post("/v1/place", content)
    assert reply.status_code == 200
    placed = reply.json()
    assert len(placed["answers"]) >= len(answers) > 0
    assert placed["decision_ms"] > 0
    assert client.get("/healthz").json()["policy"] == placed["policy"]
    assert client.post("/v1/place", content | {"version": 2}).status_code == 400
    metrics = client.get("/metrics").text
    assert 'rllib_scale_requests_total{outcome="placed"} 1.0' in metrics
    assert 'rllib_scale_requests_total{outcome="refused"} 1.0' in metrics
    assert f"rllib_scale_placed_tasks_total {len(placed['answers'])}.0" in metrics
    schema = client.get("/openapi.json").json()
    body = schema["paths"]["/v1/place"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "clock_s" in body["properties"]
    assert {"WorkflowMessage", "PlacementMessage"} <= set(schema["components"]["schemas"])
    assert client.get("/docs").status_code == 200


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"version": 2}, "version: input should be 1"),
        ({"clock_s": -1}, "clock_s: input should be greater than or equal to 0"),
        ({"clock": 1}, "clock: extra inputs are not permitted"),
        ({"memory_gb": [1.0]}, "memory_gb: holds 1 values; capacity_gflops holds 8"),
        ({"host": [0, 0, 1, 0, 1, 2, 3, 4]}, "host: must number the servers from 0 on"),
        ({"running": [[77, 0]] * 8}, "running: row 0: there is no workflow 77 with a task 0 in workflows"),
        ({"workflows": [{"number": 0}]}, "workflows.0.compute_gflop: field required"),
        (
            {"observation": ObservationConfig(memory_max_gb=7.0).model_dump()},
            "observation.memory_max_gb: is 7.0; scale-s42-",
        ),
    ],
)
def test_a_wrong_message_is_refused_in_one_line(client: Client, changed: dict[str, Any], why: str) -> None:
    content, _, _ = moments("steady-0.7", 8, 1)[0]
    reply = client.post("/v1/place", content | changed)
    assert reply.status_code == 400
    assert why in reply.json()["error"]
    assert "\n" not in reply.json()["error"]


def test_no_json_is_refused(client: Client) -> None:
    assert client.post("/v1/place", b"{").status_code == 400


def test_what_plans_ahead_is_no_service() -> None:
    with pytest.raises(UserError, match="heft: plans ahead"):
        Decider("heft", None, scenario("steady-0.7"))


def test_a_policy_for_one_number_of_rows_refuses_another(tmp_path: Path) -> None:
    save_policy(tmp_path / "mlp", random_network(method="ppo"), TrialConfig(method="ppo"), epochs=1)
    decider = Decider("mlp", policy_of(str(tmp_path / "mlp")), scenario("steady-0.7"))
    content, _, _ = moments("steady-0.7", 8, 1)[0]
    with pytest.raises(UserError, match="trained at 16 server slots and knows no other number; this cluster has 8"):
        decider(SnapshotMessage.model_validate_json(json.dumps(content)))
