"""Plays the setting of a receipt with the package's own simulator, and measures it as those who published did."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.receipts.book import ALL, Conversations, Engine, Ladder, PolicyOf, Predicted, Setting, Values
from rllib_scale.config.replicas import Replica
from rllib_scale.config.yaml_files import set_path
from rllib_scale.evaluation.play import play
from rllib_scale.loading import env_from
from rllib_scale.policies.make import make_policy

SLOT_S = 3000.0
"""From the start of a stage to that of the next one, which is long enough for all to be answered."""
LAST_S = 50_000.0
"""After the last arrival."""
_Lists = dict[str, dict[str, dict[str, list[float]]]]
"""Policy -> metric -> load -> a value of each seed."""


def predict(setting: Setting, engine: Engine, sessions: Path | None) -> Predicted:
    """Play all policies at all loads with all seeds.

    Args:
        setting: of the receipt.
        engine: that it names.
        sessions: recorded ones in the format of kv-cache-tester; without them drawn ones are played.
    """
    found, floor = _of_seeds(setting, engine.replica(), setting.seeds, sessions), engine.floor()
    return Predicted(
        values=_each(found, np.mean),
        spread=_each(found, lambda values: np.ptp(values) / 2),
        floor={} if floor is None else _each(_of_seeds(setting, floor, 1, sessions), np.mean),
    )


def _of_seeds(setting: Setting, replica: Replica, seeds: int, sessions: Path | None) -> _Lists:
    found: _Lists = {}
    with TemporaryDirectory() as folder:
        for seed in range(seeds):
            for name, policy in setting.policies.items():
                for load, calls, window in _played(setting, replica, policy, seed, Path(folder), sessions):
                    of_calls = metrics(calls, *window)
                    for metric in setting.metrics:
                        value = of_calls[metric]
                        found.setdefault(name, {}).setdefault(metric, {}).setdefault(load, []).append(value)
    for by_metric in found.values():
        for of in by_metric.values():
            of[ALL] = [float(np.mean(loads)) for loads in zip(*of.values(), strict=True)]
    return found


def _each(found: _Lists, summary: Any) -> Values:
    """A number of each list, to four digits."""
    return {
        policy: {
            metric: {load: float(f"{summary(values):.4g}") for load, values in of.items()}
            for metric, of in by_metric.items()
        }
        for policy, by_metric in found.items()
    }


def metrics(calls: NDArray[Any], since_s: float, window_s: float | None) -> dict[str, float]:
    """Published metrics of such runs: of answered calls, with throughput over the window, or to the last answer."""
    ttft_s, latency_s = calls["first_s"] - calls["asked_s"], calls["end_s"] - calls["asked_s"]
    many = calls["output"] > 1
    between_s = ((calls["end_s"] - calls["first_s"]) / np.maximum(1, calls["output"] - 1))[many]
    time_s = float(calls["end_s"].max()) - since_s if window_s is None else window_s
    return {
        "output_s": float(calls["output"].sum()) / time_s,
        "requests_s": len(calls) / time_s,
        "total_s": time_s,
        "ttft_s": float(ttft_s.mean()),
        "ttft_p50_s": float(np.quantile(ttft_s, 0.5)),
        "ttft_p90_s": float(np.quantile(ttft_s, 0.9)),
        "ttft_p95_s": float(np.quantile(ttft_s, 0.95)),
        "ttft_p99_s": float(np.quantile(ttft_s, 0.99)),
        "engine_ttft_s": float((calls["first_s"] - calls["placed_s"]).mean()),
        "latency_s": float(latency_s.mean()),
        "latency_p50_s": float(np.quantile(latency_s, 0.5)),
        "latency_p90_s": float(np.quantile(latency_s, 0.9)),
        "latency_p95_s": float(np.quantile(latency_s, 0.95)),
        "latency_p99_s": float(np.quantile(latency_s, 0.99)),
        "between_s": float(between_s.mean()) if len(between_s) else 0.0,
        "between_p50_s": float(np.median(between_s)) if len(between_s) else 0.0,
        "between_p90_s": float(np.quantile(between_s, 0.9)) if len(between_s) else 0.0,
        "hit_rate": float(calls["hit"].sum()) / float(calls["prompt"].sum()),
        "input_s": float(calls["prompt"].sum()) / time_s,
        "prefilled": float(calls["prefilled"].sum()),
    }


Found = Iterator[tuple[str, NDArray[Any], tuple[float, float | None]]]
"""Load, its answered calls, and from when on, and for how long or to the last answer, they are counted."""


def _played(
    setting: Setting, replica: Replica, policy: PolicyOf, seed: int, folder: Path, sessions: Path | None
) -> Found:
    work = setting.workload
    if isinstance(work, Ladder):
        service, lines = _written(work, 0, seed, folder)
        calls = _once(setting, replica, policy, service, lines, seed)
        for number in range(work.warm_up, len(work.stages)):
            # Recorded times begin with the first arrival.
            since_s = SLOT_S * number - lines[0]["timestamp"] / 1000
            of = calls[(calls["asked_s"] >= since_s - 1e-3) & (calls["asked_s"] < since_s + SLOT_S - 1e-3)]
            if float(of["end_s"].max()) > since_s + SLOT_S:
                raise RuntimeError(f"{setting.title}: a stage takes longer than {SLOT_S:g} s")
            yield f"{work.stages[number][0]:g}", of, (since_s, None)
        return
    for live in work.live:
        service = {"trace": str(sessions.absolute())} if sessions is not None else {}
        if isinstance(work, Conversations):
            count = live if work.measured_s is None else work.drawn
            service, lines = _written(work, count, seed, folder)
            if work.measured_s is None:
                yield str(live), _once(setting, replica, policy, service, lines, seed), (0.0, None)
                continue
            service |= {"start": "first", "spread_s": work.begin_within_s}
        assert work.measured_s is not None
        service |= {"sessions": {"total": live}, "warm_up_s": work.warm_up_s}
        calls = _calls(setting, replica, policy, service, work.warm_up_s + work.measured_s, seed)
        yield str(live), calls[calls["end_s"] >= work.warm_up_s], (work.warm_up_s, work.measured_s)


def _written(work: Ladder | Conversations, count: int, seed: int, folder: Path) -> tuple[dict[str, Any], Any]:
    """Settings of a service that plays a workload, which is written once for all policies; and its requests."""
    lines = list(_ladder(work, seed) if isinstance(work, Ladder) else _turns(work, count, seed))
    path, block_tokens = folder / f"{seed}-{count}.jsonl", work.block_tokens
    if not path.exists():
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return {"trace": str(path), "format": "mooncake", "block_size": block_tokens, "part": "all"}, lines


def _once(
    setting: Setting, replica: Replica, policy: PolicyOf, service: dict[str, Any], lines: Any, seed: int
) -> NDArray[Any]:
    """All requests, each once, when it was recorded."""
    end_s = max(line.get("timestamp", 0.0) for line in lines) / 1000 + LAST_S
    service = service | {"arrivals_per_s": "recorded", "warm_up_s": 0.0}
    calls = _calls(setting, replica, policy, service, end_s, seed)
    if len(calls) < len(lines):
        raise RuntimeError(f"{setting.title}: {len(lines) - len(calls)} of {len(lines)} calls were never answered")
    return calls


def _calls(
    setting: Setting, replica: Replica, policy: PolicyOf, service: dict[str, Any], end_s: float, seed: int
) -> NDArray[Any]:
    pod = replica.model_dump(mode="json", exclude={"sources"})
    data: dict[str, Any] = {
        "cluster": {"tiers": [{"name": "pod", "count": setting.pods, "replica": pod}]},
        "service": {"name": "replica", **service, **setting.service},
        "episode": {"horizon_s": end_s},
        "reward": {"name": "tasks-in-system"},
    }
    for key, value in policy.set.items():
        set_path(data, key, value)
    env = env_from(data, setting.title)
    return play(make_policy(policy.rule, env), env, seed, [0]).calls()


def _ladder(work: Ladder, seed: int) -> Iterator[dict[str, Any]]:
    """Requests of all stages, as Mooncake's traces have them."""
    rng, blocks = random.Random(seed), work.block_tokens
    prompts = [(group, number) for group in range(work.groups) for number in range(work.prompts)]
    rng.shuffle(prompts)
    shared, own = work.prefix_tokens // blocks, -(-work.question_tokens // blocks)
    sent = 0
    for stage, (rate, seconds) in enumerate(work.stages):
        count = round(rate * seconds)
        times = [number / rate for number in range(count)]
        if work.arrivals == "poisson":
            times = sorted(rng.uniform(0, seconds) for _ in range(count))
        for time_s in times:
            group, number = prompts[sent % len(prompts)]
            first, second = 10**4 * group, 10**8 + 10**4 * (group * work.prompts + number)
            hashes = [*range(first, first + shared), *range(second, second + own - 1), 10**12 + sent]
            sent += 1
            yield {
                "timestamp": 1000 * (SLOT_S * stage + time_s),
                "input_length": work.prefix_tokens + work.question_tokens,
                "output_length": work.output_tokens,
                "hash_ids": hashes,
            }


def _turns(work: Conversations, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Turns of a number of sessions, in AIPerf's format: each comes some time after the answer before it."""
    rng, blocks = random.Random(seed), work.block_tokens
    for session in range(count):
        begin_ms, passage = 1000 * rng.uniform(0, work.begin_within_s), 10**10 + 10**5 * rng.randrange(work.passages)
        first, turns = round(work.first.draw(rng)), max(1, round(work.turns.draw(rng)))
        new = [0] + [round(work.new.draw(rng)) for _ in range(turns - 1)]
        shared, own = work.shared // blocks, 10**11 + 10**6 * session
        prompt = work.shared + first
        for turn in range(work.sent or turns):
            if turn % turns == 0:
                prompt = work.shared + first
            prompt += new[turn % turns]
            output = max(1, round(work.output.draw(rng)))
            when = {"timestamp": begin_ms} if turn == 0 else {"delay": 1000 * work.gap_s.draw(rng)}
            whole = range(own + shared, own + -(-prompt // blocks))
            yield when | {
                "session_id": f"s{session}",
                "input_length": prompt,
                "output_length": output,
                "hash_ids": [*range(passage, passage + shared), *whole],
            }
            prompt += output
