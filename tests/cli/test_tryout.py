"""`tryout`: a policy beside the best rules on the user's recorded workload and cluster."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from rllib_scale_analysis.verdict import MEASURED, RESPONSE, advice

from refused import refused
from rllib_scale.cli import main
from rllib_scale.config import scenario
from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from workloads.trace_samples import kv_session, request, write_lines

FAST_AND_SLOW = """
cluster:
  tiers:
    - {name: slow, count: 3, compute_gflops: 1, memory_gb: 80, idle_power_w: 1, busy_power_w: 2}
    - {name: fast, count: 1, compute_gflops: 8, memory_gb: 80, idle_power_w: 1, busy_power_w: 2}
"""
TAIL = MEASURED["fixed"].tail
RULES = ["fastest-idle", "non-blocking", "reserve", "hungarian", "dual-price", "adaptive-price"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded workload, and the cluster that it is played on."""
    folder = tmp_path_factory.mktemp("tryout")
    (folder / "own.yaml").write_text(FAST_AND_SLOW)
    env = scenario("steady-0.5").at_scale(4)
    long = env.model_copy(update={"episode": env.episode.model_copy(update={"arrivals_until_s": 1000.0})})
    generate(long, 1, 0).save(folder / "trace.json")
    (folder / "worst.py").write_text("from rllib_scale.schedulers.rules import RULES\nTurns = RULES['round-robin']\n")
    return folder


def tried(folder: Path, policy: str, *options: object) -> dict[str, Any]:
    """What the command prints with `--json`."""
    mine = ["--workload", folder / "trace.json", "--cluster", folder / "own.yaml"]
    done = CliRunner().invoke(main, [str(each) for each in ("tryout", policy, *mine, *options, "--json")])
    assert done.exit_code == 0, (done.stderr, done.exception)
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown | {"said": done.stderr}


def test_a_policy_is_judged_beside_the_rules(files: Path, tmp_path: Path) -> None:
    """On a fast server and slow ones a rule that waits for the fast one is the best."""
    found = tried(files, "zoo:context-price", "--episodes", 6, "--output", tmp_path / "rows.csv")
    names = [row["scheduler"] for row in found["schedulers"]]
    assert names == ["fastest-idle", "zoo:context-price", *RULES[1:]]
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows.groupby("method")["episode"].apply(list).tolist() == [list(range(6))] * 7
    assert rows["unfinished"].sum() == 0
    assert rows.groupby("episode")["arrived"].nunique().tolist() == [1] * 6, "all play the same episodes"
    assert rows["eval_seed"].nunique() == 1
    best = min(found["schedulers"], key=lambda row: row[RESPONSE])
    ratio = rows.pivot(index="episode", columns="method", values=RESPONSE)
    change = 100 * np.expm1(np.log(ratio[best["scheduler"]] / ratio["fastest-idle"]).mean())
    against = best[f"{RESPONSE}_percent"]
    assert against["mean"] == pytest.approx(change)
    assert against["low"] < against["mean"] < against["high"] < 0
    assert found["advice"].startswith(f"Use {best['scheduler']}: it answers {-change:.1f} % (")
    assert "zoo:context-price" in found["advice"]
    assert f"episodes draw from {found['drawn_from']} of them, for 4 servers at load 0." in found["said"]
    assert "adaptive-price has played: 7 of 7 schedulers" in found["said"]


def rows_of(**factors: float) -> pd.DataFrame:
    """Eight episodes, in which each scheduler takes so many times as long as a common draw, about."""
    rng = np.random.default_rng(0)
    common, rows = rng.uniform(5, 10, 8), []
    for name, factor in factors.items():
        for episode, base in enumerate(common * factor * np.exp(rng.normal(0, 0.01, 8))):
            rows.append({"method": name, "episode": episode, RESPONSE: base, TAIL: 3 * base, "unfinished": 0})
    return pd.DataFrame(rows)


