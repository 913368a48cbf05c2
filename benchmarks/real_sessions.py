"""Load for real engines: single requests, to fit a replica to, and sessions of agents through a router.

The sessions of an episode are scripts that simulator and engines play alike: a closed loop of live sessions, the first
of which begin in the middle. Prompts are random tokens, so that no two sessions share any.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import pandas as pd

from benchmarks.real_engines import BLOCK_TOKENS, VOCABULARY
from rllib_scale.live.holding import HoldingRouter
from rllib_scale.live.requests import Demand, Replica
from rllib_scale.simulator.replicas.scripts import Scripts, joined
from rllib_scale.simulator.replicas.state import NONE, START, TASK

CALLS, FIRST_TOKENS, NEW_TOKENS, ANSWER_TOKENS = (6, 14), (1000, 2400), (60, 420), (10, 41)
"""Calls of a session, tokens of its first prompt, of a tool's result and of an answer: uniform, the end excluded."""
GAP_S, LONGEST_GAP_S = 1.0, 4.0
"""Times of tools: exponential, cut."""
ACTIVE_FOR_S = 5.0
"""A session counts for so long after its last answer: longer than any tool takes."""
STARTS_S = 3.0
"""In which the first sessions of an episode begin."""
PLACES = 256
LOOK_S = 0.05
"""Pause between looks whether a session that was idle has made room."""
ANSWER_S = 120.0
"""No single request takes so long."""


class Answer(NamedTuple):
    """To a request; times by `time.monotonic` [s]."""

    start_s: float
    first_s: float
    end_s: float
    tokens: list[int]
    cached: int


