"""Turns of coding agents through Ray Serve, on replicas that imitate a language model: calls sleep, caches are LRU.

A call sleeps for its demand in the workload `coding-agents`, and for the prefill of the earlier context that the
replica's cache does not hold. All replicas are alike, as in a deployment. All times are scaled, the back-off of Serve's
routers included.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from rllib_scale.config import scenario
from rllib_scale.live.flows import Flow
from rllib_scale.live.serve import router_config
from rllib_scale.workloads.generators import generate

REPLICAS, MAX_CONCURRENT, LOAD = 4, 3, 0.7
PREFILL_GB_S = 4.2
"""KV cache of 0.16 MB a token, 0.038 s for a thousand new tokens: as fitted to real calls."""
CACHE_GB = 120.0
"""Contexts that a replica keeps, on and off its GPU; they are 20 GB on average."""
MAX_CALLS, MAX_DELAY_S = 30, 30.0
"""Longest turn and longest tool: longer ones would only make the run longer."""
LETTERS_PER_GB = 4
RULE = "reserve:waiting=1"
"""Chosen by replaying seeds 0 to 3 in virtual time."""
FIRST_SEED = 10

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the replicas cannot import it


@dataclass(frozen=True)
class LLMCall:
    """Arguments of a request. Ray's prefix router reads `prompt`."""

    turn: str
    prompt: str
    compute_gflop: float
    before_gb: float  # of the earlier context
    context_gb: float


def demand(call: LLMCall) -> dict[str, Any]:
    """For PolicyRouter."""
    return {
        "compute_gflop": call.compute_gflop,
        "memory_gb": call.context_gb,
        "moved_gb": call.before_gb,
        "session": call.turn,
    }


class SurrogateLLM:
    """A replica."""

    def __init__(self, time_scale: float) -> None:
        self._scale = time_scale
        self._contexts: OrderedDict[str, float] = OrderedDict()

    async def __call__(self, call: LLMCall) -> float:
        """Sleeps as long as the call takes; returns how much of its context it did not find [GB]."""
        missing = max(0.0, call.before_gb - self._contexts.get(call.turn, 0.0))
        await asyncio.sleep((call.compute_gflop + missing / PREFILL_GB_S) * self._scale)
        self._contexts[call.turn] = call.context_gb
        self._contexts.move_to_end(call.turn)
        while len(self._contexts) > 1 and sum(self._contexts.values()) > CACHE_GB:
            self._contexts.popitem(last=False)
        return missing


def routers(time_scale: float) -> dict[str, RequestRouterConfig]:
    """Compared routers, ours first."""
    backoff = {"initial_backoff_s": 0.025 * time_scale, "max_backoff_s": 0.5 * time_scale}
    ours = router_config(
        RULE, demand=f"{__name__}:demand", compute_gflops=1 / time_scale, bandwidth_gb_s=PREFILL_GB_S / time_scale
    )
    ray_prefix = "ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router:PrefixCacheAffinityRouter"
    return {
        "PolicyRouter": ours,
        "power of two choices": RequestRouterConfig(**backoff),
        "prefix cache affinity": RequestRouterConfig(request_router_class=ray_prefix, **backoff),
    }


def turns_of(seed: int, count: int) -> list[Flow]:
    """A number of turns, at the offered load of all replicas without prefill."""
    env = scenario("coding-agents-0.7")
    drawn = generate(env, seed, 0)
    flows = [Flow.of(drawn, n, env.cluster) for n in range(drawn.num_workflows)]
    flows = [flow for flow in flows if len(flow) <= MAX_CALLS][:count]
    work = sum(float(flow.demands["compute"].sum()) for flow in flows)
    stretch = work / (LOAD * REPLICAS * MAX_CONCURRENT) / flows[-1].arrival_s
    for flow in flows:
        flow.arrival_s *= stretch
        flow.demands["delay"] = np.minimum(flow.demands["delay"], MAX_DELAY_S)
    return flows


def deploy(name: str, config: RequestRouterConfig, time_scale: float) -> Any:
    """Deploy replicas with a router; returns the handle."""
    model = serve.deployment(
        SurrogateLLM,
        name=name,
        num_replicas=REPLICAS,
        max_ongoing_requests=MAX_CONCURRENT,
        request_router_config=config,
        ray_actor_options={"num_cpus": 0.01},
    )
    handle = serve.run(model.bind(time_scale), name=name, route_prefix=None)
    for reply in [handle.remote(LLMCall(f"warm {n}", f"{n} warm up", 1.0, 0.0, 0.0)) for n in range(4 * REPLICAS)]:
        reply.result()
    return handle


def play(handle: Any, seed: int, turns: int, time_scale: float) -> dict[str, float]:
    """Play the turns of a seed; mean and 95 % quantile of a turn, tools left out, and the share of contexts found."""
    with ThreadPoolExecutor(1) as pool:  # in a thread: the caller may have an event loop
        seconds, found = pool.submit(asyncio.run, _play(handle, seed, turns, time_scale)).result()
    return {"mean_s": float(seconds.mean()), "p95_s": float(np.quantile(seconds, 0.95)), "found": found}


async def _play(handle: Any, seed: int, turns: int, time_scale: float) -> tuple[np.ndarray, float]:
    began, gone_on_gb, missing_gb = asyncio.get_running_loop().time(), 0.0, 0.0

    def clock() -> float:
        return (asyncio.get_running_loop().time() - began) / time_scale

    async def one(flow: Flow) -> float:
        await asyncio.sleep((flow.arrival_s - clock()) * time_scale)
        ended = [asyncio.Event() for _ in range(len(flow))]
        name = f"{seed}/{flow.number}"
        prompt, total = _letters(name), 0.0

        async def call(task: int) -> None:
            nonlocal total, gone_on_gb, missing_gb
            before = flow.edges[flow.edges[:, 1] == task, 0].tolist()
            for at in before:
                await ended[at].wait()
            compute, delay_s, context_gb = (float(flow.demands[name][task]) for name in ("compute", "delay", "output"))
            await asyncio.sleep(delay_s * time_scale)
            before_gb = float(flow.demands["output"][before[0]]) if before else 0.0
            text = prompt[: 40 + int(LETTERS_PER_GB * context_gb)]
            ready = clock()
            missing = await handle.remote(LLMCall(name, text, compute, before_gb, context_gb))
            missing_gb += missing
            gone_on_gb += before_gb
            total += clock() - ready
            ended[task].set()

        await asyncio.gather(*(call(task) for task in range(len(flow))))
        return total

    seconds = await asyncio.gather(*(one(flow) for flow in turns_of(seed, turns)))
    return np.array(seconds), 1.0 - missing_gb / gone_on_gb


def _letters(of: str, count: int = 2000) -> str:
    """Text that has next to nothing in common with that of another turn."""
    return "".join(hashlib.sha256(f"{of}/{n}".encode()).hexdigest() for n in range(-(-count // 64)))[:count]


def compare(seeds: int, turns: int, time_scale: float, say: Callable[[str], None]) -> dict[str, list[dict[str, float]]]:
    """Each router with the turns of each seed, in turn; numbers by router, then seed."""
    handles = {name: deploy(name, config, time_scale) for name, config in routers(time_scale).items()}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in handles}
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for name, handle in handles.items():
            found[name].append(play(handle, seed, turns, time_scale))
            numbers = ", ".join(f"{key} {value:.2f}" for key, value in found[name][-1].items())
            say(f"{turns} turns, seed {seed}, {name}: {numbers}")
    for name in handles:
        serve.delete(name)
    return found
