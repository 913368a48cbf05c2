"""Conversations whose turns are requests with hashes of blocks, as Mooncake publishes them, and policies on them.

    python analysis/studies/replicas/conversations.py           # made requests
    python analysis/studies/replicas/conversations.py REQUESTS  # of Mooncake

A request is a session by itself: no turn says which request it follows but by the blocks that both have. Policies know
what a router remembers of the caches. One replica, recorded arrivals.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from study import POD, problem  # type: ignore[import-not-found]

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy

BLOCK_OF_REQUESTS = 512
POLICIES = ("lmetric", "lmetric:gate=1", "lmetric:gate=0.95,order=3", "zoo:release")


def made_requests(count: int = 3000, seed: int = 0) -> list[str]:
    """Six conversations a minute. Each begins with one of four system prompts; each turn continues the one before."""
    rng, fresh = np.random.default_rng(seed), iter(range(10**9))
    systems = [[next(fresh) for _ in range(size)] for size in (2, 4, 8, 16)]
    found, begun_s = list[tuple[float, str]](), 0.0
    while len(found) < count:
        begun_s += rng.exponential(10.0)
        at_s, chain = begun_s, list(systems[rng.integers(4)])
        for _ in range(rng.geometric(0.2)):
            chain += [next(fresh) for _ in range(1 + rng.poisson(6))]
            tokens, output = BLOCK_OF_REQUESTS * len(chain) + int(rng.integers(1, 512)), int(rng.integers(20, 600))
            request = {"timestamp": 1000 * at_s, "input_length": tokens, "output_length": output}
            found.append((at_s, json.dumps(request | {"hash_ids": [*chain, next(fresh)]})))
            at_s += 20.0 + rng.exponential(60.0)
    return [line for _, line in sorted(found)[:count]]


def recorded(path: Path, kv_tokens: int) -> EnvConfig:
    """Requests at their times, to one replica with so much memory."""
    pod = POD.model_copy(update={"kv_tokens": kv_tokens})
    service = {"format": "mooncake", "arrivals_per_s": "recorded", "part": "all", "warm_up_s": 0.0}
    env: EnvConfig = problem(path, {"pod": (1, pod)}, hours=24, **service)
    return env


def compare(path: Path) -> None:
    """Print a table of policies at several sizes of memory."""
    print("| KV tokens | | call, s | p99, s | first token, s | hit rate | held requests |\n" + "|---" * 7 + "|")
    for budget in (256_000, 512_000, 1_024_000, 2_048_000):
        env = recorded(path, budget)
        env = env.model_copy(update={"observation": env.observation.model_copy(update={"caches": "own"})})
        for name in POLICIES:
            engine: Any = play(make_policy(name, env), env, 0, [0])
            of = engine.metrics(0)
            times = (of["response_censored_s"], of["response_censored_p99_s"], of["ttft_mean_s"], of["hit_rate"])
            shown = [f"{value:.2f}" for value in times]
            print(" | ".join([f"| {budget:,}", f"`{name}`", *shown, f"{of['held_calls']:,.0f} |"]), flush=True)


@contextmanager
def requests(files: Sequence[str]) -> Iterator[Path]:
    """The first of these files; of none: a file of made requests."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(files[0]) if files else Path(folder) / "requests.jsonl"
        if not files:
            file.write_text("\n".join(made_requests()))
        yield file


if __name__ == "__main__":
    with requests(sys.argv[1:]) as file:
        compare(file)
