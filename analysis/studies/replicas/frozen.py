"""The rules of commit 631fb88, frozen: what later gates, orders and policies of this study are compared with.

    python analysis/studies/replicas/frozen.py SESSIONS ROWS [--rules "RULE;..."] [--parts "PART;..."] [--set second]
    python analysis/studies/replicas/frozen.py --compare ROWS [--parts "PART;..."] [--loads 24,32,40] [--against RULE]

The first plays rules or policies on every load, in the episodes of the frozen rows, and writes ROWS (parquet); without
--rules the rules of those; with `--caches own` they know what a router remembers. `--set choice` plays the training
half, to choose parameters. The second prints 100 ln of the ratio of means to the frozen `lmetric:gate=1`
of the same episodes (in `short gaps` also to the best constant gate
there), with --against to a rule of ROWS, with 95 % intervals over episodes, for each load and their mean.

SESSIONS: recorded sessions in the format of kv-cache-tester, of which else the test half is played. `short gaps` is 84
of them per replica from their first call, with gaps of at most 10 s, half the tokens and answers 1.5 times as long.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from study import BEST, COMPARED, HOLD, MIXED, POD, Fleet, half_interval, problem, ratio  # type: ignore[import-not-found]

from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy

HERE = Path(__file__).parent
FROZEN = HERE / "frozen"
SEEDS = {"first": 62_101, "second": 62_102, "third": 62_103, "fourth": 62_104, "fifth": 62_105, "choice": 71_001}
"""Evaluation seeds of sets of rows; no search or training uses them. The second and the third were opened for the first
two sets of indices of `release`, the fourth for release.parquet, the fifth for fifth.parquet; the last three have no
frozen rows, and are compared with `--against`. `choice` has episodes of the training half."""
RULES = ("lmetric", BEST)
GATES = tuple(f"lmetric:gate={share:g}" for share in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0))
SHORT = "short gaps"
METRICS = (
    *("completed", "unfinished", "response_mean_s", "response_p99_s", "response_censored_s", "response_censored_p99_s"),
    *("jct_mean_s", "jct_p99_s", "jct_censored_s", "jct_censored_p99_s", "ttft_mean_s", "ttft_p95_s", "tpot_mean_s"),
    *("output_per_gpu_hour", "hit_rate", "working_set", "held_calls", "longest_hold_s", "slo_share"),
)


class Load(NamedTuple):
    """A part of the study at one of its loads."""

    part: str
    fleet: Fleet
    service: dict[str, Any]
    rules: tuple[str, ...]
    episodes: int
    hours: int = 1

    @property
    def at(self) -> float:
        """Live sessions, or sessions per second, of a replica."""
        return float(self.service.get("arrivals_per_s") or self.service["sessions"])


def loads() -> Iterator[Load]:
    """Everything that is played: the loads of study.py, 12 sessions, and short gaps."""
    every, pods = RULES, {"pod": (8, POD)}
    for live in (8, 12, 16, 20, 24, 28, 32, 40):
        yield Load("closed loop, 8 replicas", pods, {"sessions": live}, every, 10)
    gaps = {"sessions": 84, "start": "first", "tool_gap_cap_s": 10.0, "think_gap_cap_s": 10.0}
    yield Load(SHORT, {"pod": (4, POD)}, gaps, (*every, *GATES[:-1]), 10)
    for live in (16, 24, 32):
        yield Load("mixed hardware, 8 replicas", MIXED, {"sessions": live}, every, 10)
    for rate in (0.004, 0.008, 0.012):
        yield Load("open loop, 8 replicas", pods, {"arrivals_per_s": rate}, every, 10)
    for live in (12, 16, 20, 24, 32):
        yield Load("receipt", {"pod": (1, POD)}, {"sessions": live}, every, 10, hours=2)
    for live in (16, 24):
        yield Load("closed loop, 64 replicas", {"pod": (64, POD)}, {"sessions": live}, every, 3)
    yield Load("closed loop, 512 replicas", {"pod": (512, POD)}, {"sessions": 24}, RULES, 1)


def with_half_the_tokens(source: Path, copy: Path) -> Path:
    """Write the sessions with half the tokens and answers 1.5 times as long."""

    def scale(entry: dict[str, Any]) -> None:
        for key, factor in (("in", 0.5), ("out", 1.5), ("tool_tokens", 0.5), ("system_tokens", 0.5)):
            if entry.get(key) is not None:
                entry[key] = round(factor * entry[key])
        for inner in entry.get("requests", ()):
            scale(inner)

    text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    sessions = [json.loads(line) for line in text.splitlines() if line.strip()]
    for session in sessions:
        scale(session)
    copy.write_text("".join(json.dumps(session) + "\n" for session in sessions), encoding="utf-8")
    return copy


def played(
    source: Path,
    which: str,
    rules: Sequence[str] = (),
    parts: Sequence[str] = (),
    caches: str = "exact",
    count: int = 0,
) -> Iterator[pd.DataFrame]:
    """Rows of each rule at each load, in episodes of a set; `caches`: what is known of them, `count`: of episodes."""
    half = "train" if which == "choice" else "test"
    with tempfile.TemporaryDirectory() as folder:
        short = with_half_the_tokens(source, Path(folder) / "short-gaps.jsonl")
        for load in loads():
            if parts and load.part not in parts:
                continue
            sessions = short if load.part == SHORT else source
            env, episodes = (
                problem(sessions, load.fleet, load.hours, part=half, **load.service),
                range(count or load.episodes),
            )
            env = env.model_copy(update={"observation": env.observation.model_copy(update={"caches": caches})})
            for rule in rules or load.rules:
                path = HERE / rule
                policy = make_policy(str(path) if path.is_dir() else rule, env)
                engine: Any = play(policy, env, SEEDS[which], list(episodes))
                facts: dict[str, Any] = {"part": load.part, "load": load.at, "rule": rule, "seed": SEEDS[which]}
                metrics = pd.DataFrame([engine.metrics(b) for b in episodes])[[*METRICS]].astype(np.float32)
                yield metrics.assign(**facts, episode=episodes)[[*facts, "episode", *METRICS]]


def against(base: pd.DataFrame, own: pd.DataFrame) -> tuple[dict[str, float], pd.DataFrame]:
    """`ratio` of COMPARED over pairs of episodes; the longest hold, which may be 0, is a mean."""
    key = ["part", "load", "seed", "episode"]
    pairs = own.merge(base, on=key, suffixes=("", "_base"), validate="one_to_one").set_index("episode")
    if len(pairs) < len(own):
        raise SystemExit(f"{len(own)} episodes of {own['rule'].iloc[0]}: the frozen rows have {len(pairs)} of them")
    found, added = dict[str, float](), pd.DataFrame(index=pairs.index)
    for metric, name in COMPARED.items():
        if name == HOLD:
            found[name] = float(pairs[metric].astype(float).mean())
        else:
            found[name], added[name] = ratio(pairs[metric], pairs[f"{metric}_base"])
    return found, added


def line(words: Sequence[str], found: dict[str, float], added: pd.DataFrame) -> str:
    """A line of the table: each metric with half of its 95 % interval."""
    halves = added.agg(half_interval)
    texts = [
        f"{found[name]:+.1f}" + (f" ± {halves[name]:.1f}" if halves[name] == halves[name] else "")
        for name in map(str, added.columns)
    ]
    return "| " + " | ".join([*words, *texts, f"{found[HOLD]:.0f}"]) + " |"


def compare(rows: pd.DataFrame, rule_of_rows: str = "") -> None:
    """Print rows against the frozen ones of their episodes, each load and the mean over the loads of a part."""
    sets = {seed: name for name, seed in SEEDS.items()}
    frozen = rows if rule_of_rows else pd.read_parquet(FROZEN / f"{sets[int(rows['seed'].iloc[0])]}.parquet")
    head = ["part", "load", "rule", "against", *(name for name in COMPARED.values() if name != HOLD), f"{HOLD}, s"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for (part, rule), of_rule in rows.groupby(["part", "rule"], sort=False):
        of_part = frozen[frozen["part"] == part]
        bases = [rule_of_rows or BEST]
        if part == SHORT and not rule_of_rows:
            constant = of_part[of_part["rule"].isin(GATES)]
            bases.append(str(constant.groupby("rule")["output_per_gpu_hour"].mean().idxmax()))
        for base in bases:
            of_base = of_part[of_part["rule"] == base]
            at_loads = [float(at) for at in of_rule["load"].unique()]
            found = {at: against(of_base, of_rule[of_rule["load"] == at]) for at in at_loads}
            for at, each in found.items():
                print(line([str(part), f"{at:g}", str(rule), base], *each))
            if len(found) > 1:
                means = {
                    name: float(np.mean([values[name] for values, _ in found.values()])) for name in COMPARED.values()
                }
                added = pd.concat([each for _, each in found.values()]).groupby("episode").mean()
                print(line([str(part), "all of these", str(rule), base], means, added))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--rules", default="")
    parser.add_argument("--parts", default="")
    parser.add_argument("--loads", default="")
    parser.add_argument("--against", default="")
    parser.add_argument("--set", default="first", choices=SEEDS)
    parser.add_argument("--episodes", type=int, default=0, help="of each load; by default as the frozen rows")
    parser.add_argument("--caches", default="exact", choices=("exact", "own"))
    given = parser.parse_args()
    parts = tuple(part for part in given.parts.split(";") if part)
    if given.compare:
        rows, at = pd.read_parquet(given.paths[0]), [float(load) for load in given.loads.split(",") if load]
        compare(rows[(rows["part"].isin(parts) | (not parts)) & (rows["load"].isin(at) | (not at))], given.against)
        return
    source, target = given.paths
    rules = tuple(rule for rule in given.rules.split(";") if rule)
    every = list[pd.DataFrame]()
    for rows in played(source, given.set, rules, parts, given.caches, given.episodes):
        every.append(rows)
        print(*rows[["part", "load", "rule"]].iloc[0], flush=True)
        pd.concat(every, ignore_index=True).to_parquet(target, index=False, compression="zstd")


if __name__ == "__main__":
    main()