def test_the_advice_names_what_to_use() -> None:
    def said(rows: pd.DataFrame, workflows: int = 100) -> str:
        return advice(rows, "mine", "base", workflows)

    good = rows_of(base=1.0, mine=0.8, rule=0.9)
    assert said(good).startswith("Use mine: it answers ")
    assert said(good).endswith(" sooner than base, and no rule is better.")
    level = said(rows_of(base=1.0, mine=0.8, rule=0.798))
    assert level.startswith("Use mine: it answers ")
    assert level.endswith(" sooner than base, and no rule is clearly better."), "0.2 % of 1 % noise decides nothing"
    other = said(rows_of(base=1.0, mine=0.95, rule=0.8))
    assert other.startswith("Use rule: it answers ")
    assert "and mine answers " in other
    assert other.endswith(" later than rule.")
    for same in (rows_of(base=1.0, mine=1.0, rule=1.1), rows_of(base=1.0, mine=1.2, rule=0.995)):
        assert said(same).startswith("Keep base: nothing answers clearly sooner")
    heavy = good.assign(**{TAIL: good[TAIL] * np.where(good["method"] == "mine", 2.0, 1.0)})
    assert "mind its 95th percentile of job completion times" in said(heavy)
    unfinished = good.assign(unfinished=(good["method"] == "mine").astype(int))
    assert said(unfinished).startswith("Use rule: ")
    assert said(good, 12) == "Too few workflows to tell: the episodes draw from 12; at least 30 are needed."
    assert said(good[good["episode"] < 3]).startswith("Too few episodes to tell: 3 played")
    assert advice(good[good["method"] != "mine"], "base", "base", 100).startswith("Use rule: ")


