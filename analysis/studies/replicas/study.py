"""Which rule belongs in front of replicas of a language model under sessions of coding agents.

    python analysis/studies/replicas/study.py SESSIONS    # plays, and writes rows.parquet
    python analysis/studies/replicas/study.py             # prints the tables of README.md and draws its figure

SESSIONS: recorded sessions in the format of kv-cache-tester. No coefficient and no rule was fitted to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from rllib_scale.config import EnvConfig
from rllib_scale.config.replicas import PRESETS, Replica
from rllib_scale.evaluation.play import play as episode
from rllib_scale.loading import env_from
from rllib_scale.policies.make import make_policy

HERE = Path(__file__).parent
ROWS = HERE / "rows.parquet"
POD = PRESETS["2xh100/30b-a3b"]
SLOW = POD.model_copy(
    update={
        **{name: 1.6 * getattr(POD, name) for name in ("step_s", "call_s", "context_s")},
        **{name: 3 * getattr(POD, name) for name in ("prefill_s", "attention_s")},
        "kv_tokens": int(0.6 * POD.kv_tokens),
    }
)
"""Assumed: decode 1.6 times and prefill 3 times as long, .6 of the memory."""
BEST = "lmetric:gate=1"
GATED = ("session-affinity:gate=1", BEST, f"{BEST},order=3", "marginal-price:gate=1")
UNGATED = (
    "least-outstanding",
    "weighted-scores",
    "prefix-cache-affinity",
    "cache-aware",
    "session-affinity",
    "lmetric",
)
OTHERS = ("round-robin-replica", "two-choices", "bounded-affinity", "bounded-consistent-hashing", "marginal-price")
"""Played in the closed loop on 8 replicas alone."""
RULES = (*UNGATED, *GATED)
PUBLIC = {12: (0.93, 1.00), 16: (0.84, 1.22), 20: (0.56, 1.56), 24: (0.13, 2.33), 32: (0.11, 1.75)}
"""Sessions per pod -> hit rate without a gate, gain of the gate in output per GPU, as measured on vLLM 0.28 with
Qwen3-Coder-30B-A3B (github.com/zetxqx/thunderagent-original-verification)."""
HOLD = "longest hold"
COMPARED = {
    "response_censored_s": "mean",
    "response_censored_p99_s": "p99",
    "jct_censored_s": "turn",
    "jct_censored_p99_s": "p99 of turns",
    "output_per_gpu_hour": "output",
    "longest_hold_s": HOLD,
}
"""Times of calls and turns with those that are open: means by Little's integral."""
METRICS = [*COMPARED, "hit_rate"]
CLIFF = (24.0, 32.0, 40.0)
"""Sessions per replica beyond the memory, over which tables take the mean."""
Fleet = dict[str, tuple[int, Replica]]
MIXED: Fleet = {f"{name}{k}": (1, kind) for k in range(4) for name, kind in (("pod", POD), ("slow", SLOW))}


def problem(source: Path, fleet: Fleet, hours: int, **service: Any) -> EnvConfig:
    """Recorded sessions on a fleet, for half an hour of warm-up and some hours."""
    tiers = [
        {"name": name, "count": count, "replica": replica.model_dump(mode="json", exclude={"sources"})}
        for name, (count, replica) in fleet.items()
    ]
    settings: dict[str, Any] = {
        "cluster": {"tiers": tiers},
        "service": {"name": "replica", "trace": str(source.absolute())} | service,
        "episode": {"horizon_s": 1800.0 + 3600.0 * hours},
        "reward": {"name": "tasks-in-system"},
    }
    return env_from(settings, "study")


