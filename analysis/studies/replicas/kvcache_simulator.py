"""Hit rates of one replica beside those of PyPI's kvcache-simulator (0.1.3) on the same calls in the same order.

    pip install kvcache-simulator
    python analysis/studies/replicas/kvcache_simulator.py SESSIONS           # of kv-cache-tester, without hashes
    python analysis/studies/replicas/kvcache_simulator.py --hashed           # made requests with hashes of blocks
    python analysis/studies/replicas/kvcache_simulator.py --hashed REQUESTS  # of Mooncake, one session each

Blocks of sessions have 256 tokens, those of requests 512. Both count the last half of the calls.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
from conversations import BLOCK_OF_REQUESTS, recorded, requests  # type: ignore[import-not-found]
from kvcache_sim.plan import build_execution_plan
from kvcache_sim.policies import simulate_policy
from kvcache_sim.trace import parse_trace_lines
from study import POD, problem  # type: ignore[import-not-found]

from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.replicas.scripts import Scripts

BLOCK = 256


def trace(calls: pd.DataFrame, scripts: Scripts) -> list[str]:
    """The calls with the hashes of their blocks: those of the shared prefix, of the agent's context, then new ones."""
    contexts, lines, fresh = dict[tuple[int, int], list[int]](), list[str](), count(10**9)
    for session, script, call in calls[["session", "script", "call"]].itertuples(index=False):
        task = scripts.tasks[scripts.first_task[script] + call]
        prompt, prefix = int(task["prompt"]), int(task["prefix_tokens"]) // BLOCK
        key, total = (session, int(task["agent"])), -(-prompt // BLOCK)
        blocks = [int(task["prefix"]) * 10**5 + number for number in range(prefix)]
        blocks += contexts.get(key, [])[prefix : int(task["reusable"]) // BLOCK]
        blocks = (blocks + [next(fresh) for _ in range(max(0, total - len(blocks)))])[:total]
        contexts[key] = blocks[: prompt // BLOCK] + [next(fresh) for _ in range(int(task["output"]) // BLOCK + 1)]
        lines.append(json.dumps({"block_size": BLOCK, "hash_ids": blocks, "input_length": prompt}))
    return lines


def compare_hashed(path: Path) -> None:
    """Print a table over budgets."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    print("| KV tokens | ours | kvcache-simulator, LRU |\n|---|---|---|")
    for budget in (128_000, 256_000, 512_000, 1_024_000, 2_048_000):
        env = recorded(path, budget)
        engine: Any = play(make_policy("lmetric", env), env, 0, [0])
        calls = pd.DataFrame(engine.calls()).sort_values("admitted_s", kind="stable")
        ours = parse_trace_lines([lines[script] for script in calls["script"]], block_size=BLOCK_OF_REQUESTS)
        show(budget, calls, ours, budget // BLOCK_OF_REQUESTS)


def show(load: int, calls: pd.DataFrame, requests: Any, blocks: int) -> None:
    """Print a row of a table."""
    theirs, half = simulate_policy(build_execution_plan(requests), "lru", blocks).hitRate, calls.iloc[len(calls) // 2 :]
    print(f"| {load:,} | {half['hit'].sum() / half['prompt'].sum():.3f} | {theirs:.3f} |", flush=True)


def compare_sessions(path: Path) -> None:
    """Print a table over live sessions."""
    print("| sessions | ours | kvcache-simulator, LRU |\n|---|---|---|")
    for live in (12, 16, 20, 24):
        env = problem(path, {"pod": (1, POD)}, hours=2, sessions=live)
        engine: Any = play(make_policy("session-affinity", env), env, 0, [0])
        calls = pd.DataFrame(engine.calls()).sort_values("admitted_s", kind="stable")
        show(live, calls, parse_trace_lines(trace(calls, engine.scripts)), POD.kv_tokens // BLOCK)


if __name__ == "__main__":
    if sys.argv[1] != "--hashed":
        compare_sessions(Path(sys.argv[1]))
    else:
        with requests(sys.argv[2:]) as file:
            compare_hashed(file)
