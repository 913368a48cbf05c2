"""Which rule belongs in front of replicas of a language model under sessions of coding agents.

    python analysis/studies/replicas/study.py SESSIONS    # plays, and writes rows.parquet
    python analysis/studies/replicas/study.py             # prints the tables of README.md and draws its figure

SESSIONS: recorded sessions in the format of kv-cache-tester. No coefficient and no rule was fitted to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
GATED = ("session-affinity:gate=1", "lmetric:gate=1")
PRICED = ("marginal-price", "marginal-price:gate=1")
"""Played in the closed loop on 8 replicas alone."""
RULES = (
    "random-replica",
    "least-outstanding",
    "two-choices",
    "weighted-scores",
    "bounded-affinity",
    "session-affinity",
    "lmetric",
    *GATED,
)
BEST = "lmetric:gate=1"
PUBLIC = {12: (0.93, 1.00), 16: (0.84, 1.22), 20: (0.56, 1.56), 24: (0.13, 2.33), 32: (0.11, 1.75)}
"""Sessions per pod -> hit rate without a gate, gain of the gate in output per GPU, as measured on vLLM 0.28 with
Qwen3-Coder-30B-A3B (github.com/zetxqx/thunderagent-original-verification)."""
METRICS = [
    *("jct_mean_s", "jct_p99_s", "response_censored_s", "ttft_p95_s", "output_per_gpu_hour", "hit_rate"),
    *("response_censored_p99_s", "jct_censored_s", "jct_censored_p99_s", "longest_hold_s", "held_calls"),
    *("working_set", "slo_share", "recomputed_share"),
]


SHOWN = (
    *("jct_mean_s", "jct_p99_s", "response_censored_s"),
    *("response_censored_p99_s", "jct_censored_s", "jct_censored_p99_s"),
)
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
    for live in (8, 16, 20, 24, 28, 32, 40):
        yield "closed loop, 8 replicas", {"pod": (8, POD)}, {"sessions": live}, (*RULES, *PRICED), 10
    for live in (16, 24, 32):
        yield "mixed hardware, 8 replicas", MIXED, {"sessions": live}, RULES[1:], 5
    for rate in (0.004, 0.008, 0.012):
        yield "open loop, 8 replicas", {"pod": (8, POD)}, {"arrivals_per_s": rate}, RULES[1:], 5
    for live in (16, 24):
        yield (
            "closed loop, 64 replicas",
            {"pod": (64, POD)},
            {"sessions": live},
            ("session-affinity", "lmetric", *GATED),
            3,
        )
    yield "closed loop, 512 replicas", {"pod": (512, POD)}, {"sessions": 24}, ("lmetric", BEST), 1


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
    """Half of the 95 % interval of a mean over seeds; NaN for fewer than three."""
    if len(values) < 3:
        return np.nan
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def mean(values: pd.Series) -> str:
    """Mean and half of its 95 % interval over seeds."""
    half = half_interval(values)
    return f"{values.mean():.2f} ± {half:.2f}" if half == half else f"{values.mean():.2f}"


def against(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """100 ln of the ratio to BEST of the same load and seed: mean and half of the 95 % interval."""
    wide = frame.pivot(index=["load", "seed"], columns="rule", values=metric).astype(float).map(np.log) * 100
    ratio = wide.sub(wide[BEST], axis=0)
    grouped = ratio.groupby("load")
    halves = grouped.agg(half_interval)
    texts = grouped.mean().map("{:+.0f}".format) + halves.map(lambda half: f" ± {half:.0f}" if half == half else "")
    return texts.T.reindex([rule for rule in (*RULES, *PRICED) if rule in set(frame["rule"])])


def of_pod(receipt: pd.DataFrame, live: int) -> tuple[pd.Series, pd.Series]:
    """Hit rate without the gate, and gain of the gate in output, of each seed."""
    of = receipt[receipt["load"] == live].set_index("seed").astype({"hit_rate": float, "output_per_gpu_hour": float})
    plain, gated = of[of["rule"] == "session-affinity"], of[of["rule"] != "session-affinity"]
    return plain["hit_rate"], gated["output_per_gpu_hour"] / plain["output_per_gpu_hour"]


def markdown(table: pd.DataFrame) -> str:
    """A table of rules and loads."""
    head = ["rule", *(f"{column:g}" for column in table.columns)]
    lines = [[str(rule), *map(str, row)] for rule, row in zip(table.index, table.to_numpy(), strict=True)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def show(rows: pd.DataFrame) -> None:
    """Print the tables."""
    receipt = rows[rows["part"] == "receipt"]
    print("| sessions per pod | hit rate, measured | played | gain of the gate, measured | played |")
    print("|---|---|---|---|---|")
    for live, (hit, gain) in PUBLIC.items():
        hits, gains = of_pod(receipt, live)
        print(f"| {live} | {hit:.2f} | {mean(hits)} | {gain:.2f} | {mean(gains)} |")
    for part, frame in rows[rows["part"] != "receipt"].groupby("part", sort=False):
        print(f"\n### {part}\n")
        values = frame.groupby(["rule", "load"])[["jct_mean_s", "output_per_gpu_hour", "hit_rate"]].mean()
        texts = values.apply(lambda v: f"{v.iloc[0]:.0f} / {v.iloc[1] / 1000:.0f} / {v.iloc[2]:.2f}", axis=1).unstack()
        print("Mean time of a turn (s) / thousand output tokens per GPU hour / hit rate:\n")
        print(markdown(texts.reindex(frame["rule"].unique())), "\n")
        for metric in SHOWN:
            if metric in frame:  # older rows lack some
                print(f"{metric}, 100 ln of the ratio to {BEST}:\n\n{markdown(against(frame, metric))}\n")
        holds = frame[frame["rule"].isin(GATED)].groupby(["rule", "load"])["longest_hold_s"].mean().unstack()
        print(f"Longest hold (s):\n\n{markdown(holds.round(0))}")


def draw(rows: pd.DataFrame) -> None:
    """Draw the receipt and the ranking over sessions per replica."""
    from rllib_scale_analysis.figures.chart import Chart, Marks, Panel
    from rllib_scale_analysis.figures.draw import draw as drawn
    from rllib_scale_analysis.figures.draw import save
    from rllib_scale_analysis.figures.style import MARKERS, VARIANT_COLOURS, Look

    receipt = rows[rows["part"] == "receipt"]
    measured, played = Look("#222222", "o", "--"), Look(VARIANT_COLOURS[-2], "s", "-")
    hit, gain = [], []
    for live in PUBLIC:
        hits, gains = of_pod(receipt, live)
        hit.append(hits)
        gain.append(gains)
    panels = []
    for title, column, values in (("Hit rate without a gate", 0, hit), ("Gain of the gate in output", 1, gain)):
        ends = [np.quantile(each, (0.1, 0.9)) for each in values]
        marks = [Marks([*PUBLIC], [public[column] for public in PUBLIC.values()], measured, "measured on vLLM")]
        low, high = [end[0] for end in ends], [end[1] for end in ends]
        means = [each.mean() for each in values]
        marks.append(Marks([*PUBLIC], means, played, "played: mean, 10 to 90 % of seeds", low, high))
        panels.append(Panel(marks, title, "sessions per pod"))
    closed = rows[rows["part"] == "closed loop, 8 replicas"]
    shown = [rule for rule in RULES if rule not in ("random-replica", "two-choices")]
    for title, metric in (
        ("Mean time of a turn (s)", "jct_mean_s"),
        ("Output tokens per GPU hour", "output_per_gpu_hour"),
    ):
        marks = []
        for number, rule in enumerate(shown):
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