@pytest.mark.slow
def test_what_options_say_of_rate_and_clock_holds(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(files)
    default = tried(files, "worst:Turns", "--episodes", 5)
    assert [row["scheduler"] for row in default["schedulers"]][1] == "worst:Turns"
    assert tried(files, "worst:Turns", "--episodes", 5)["schedulers"] == default["schedulers"]
    assert tried(files, "worst:Turns", "--episodes", 5, "--seed", 2)["schedulers"] != default["schedulers"]
    given = tried(files, "reserve", "--episodes", 5, "--set", "workload.offered_load=0.9")
    assert given["load"] == pytest.approx(0.9)
    assert given["schedulers"][0][RESPONSE] > default["schedulers"][0][RESPONSE]
    recorded = tried(files, "reserve", "--episodes", 5, "--set", "workload.trace.arrivals=recorded")
    assert recorded["load"] == pytest.approx(default["load"])
    halved = tried(files, "reserve", "--servers", 8, "--episodes", 5)
    assert halved["load"] == pytest.approx(default["load"] / 2, rel=0.2)
    assert "more than the servers can do" in tried(files, "reserve", "--set", "workload.offered_load=1.2")["said"]
    coding = tried(files, "reserve", "--episodes", 2, "--scenario", "coding-agents-0.7")
    assert coding["scenario"] == "coding-agents-0.7"
    assert coding["load"] == default["load"]


@pytest.mark.slow
def test_a_short_workload_and_one_rule_that_cannot_play(tmp_path: Path) -> None:
    sample = Workload.load("sample:agents")
    sample.take(np.arange(24), sample.arrival_s[:24]).save(tmp_path / "short.json")
    options = ["--workload", str(tmp_path / "short.json"), "--servers", "8", "--episodes", "5"]
    done = CliRunner().invoke(main, ["tryout", "fastest-idle", *options])
    assert done.exit_code == 0, done.output
    assert "short.json: 24 workflows; episodes draw from 24 of them" in done.output
    few = "Too few workflows to tell: the episodes draw from 24; at least 30 are needed."
    assert done.output.index(few) < done.output.index("has played"), "before it runs"
    assert done.output.count(few) == 2


def test_workflows_without_work_are_refused(tmp_path: Path) -> None:
    sample = Workload.load("sample:agents")
    idle = replace(sample, compute_gflop=np.zeros(sample.num_tasks))
    idle.save(tmp_path / "idle.json")
    given = "--workload", tmp_path / "idle.json", "--servers", 8
    said = refused("fit-workload", tmp_path / "idle.json", "--output", tmp_path / "t.json")
    assert f"{sample.num_tasks} tasks, {sample.num_tasks} of them without work: first_compute_gflop" in said
    assert "compute_gflop is 0 in all tasks of" in refused("tryout", "reserve", *given)
    load = "--set", "workload.offered_load=0.7"
    assert "compute_gflop is 0 in all tasks of" in refused("tryout", "reserve", *given, *load)
    trace = f"workload.trace.file={tmp_path / 'idle.json'}"
    options = "--scenario", "steady-0.7", "--scales", 8, "--episodes", 1, "--set", trace
    assert "workload.offered_load 0.7: the workflows have no work" in refused("evaluate", "reserve", *options)


def test_the_sample_of_the_documented_command_gives_a_verdict() -> None:
    page = (Path(__file__).parents[2] / "docs" / "which-scheduler.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^rllib-scale (tryout .* --workload sample:agents .*)$", page, flags=re.MULTILINE)
    done = CliRunner().invoke(main, [*line.split(), "--episodes", "5", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["workflows"] >= 60
    assert found["load"] < 1
    assert found["advice"].startswith(("Use ", "Keep "))


def test_on_replicas_drawn_or_recorded_sessions_are_played_beside_the_rules_of_replicas(tmp_path: Path) -> None:
    """One episode of each by hand gives the figures of the table."""
    mine = ["--scenario", "agents-replicas", "--servers", "2", "--episodes", "5", "--horizon", "900"]
    mine += ["--set", "service.warm_up_s=100", "--set", "service.sessions=24"]
    done = CliRunner().invoke(
        main, ["tryout", "session-affinity", *mine, "--json", "--output", str(tmp_path / "r.csv")]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    found, rows = json.loads(done.stdout), pd.read_csv(tmp_path / "r.csv")
    names = [row["scheduler"] for row in found["schedulers"]]
    assert names[:2] == ["lmetric:gate=1", "session-affinity"]
    assert "fastest-idle" not in names
    assert rows.groupby("method")["episode"].apply(list).tolist() == [list(range(5))] * len(names)
    assert found["sessions"] == 200
    assert "episodes draw from 200 sessions, for 2 replicas" in done.stderr
    env = scenario("agents-replicas").at_scale(2)
    service = env.service.model_copy(update={"warm_up_s": 100.0, "sessions": 24})
    env = env.model_copy(update={"service": service, "episode": env.episode.model_copy(update={"horizon_s": 900.0})})
    (row,) = rows[(rows["method"] == "session-affinity") & (rows["episode"] == 3)].to_dict("records")
    metrics = play(make_policy("session-affinity", env), env, int(row["eval_seed"]), [3]).metrics()
    assert row[RESPONSE] == pytest.approx(metrics[RESPONSE])
    assert row[MEASURED["replica"].tail] == pytest.approx(metrics[MEASURED["replica"].tail])

    trace = tmp_path / "sessions.jsonl"
    write_lines(trace, *(kv_session(request(0.0, 100, 9), request(500.0, 200, 9)) | {"id": str(k)} for k in range(12)))
    recorded = [*mine, "--set", f"service.trace={trace}"]
    done = CliRunner().invoke(main, ["tryout", "lmetric", *recorded])
    assert "sessions.jsonl: episodes draw from 12 sessions" in done.output
    assert "Too few sessions to tell: the episodes draw from 12; at least 30" in done.output
    line = refused("tryout", "lmetric", *mine, "--set", "service.arrivals_per_s=recorded")
    assert "service.arrivals_per_s recorded: every episode would be the same" in line
    assert "--workload: is missing" in refused("tryout", "reserve")
