"""Handles of one deployment, in processes of their own, under one state; on a real Ray Serve."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest
import ray

serve = pytest.importorskip("ray.serve", exc_type=ImportError)

from local_ray import LOCAL_SERVE  # noqa: E402
from rllib_scale.live.serve import router_config, router_stats  # noqa: E402
from rllib_scale.live.stats import LiveStats  # noqa: E402

pytestmark = LOCAL_SERVE
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the replicas cannot import it
SMALL = {"ray_actor_options": {"num_cpus": 0.05}, "max_ongoing_requests": 100}


class Model:
    """Tells which replica it is, and the most tokens that it ever had at once."""

    def __init__(self) -> None:
        self.tokens = self.most = 0

    async def __call__(self, tokens: int, seconds: float) -> tuple[int, int]:
        self.tokens += tokens
        self.most = max(self.most, self.tokens)
        await asyncio.sleep(seconds)
        self.tokens -= tokens
        return os.getpid(), self.most


class Ingress:
    """Passes calls on through a handle of its own."""

    def __init__(self, model: Any) -> None:
        self.model = model

    async def __call__(self, session: str, tokens: int, seconds: float = 0.01) -> tuple[int, int, int]:
        answer = await self.model.options(session_id=session).remote(tokens, seconds)
        return os.getpid(), *answer


def deployed(name: str, models: int, ingresses: int, rule: str, tokens: int, **settings: Any) -> Any:
    """The handle of an ingress in front of models that share one state."""
    config = router_config(rule, replica={"kv_tokens": 100_000}, demand={"prompt_tokens": tokens}, **settings)
    model = serve.deployment(name="Model", num_replicas=models, request_router_config=config, **SMALL)(Model)
    ingress = serve.deployment(name="Ingress", num_replicas=ingresses, **SMALL)(Ingress)
    return serve.run(ingress.bind(model.bind()), name=name, route_prefix=None)


def calls(handle: Any, sessions: int, tokens: int, seconds: float = 0.01) -> dict[str, tuple[int, int, int]]:
    """One call of each session, all at once: its ingress, its model, the most tokens that this had."""
    replies = {f"s{number}": handle.remote(f"s{number}", tokens, seconds) for number in range(sessions)}
    return {session: reply.result(timeout_s=600) for session, reply in replies.items()}


def test_sessions_stay_and_a_gate_holds_whichever_handle_asks() -> None:
    handle = deployed("whole", 3, 2, "session-affinity", 10, fallback_after_s=60.0)
    places, ways = dict[str, set[int]](), dict[str, set[int]]()
    for _ in range(8):
        for session, (way, place, _) in calls(handle, 12, 10).items():
            places.setdefault(session, set()).add(place)
            ways.setdefault(session, set()).add(way)
    assert any(len(each) > 1 for each in ways.values()), "or there is nothing to share"
    assert [len(each) for each in places.values()] == [1] * 12
    assert len(set.union(*places.values())) == 3
    serve.delete("whole")
    handle = deployed("gated", 1, 5, "lmetric:gate=1", 20_000, active_for_s=0.0, fallback_after_s=60.0)
    answers = calls(handle, 20, 20_000, 0.3).values()
    assert len({way for way, _, _ in answers}) > 1
    assert max(most for _, _, most in answers) == 100_000, "all that fits, and no more"
    serve.delete("gated")
    handle = deployed("released", 1, 2, "zoo:release", 20_000, fallback_after_s=60.0)
    answers = calls(handle, 12, 20_000, 0.3).values()
    assert 40_000 <= max(most for _, _, most in answers) <= 100_000, "a policy's gate holds, and lets all go in the end"
    serve.delete("released")


def keeper(name: str) -> tuple[Any, int]:
    """The actor with the state of an app's models, and its process."""
    (found,) = (
        each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"].startswith(f"router {name}#")
    )
    actor = ray.get_actor(**found)
    for _ in range(300):
        try:
            return actor, ray.get(actor.pid.remote(), timeout=1)
        except ray.exceptions.RayError:
            time.sleep(0.2)
    raise TimeoutError


def settled(models: Any, deadline: float) -> LiveStats:
    """Statistics once all answers have been heard of: they do not change for a second."""
    before = None
    while (stats := router_stats(models)).running or before is None or stats.ended != before.ended:
        assert time.monotonic() < deadline
        before = stats
        time.sleep(1.0)
    return stats


def test_no_request_is_lost_with_the_actor_that_decides_and_its_next_life_knows_the_sessions() -> None:
    handle = deployed("killed", 3, 2, "session-affinity", 10, fallback_after_s=0.2)
    models = serve.get_deployment_handle("Model", "killed")
    for _ in range(3):
        calls(handle, 12, 10)
    _, first = keeper("killed")
    running = [handle.remote(f"s{number}", 10, 3.0) for number in range(12)]
    models.remote(10, 0.0).result(timeout_s=600)
    os.kill(first, signal.SIGKILL)
    assert len(calls(handle, 12, 10)) == 12, "each handle decides by itself"
    assert len([reply.result(timeout_s=600) for reply in running]) == 12
    _, second = keeper("killed")
    assert second != first
    deadline = time.monotonic() + 600
    before, places, decided = settled(models, deadline), list[dict[str, int]](), 0
    while decided < 60:  # until all handles have reported to it, and none routes by itself
        places = [{session: at for session, (_, at, _) in calls(handle, 12, 10).items()} for _ in range(5)]
        after = settled(models, deadline)
        decided, before = after.ended - before.ended, after
    assert places == places[:1] * 5
    assert before.fallbacks >= 12
    serve.delete("killed")
