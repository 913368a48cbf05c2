"""A policy behind HTTP, on Ray Serve: a snapshot in, a placement out. Ray Serve is imported where it is started."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import ValidationError

from rllib_scale import __version__
from rllib_scale.config import EnvConfig
from rllib_scale.config.heuristics import is_heuristic, is_policy, spec_of
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError, require_free_port
from rllib_scale.live.execute import dispatcher_of
from rllib_scale.live.messages import PlacementMessage, SnapshotMessage, cluster_of, from_message
from rllib_scale.schedulers.base import Scheduler
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.rules import make_scheduler

CLUSTERS = 16
"""Clusters of which the problem is kept; the oldest is dropped."""
SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256)


class Decider:
    """Answers messages. Each is answered by itself: nothing is kept from one to the next.

    Args:
        name: of a heuristic, or where the policy came from.
        files: of an exported policy; None: `name` is a heuristic's.
        env: whose decisions, communication and observation hold, and whose servers' powers.
        trust: as for `load_policy`.

    Raises:
        UserError: it is no scheduler that answers for single moments.
    """

    def __init__(self, name: str, files: dict[str, bytes] | None, env: EnvConfig, trust: bool = False) -> None:
        self.env = env
        self.player: Scheduler | Dispatcher
        if files is not None:
            from rllib_scale.policies.policy import policy_from_bytes

            self.player = policy_from_bytes(files, name, env.episode.mask, trust=trust)
        else:
            self.player = make_scheduler(name, env.observation, env.episode.mask)
            if spec_of(name).plans:
                raise UserError(f"{name}: plans ahead, and cannot be asked about one moment; name another scheduler")
        self._problems: dict[bytes, tuple[Dispatcher, EnvConfig]] = {}
        self._count = 0

    def check_observation(self, message: SnapshotMessage) -> None:
        """Refuse a message for a policy with another observation config.

        Raises:
            UserError: naming the first setting that differs.
        """
        own = getattr(self.player, "observation", self.env.observation)
        if message.observation is None or message.observation == own:
            return
        theirs, ours = message.observation.model_dump(), own.model_dump()
        key = next(key for key in ours if ours[key] != theirs[key])
        raise UserError(f"observation.{key}: is {theirs[key]!r}; {self.player.name} has {ours[key]!r}")

    def __call__(self, message: SnapshotMessage) -> PlacementMessage:
        """The placement.

        Raises:
            UserError: the message does not agree with itself, or the policy knows no cluster of that size.
        """
        began = time.perf_counter()
        self.check_observation(message)
        now, numbers = from_message(message, self.env)
        key = b"".join(a.tobytes() for a in (now.capacity_gflops, now.memory_gb, now.host))
        key += np.array([now.bandwidth_gb_s, now.latency_s]).tobytes()
        if key not in self._problems:
            if len(self._problems) >= CLUSTERS:
                del self._problems[next(iter(self._problems))]
            env = self.env.model_copy(update={"cluster": cluster_of(now, self.env.cluster)})
            self._problems[key] = dispatcher_of(self.player, env)
        dispatcher, problem = self._problems[key]
        if problem.decision != self.env.decision:  # a policy that decides in rounds of its own
            now, _ = from_message(message, problem)
        self._count += 1
        dispatcher.reset([(self._count, 0)])
        answers = dispatcher.dispatch(now).tolist()
        return PlacementMessage(
            policy=self.player.name,
            answers=tuple((numbers[workflow], task, row) for workflow, task, row in answers if row >= 0),
            decision_ms=1000 * (time.perf_counter() - began),
        )


def api(decider: Decider) -> FastAPI:
    """The web application."""
    app = FastAPI(title="rllib-scale", version=__version__, description=f"Placements by {decider.player.name}.")
    registry = CollectorRegistry()
    requests = Counter("rllib_scale_requests", "Requests for a placement.", ["outcome"], registry=registry)
    placed = Counter("rllib_scale_placed_tasks", "Tasks that were placed.", registry=registry)
    seconds = Histogram("rllib_scale_decision_seconds", "Time of a decision.", buckets=SECONDS, registry=registry)
    schema = SnapshotMessage.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})

    def said(status: int, content: Any) -> Response:
        return Response(json.dumps(content), status, media_type="application/json")

    def refused(status: int, why: str) -> Response:
        requests.labels("refused").inc()
        return said(status, {"error": why})

    @app.post(
        "/v1/place",
        summary="Place the tasks that wait",
        responses={200: {"model": PlacementMessage}, 400: {"description": "what is wrong with the message"}},
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}},
    )
    async def place(request: Request) -> Response:
        try:
            message = SnapshotMessage.model_validate_json(await request.body())
            placement = decider(message)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "message"
            return refused(400, f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}")
        except UserError as error:
            return refused(400, str(error))
        requests.labels("placed").inc()
        placed.inc(len(placement.answers))
        seconds.observe(placement.decision_ms / 1000)
        return Response(placement.model_dump_json(), media_type="application/json")

    @app.get("/healthz", summary="Whether it answers")
    async def healthz() -> dict[str, str]:
        return {"status": "ok", "policy": decider.player.name, "program": __version__}

    @app.get("/metrics", summary="Counters for Prometheus")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    made = app.openapi

    def with_definitions() -> dict[str, Any]:
        content = made()
        content.setdefault("components", {}).setdefault("schemas", {}).update(definitions)
        return content

    app.openapi = with_definitions
    return app


def check_serve() -> None:
    """Whether Ray Serve is installed.

    Raises:
        UserError: it is not.
    """
    try:
        import ray.serve  # noqa: F401
    except ImportError as error:
        raise UserError(f"serve needs Ray Serve ({error.name}): pip install 'rllib-scale[serve]'") from None


def application(name: str, files: dict[str, bytes] | None, env: EnvConfig, trust: bool = False) -> Any:
    """What `ray.serve.run` takes: one replica that decides. Arguments as for `Decider`."""
    from ray import serve

    content = env.model_dump(mode="json")

    def build() -> FastAPI:
        return api(Decider(name, files, build_model(EnvConfig, content, "problem"), trust))

    deployment = serve.deployment(
        serve.ingress(build)(), name="placement", max_ongoing_requests=64, ray_actor_options={"num_cpus": 1}
    )
    return deployment.bind()


def policy_of(name: str) -> dict[str, bytes] | None:
    """The files of the policy in a folder, or of `zoo:NAME`; None, where the name is that of a heuristic.

    Raises:
        UserError: it is neither.
    """
    from rllib_scale.policies.policy import policy_files

    if is_heuristic(name) and not is_policy(name):
        return None
    return policy_files(name)


def run_until_interrupted(app: Any, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve an application over HTTP until Ctrl-C.

    Raises:
        UserError: the port is taken, or the application does not start.
    """
    from ray import serve

    require_free_port(host, port)
    try:
        serve.start(http_options=serve.HTTPOptions(host=host, port=port))
        serve.run(app, name="rllib-scale", route_prefix="/")
        say(f"http://{host}:{port}/docs: POST /v1/place, /healthz, /metrics; Ctrl-C ends it")
        while True:
            time.sleep(3600)
    except RuntimeError as error:
        raise UserError(f"Ray Serve: {str(error).splitlines()[0]}") from None
    finally:
        serve.shutdown()