def settings() -> Iterator[tuple[str, Fleet, dict[str, Any], tuple[str, ...], int]]:
    """Part, fleet, load, rules and seeds of everything that is played."""
    for live in PUBLIC:
        yield "receipt", {"pod": (1, POD)}, {"sessions": live}, ("session-affinity", "session-affinity:gate=1"), 40
    for live in (8, 12, 16, 20, 24, 28, 32, 40):
        yield "closed loop, 8 replicas", {"pod": (8, POD)}, {"sessions": live}, (*RULES, *OTHERS), 10
    for live in (16, 24, 32):
        yield "mixed hardware, 8 replicas", MIXED, {"sessions": live}, RULES, 5
    for rate in (0.004, 0.008, 0.012):
        yield "open loop, 8 replicas", {"pod": (8, POD)}, {"arrivals_per_s": rate}, RULES, 5
    for live in (16, 24, 32):
        yield (
            "closed loop, 64 replicas",
            {"pod": (64, POD)},
            {"sessions": live},
            ("session-affinity", "lmetric", *GATED[:3]),
            3,
        )
    yield "closed loop, 512 replicas", {"pod": (512, POD)}, {"sessions": 24}, ("lmetric", *GATED[1:3]), 1


def play(source: Path) -> None:
    """Play all settings, and write their rows."""
    rows = list[dict[str, Any]]()
    for part, fleet, load, rules, seeds in settings():
        env, (at,) = problem(source, fleet, 2 if part == "receipt" else 1, **load), load.values()
        for rule in rules:
            for seed in range(seeds):
                metrics = episode(make_policy(rule, env), env, seed, [0]).metrics()
                facts = {"part": part, "load": at, "rule": rule, "seed": seed}
                rows.append(facts | {key: metrics[key] for key in METRICS})
        print(part, at, flush=True)
    frame = pd.DataFrame(rows)
    frame.astype({key: np.float32 for key in METRICS}).to_parquet(ROWS, index=False, compression="zstd")


def half_interval(values: pd.Series) -> float:
    """Half of the 95 % interval of a mean over episodes; NaN for fewer than three."""
    if len(values) < 3:
        return np.nan
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def ratio(own: pd.Series, base: pd.Series) -> tuple[float, pd.Series]:
    """100 ln of the ratio of means over pairs of episodes, and what each pair adds to it.

    The latter has mean 0; its spread is that of the ratio, to first order.
    """
    own, base = own.astype(float), base.astype(float)
    return 100 * float(np.log(own.mean() / base.mean())), 100 * (own / own.mean() - base / base.mean())


def against(frame: pd.DataFrame, loads: Sequence[float]) -> pd.DataFrame:
    """COMPARED of each rule against BEST in the same episodes, the mean over loads, as texts.

    The longest hold, which may be 0, is a mean.
    """
    wide = frame.pivot(index=["load", "seed"], columns="rule", values=[*COMPARED]).loc[[*loads]]
    lines = {}
    for rule in frame["rule"].unique():
        texts = list[str]()
        for metric, name in COMPARED.items():
            own, base = wide[metric][rule], wide[metric][BEST]
            if name == HOLD:
                texts.append(f"{own.astype(float).mean():.0f}")
                continue
            found, added = zip(*(ratio(own[at], base[at]) for at in loads), strict=True)
            half = half_interval(pd.concat(added, axis=1).mean(axis=1))
            texts.append(f"{np.mean(found):+.1f}" + (f" ± {half:.1f}" if half == half else ""))
        lines[rule] = texts
    return pd.DataFrame(lines, index=[*COMPARED.values()]).T


def of_pod(receipt: pd.DataFrame, live: int) -> list[tuple[float, float, float]]:
    """Hit rate without the gate, and gain of the gate in output: means with their 95 % intervals."""
    of = receipt[receipt["load"] == live].pivot(
        index="seed", columns="rule", values=["hit_rate", "output_per_gpu_hour"]
    )
    hits, output = of["hit_rate"]["session-affinity"].astype(float), of["output_per_gpu_hour"]
    gain, added = ratio(output["session-affinity:gate=1"], output["session-affinity"])
    half = half_interval(hits), half_interval(added)
    ends = [(hits.mean() + side * half[0], np.exp((gain + side * half[1]) / 100)) for side in (0, -1, 1)]
    return list(zip(*ends, strict=True))