async def complete(client: aiohttp.ClientSession, url: str, prompt: Sequence[int], output: int) -> Answer:
    """Send a request for a number of tokens."""
    body = {"model": "m", "prompt": list(prompt), "max_tokens": output, "ignore_eos": True, "temperature": 0}
    body |= {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    start_s, first_s, tokens, cached = time.monotonic(), 0.0, list[int](), 0
    async with client.post(f"{url}/v1/completions", json=body) as reply:
        if reply.status != 200:
            raise RuntimeError(f"an engine answered {reply.status}: {(await reply.text())[:300]}")
        async for line in reply.content:
            if not line.startswith(b"data: {"):
                continue
            part = json.loads(line[6:])
            for choice in part.get("choices", ()):
                tokens += choice.get("token_ids") or []
                first_s = first_s or time.monotonic()
            if part.get("usage"):
                cached = (part["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if len(tokens) != output:
        raise RuntimeError(f"an engine answered {len(tokens)} of {output} tokens")
    return Answer(start_s, first_s, time.monotonic(), tokens, cached)


def client() -> aiohttp.ClientSession:
    """A client of the engines, without limits."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout, read_bufsize=2**21)


# ---------------------------------------------------------------------- single requests


class Load(NamedTuple):
    """Single requests: when each comes, its prompt and answer [tokens], and how many may be in flight.

    The times of the last of `loads` are in units of the mean time between two requests.
    """

    name: str
    at_s: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    limit: int | None = None


def loads(count: int, seed: int) -> list[Load]:
    """A synchronous load twice, a saturated one, and one at random times which is not fitted.

    Args:
        count: requests of a load; of the saturated one twice as many.
        seed: of the draws.
    """
    draw = np.random.default_rng(seed)

    def sizes(number: int) -> tuple[np.ndarray, np.ndarray]:
        return np.rint(np.exp(draw.uniform(np.log(60), np.log(5000), number))).astype(int), draw.integers(4, 61, number)

    one, many, later = sizes(count), sizes(2 * count), sizes(count)
    return [
        Load("synchronous", np.zeros(count), *one, limit=1),
        Load("synchronous again", np.zeros(count), *one, limit=1),
        Load("saturated", np.zeros(2 * count), *many),
        Load("poisson", np.cumsum(draw.exponential(1.0, count)), *later),
    ]


async def send(url: str, load: Load, seed: int) -> pd.DataFrame:
    """Send the requests of a load; returns them as a log that `fit-replica` reads."""
    draw, free = np.random.default_rng(seed), asyncio.Semaphore(load.limit or len(load.at_s))
    prompts = [draw.integers(3, VOCABULARY, count).tolist() for count in load.prompt]
    begun = time.monotonic()

    async def one(at_s: float, prompt: list[int], output: int) -> dict[str, Any]:
        await asyncio.sleep(max(0.0, begun + at_s - time.monotonic()))
        async with free:
            answer = await complete(to, url, prompt, output)
        row: dict[str, Any] = {"prompt_tokens": len(prompt), "output_tokens": output}
        row |= {"start_s": answer.start_s - begun, "latency_s": answer.end_s - answer.start_s}
        return row | {"ttft_ms": 1e3 * (answer.first_s - answer.start_s)}

    async with client() as to:
        every = zip(load.at_s.tolist(), prompts, load.output.tolist(), strict=True)
        rows = await asyncio.gather(*(one(*each) for each in every))
    return pd.DataFrame(rows).assign(strategy=load.name, max_concurrency=load.limit)


# ---------------------------------------------------------------------- sessions


class Episode(NamedTuple):
    """Sessions of a closed loop: what each asks, and which begin when."""

    scripts: Scripts
    starts: np.ndarray
    live: int
    seed: int


def draw_scripts(seed: int, count: int = 400) -> Scripts:
    """Sessions of agents. A call can find whole blocks, without the last token of the answer before it."""
    draw, scripts = np.random.default_rng(seed), list[tuple[np.ndarray, list[list[int]]]]()
    for _ in range(count):
        calls = int(draw.integers(*CALLS))
        tasks = np.zeros(calls, TASK)
        new = np.concatenate([draw.integers(*FIRST_TOKENS, 1), draw.integers(*NEW_TOKENS, calls - 1)])
        tasks["output"] = draw.integers(*ANSWER_TOKENS, calls)
        tasks["prompt"] = np.cumsum(new) + np.cumsum(tasks["output"]) - tasks["output"]
        computed = tasks["prompt"][:-1] + tasks["output"][:-1] - 1
        tasks["reusable"][1:] = computed // BLOCK_TOKENS * BLOCK_TOKENS
        tasks["prefix"], tasks["needs"], tasks["release_s"] = NONE, np.arange(calls) > 0, -1.0
        tasks["release_s"][0] = 0.0
        tasks["gap_s"][1:] = np.minimum(draw.exponential(GAP_S, calls - 1), LONGEST_GAP_S)
        scripts.append((tasks, [[number + 1] for number in range(calls - 1)] + [[]]))
    return joined(scripts)


def mean_context() -> float:
    """Tokens of a session's context, on average over its calls."""
    tasks = draw_scripts(0).tasks
    return float((tasks["prompt"] + tasks["output"]).mean())


def episode(live: int, seed: int) -> Episode:
    """The sessions of a seed, with a number of live ones."""
    scripts, draw = draw_scripts(seed), np.random.default_rng([seed, live])
    starts = np.zeros(len(scripts), START)
    starts["script"] = np.arange(len(scripts))
    starts["skipped"][:live] = draw.random(live) * scripts.lengths[:live]
    starts["at_s"][:live] = np.sort(draw.random(live)) * STARTS_S
    return Episode(scripts, starts, live, seed)


class _Routed:
    """Calls of one run, through a router, to engines."""

    def __init__(self, router: HoldingRouter, urls: Sequence[str], to: aiohttp.ClientSession) -> None:
        self.router, self.to, self.numbers = router, to, itertools.count()
        self.urls = {f"engine {number}": url for number, url in enumerate(urls)}
        self.replicas = [Replica(name, PLACES, 1.0, 1.0) for name in self.urls]
        self.waiting: dict[Hashable, asyncio.Future[str]] = {}

    def decide(self) -> None:
        """Let the router answer waiting calls."""
        for key, name in self.router.round(self.replicas, {}):
            if key in self.waiting and not self.waiting[key].done():
                self.waiting.pop(key).set_result(name)

    async def look(self) -> None:
        """A session that has been idle for long enough makes room, and no request says so."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self.router.waiting:
                self.decide()

    async def call(self, session: str, prompt: list[int], output: int, row: dict[str, Any]) -> list[int]:
        """Route and send a call; its record is written to `row` step by step."""
        key = next(self.numbers)
        self.router.arrive(key, Demand(session=session, prompt_tokens=len(prompt)), self.router.clock())
        sent = self.waiting[key] = asyncio.get_running_loop().create_future()
        try:
            self.decide()
            name = await sent
            row["placed_s"], row["replica"] = time.monotonic(), list(self.urls).index(name)
            answer = await complete(self.to, self.urls[name], prompt, output)
        finally:
            self.waiting.pop(key, None)
            self.router.leave(key)
        row["first_s"], row["end_s"], row["hit"] = answer.first_s, answer.end_s, answer.cached
        self.decide()
        return answer.tokens


async def play(urls: Sequence[str], router: HoldingRouter, of: Episode, lasts_s: float) -> pd.DataFrame:
    """Play an episode on engines; returns its calls as `simulated.play` does, times from its begin."""
    rows, tasks, scripts = list[dict[str, Any]](), of.scripts.tasks, of.scripts
    coming, begun = iter(range(of.live, len(of.starts))), time.monotonic()

    async def session(number: int) -> None:
        first, draw = int(scripts.first_task[number]), np.random.default_rng([of.seed, number])
        skipped, context = int(of.starts["skipped"][number]), list[int]()
        for call in range(skipped, int(scripts.lengths[number])):
            task = tasks[first + call]
            if call > skipped:
                await asyncio.sleep(float(task["gap_s"]))
            context += draw.integers(3, VOCABULARY, int(task["prompt"]) - len(context)).tolist()
            row = {"session": number, "call": call, "prompt": len(context), "output": int(task["output"])}
            row |= {"asked_s": time.monotonic(), "placed_s": np.inf, "first_s": np.inf, "end_s": np.inf}
            rows.append(row)
            context += await routed.call(str(number), context, int(task["output"]), row)

    async def live(number: int) -> None:
        await asyncio.sleep(float(of.starts["at_s"][number]))
        await session(number)
        for following in coming:
            await session(following)

    async with client() as to:
        routed = _Routed(router, urls, to)
        parts = [asyncio.create_task(live(number)) for number in range(of.live)]
        parts.append(asyncio.create_task(routed.look()))
        done, _ = await asyncio.wait(parts, timeout=lasts_s, return_when=asyncio.FIRST_EXCEPTION)
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
    for part in done:
        part.result()
    found = pd.DataFrame(rows)
    times = ["asked_s", "placed_s", "first_s", "end_s"]
    found[times] -= begun
    return found
