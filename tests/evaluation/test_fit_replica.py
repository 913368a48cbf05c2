"""Logs of servers in each format, and the fit of a replica to them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from refused import refused
from rllib_scale.cli import main
from rllib_scale.config.replicas import GPUS, MODELS, PRESETS, Replica
from rllib_scale.errors import UserError
from rllib_scale.evaluation.fit_replica import Log, Replay, fit_replica, read_log

TRACES = Path(__file__).parents[3] / "shared" / "traces"
LIMITS = Replica(kv_tokens=30_000, call_s=0.0, attention_s=0.0)
TRUE = LIMITS.model_copy(update={"step_s": 0.02, "context_s": 2e-7, "prefill_s": 1e-4, "request_s": 0.004})
SERVED = {"input_toks": 30, "output_toks": 3, "queued_ts": 5.0, "scheduled_ts": 5.1, "first_token_ts": 5.5}
GUIDED = {"prompt_tokens": 30, "output_tokens": 3, "request_start_time": 5.0, "request_latency": 1.5}
GUIDED |= {"time_to_first_token_ms": 500.0}
BENCH = {"input_lens": [30], "output_lens": [3], "ttfts": [0.5], "itls": [[0.4, 0.6]], "start_times": [5.0]}


def measured(loads: dict[str, float]) -> Log:
    """A log by the model itself: load -> requests a second."""
    rng, parts = np.random.default_rng(3), []
    for load, rate in loads.items():
        rows = {"load": load, "start_s": np.cumsum(rng.exponential(1 / rate, 14)), "ttft_s": np.nan}
        rows |= {"prompt": rng.integers(200, 4000, 14), "output": rng.integers(5, 60, 14), "latency_s": 1.0}
        parts.append(pd.DataFrame(rows))
    played = Replay(Log(pd.concat(parts, ignore_index=True))).modelled(TRUE)
    return Log(played.assign(latency_s=played["latency_model_s"]).drop(columns=["latency_model_s", "ttft_model_s"]))


def test_a_fit_finds_the_replica_that_made_the_log_on_loads_that_it_did_not_see() -> None:
    log = measured({"idle": 0.3, "busy": 1.5, "full": 50.0})
    assert [log.is_saturated(load) for load in log.loads] == [False, False, True]
    fit = fit_replica(log, LIMITS, ["idle", "full"])
    errors = {row["load"]: row for row in fit.errors()}
    assert max(row["latency_median"] for row in errors.values()) < 0.01
    assert abs(errors["full"]["capacity"]) < 0.01
    assert [errors[load]["fitted"] for load in log.loads] == [True, False, True]
    assert fit.replica.step_s == pytest.approx(TRUE.step_s, rel=0.03)
    with pytest.raises(UserError, match="--fit idle,busy: no load is saturated"):
        fit_replica(log, TRUE, ["idle", "busy"])
    with pytest.raises(UserError, match=r"'ful'.*valid: idle, busy, full"):
        fit_replica(log, TRUE, ["ful"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "prompt_tokens,output_tokens,start_s,ttft_ms,latency_s\n30,3,5.0,500,1.5\n"),
        ("b.csv", "prompt_tokens,output_tokens,queued_s,first_token_s,last_token_s\n30,3,5.0,5.5,6.5\n"),
        ("c.jsonl", json.dumps(SERVED | {"last_token_ts": 6.5})),
        ("d.json", json.dumps({"benchmarks": [{"requests": {"successful": [GUIDED]}}]})),
        ("e.json", json.dumps(BENCH)),
    ],
)
def test_each_format_gives_the_same_requests(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    (row,) = read_log([tmp_path / name]).rows.drop(columns="load").to_dict("records")
    assert row == pytest.approx({"start_s": 5.0, "prompt": 30, "output": 3, "latency_s": 1.5, "ttft_s": 0.5})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "prompt_tokens,output_tokens\n30,3\n", "a.csv line 2: needs start_s and latency_s"),
        ("a.csv", "prompt_tokens,output_tokens,start_s,latency_s\n30,x,0,1\n", "a.csv line 2: output_tokens"),
        ("a.csv", "prompt_tokens,output_tokens,queued_s,first_token_s,last_token_s\n3,3,2,1,1\n", "must be above 0"),
        (
            "a.csv",
            "prompt_tokens,output_tokens,queued_s,first_token_s,last_token_s\n3,3,2,1,3\n",
            "time to first token -1",
        ),
        ("a.csv", "", "a.csv: is empty"),
        ("c.jsonl", json.dumps(SERVED), "c.jsonl line 1: last_token_ts"),
        ("c.jsonl", "{", "c.jsonl line 1: not valid JSON"),
        ("d.json", "{}", "neither `benchmarks` (guidellm) nor `input_lens` (vLLM)"),
        ("d.json", json.dumps({"benchmarks": [{"requests": {"successful": []}}]}), "no completed request"),
        ("d.json", json.dumps({"benchmarks": [{"requests": {"successful": [{}]}}]}), "request_latency"),
        ("e.json", json.dumps(BENCH | {"itls": []}), "itls and start_times must have one entry per request"),
        ("e.json", json.dumps(BENCH | {"start_times": None, "request_rate": 2}), "save-detailed"),
    ],
)
def test_a_malformed_log_is_refused_in_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert said in refused("fit-replica", tmp_path / name)


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """Of 6 requests of vLLM two failed; of 6 of guidellm one failed, one was not finished and one stands twice."""
    bench = {key: values * 6 for key, values in BENCH.items()} | {"errors": ["", "refused", "", "", "", ""]}
    bench["output_lens"] = [3, 3, 0, 3, 3, 3]
    guided = [GUIDED | {"request_id": name} for name in "abca"]
    parts = {"successful": guided, "incomplete": [{}], "errored": [{}]}
    for name, content, left_out in (
        ("vllm.json", bench, {"failed": 2}),
        ("guided.json", {"benchmarks": [{"requests": parts}]}, {"incomplete": 1, "errored": 1, "read before": 1}),
    ):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        log = read_log([tmp_path / name])
        assert (len(log.rows), +log.left_out) == (6 - sum(left_out.values()), left_out)
    result = CliRunner().invoke(main, ["fit-replica", str(tmp_path / "vllm.json"), "--unsaturated"])
    assert "4 of 6 requests; left out: 2 failed\n3 requests the same as an earlier one, kept\n" in result.stdout
    (tmp_path / "copy.json").write_bytes((tmp_path / "vllm.json").read_bytes())
    assert len(read_log([tmp_path / "vllm.json", tmp_path / "copy.json"]).rows) == 4


def test_presets_are_all_pairs_that_name_their_sources() -> None:
    assert {f"{gpu}/{llm}" for gpu in GPUS for llm in MODELS} < set(PRESETS)
    for replica in PRESETS.values():
        for name in ("step_s", "call_s", "context_s", "prefill_s", "attention_s", "kv_tokens", "token_budget"):
            assert name in replica.sources
        assert "[" in replica.sources
        assert "assumed" in replica.sources


@pytest.mark.parametrize(("calls", "context", "measured_s"), [(2.5, 227_000, 7.8e-3), (10, 783_000, 20.4e-3)])
def test_the_pod_takes_the_steps_that_were_measured(calls: float, context: int, measured_s: float) -> None:
    pod = PRESETS["2xh100/30b-a3b"]
    assert pod.step_s + pod.call_s * calls + pod.context_s * context == pytest.approx(measured_s, rel=0.005)


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.exists(), reason="the measured logs are beside the clone")
def test_loads_of_vllm_that_were_not_fitted_are_met_within_4_percent() -> None:
    log = read_log([TRACES / "vllm-codellama-34b.csv"])
    limits = Replica(kv_tokens=40_592, token_budget=4096, call_s=0.0)
    errors = fit_replica(log, limits, ["synchronous", "throughput", "2.90"], prefix_tokens=1024).errors()
    not_fitted = {row["load"]: row["latency_median"] for row in errors if not row["fitted"]}
    assert set(not_fitted) == {"1.95", "3.84"}
    assert max(not_fitted.values()) <= 0.04


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.exists(), reason="the measured logs are beside the clone")
@pytest.mark.parametrize(
    ("name", "limits"), [("4090", Replica(kv_tokens=41_408)), ("pro6000", Replica(kv_tokens=500_000, max_calls=128))]
)
def test_vllm_on_two_gpus_is_met_within_3_percent_and_memory_matters(name: str, limits: Replica) -> None:
    log = read_log([TRACES / f"vllm-llama31-8b-rtx{name}.csv"])
    (row,) = fit_replica(log, limits.model_copy(update={"token_budget": 2048, "call_s": 0.0})).errors()
    assert row["latency_median"] <= 0.03
    if name == "4090":
        (row,) = fit_replica(log, Replica(kv_tokens=10**9, token_budget=2048, call_s=0.0)).errors()
        assert row["latency_median"] > 0.2