def markdown(table: pd.DataFrame) -> str:
    """A table of rules and loads."""
    head = ["rule", *(column if isinstance(column, str) else f"{column:g}" for column in table.columns)]
    lines = [[str(rule), *map(str, row)] for rule, row in zip(table.index, table.to_numpy(), strict=True)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def show(rows: pd.DataFrame) -> None:
    """Print the tables."""
    receipt = rows[rows["part"] == "receipt"]
    print("| sessions per pod | hit rate, measured | played | gain of the gate, measured | played |")
    print("|---|---|---|---|---|")
    for live, (hit, gain) in PUBLIC.items():
        played = " | ".join("{:.2f} ({:.2f} to {:.2f})".format(*ends) for ends in of_pod(receipt, live))
        hits, gains = played.split(" | ")
        print(f"| {live} | {hit:.2f} | {hits} | {gain:.2f} | {gains} |")
    for part, frame in rows[rows["part"] != "receipt"].groupby("part", sort=False):
        values = frame.groupby(["rule", "load"])[["response_censored_s", "output_per_gpu_hour", "hit_rate"]].mean()
        texts = values.apply(lambda v: f"{v.iloc[0]:.0f} / {v.iloc[1] / 1000:.0f} / {v.iloc[2]:.2f}", axis=1).unstack()
        print(f"\n### {part}\n\nMean time of a call (s) / thousand output tokens per GPU hour / hit rate:\n")
        print(markdown(texts.reindex(frame["rule"].unique())))
        each = [(float(load),) for load in frame["load"].unique()]
        for loads in [*each, CLIFF] if (CLIFF[-1],) in each else each:
            print(f"\n{part}, {', '.join(map('{:g}'.format, loads))}: 100 ln of the ratio to {BEST}, and seconds:\n")
            print(markdown(against(frame, loads)))


def draw(rows: pd.DataFrame) -> None:
    """Draw the receipt and the ranking over sessions per replica."""
    from rllib_scale_analysis.figures.chart import Chart, Marks, Panel
    from rllib_scale_analysis.figures.draw import draw as drawn
    from rllib_scale_analysis.figures.draw import save
    from rllib_scale_analysis.figures.style import MARKERS, VARIANT_COLOURS, Look

    receipt = rows[rows["part"] == "receipt"]
    measured, played = Look("#222222", "o", "--"), Look(VARIANT_COLOURS[-2], "s", "-")
    pods = [of_pod(receipt, live) for live in PUBLIC]
    panels = []
    for column, title in enumerate(("Hit rate without a gate", "Gain of the gate in output")):
        means, low, high = map(list, zip(*(pod[column] for pod in pods), strict=True))
        marks = [Marks([*PUBLIC], [public[column] for public in PUBLIC.values()], measured, "measured on vLLM")]
        marks.append(Marks([*PUBLIC], means, played, "played: mean, 95 % interval", low, high))
        panels.append(Panel(marks, title, "sessions per pod"))
    closed = rows[rows["part"] == "closed loop, 8 replicas"]
    for title, metric in (
        ("Mean time of a call (s)", "response_censored_s"),
        ("Output tokens per GPU hour", "output_per_gpu_hour"),
    ):
        marks = []
        for number, rule in enumerate(RULES):
            line = closed[closed["rule"] == rule].groupby("load")[metric].mean()
            marks.append(
                Marks(line.index, line.to_numpy(float), Look(VARIANT_COLOURS[number], MARKERS[number], "-"), rule)
            )
        panels.append(Panel(marks, title, "sessions per replica"))
    save(drawn(Chart(panels)), HERE / "replicas.svg")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        play(Path(sys.argv[1]))
    table = pd.read_parquet(ROWS)
    show(table)
    draw(table)
