"""Fits the coefficients of a replica to logs of a real server.

All loads are played one after the other on one replica, which keeps its caches, at their recorded starts. The fit
minimises the mean over loads of the mean |log(model / measurement)| of the requests' latencies. Not fitted: `call_s`,
which a log cannot tell from `step_s` and `context_s`, and `attention_s` where no prompt is longer than LONG.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from rllib_scale.config.replicas import Replica
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError, choice_error
from rllib_scale.simulator.replicas.rules import LEAST, VALUES, run
from rllib_scale.simulator.replicas.scripts import requests
from rllib_scale.simulator.replicas.state import START, new_fleet
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.fields import Amount, Name, Record, Whole
from rllib_scale.workloads.formats.sources import distinct_files, read_csv, read_json
from rllib_scale.workloads.random_numbers import new_generator

LONG = 16_384
"""Prompt [tokens] from which `attention_s` shows in latencies."""
SATURATED = 0.5
"""A load is saturated if more than this share of its requests were unfinished when the last one came."""
_ONLY = np.array([LEAST, *(0.0 for _ in VALUES)])
_STOP = {"xatol": 1e-3, "fatol": 1e-6, "maxfev": 600}
BETWEEN_S = 3600.0
"""Pause between two loads."""
Latency = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1, le=10**9)]
Request = tuple[str, float, int, int, float, float]
"""Load, start [s], prompt and output [tokens], latency [s], time to first token [s] or NaN."""


@dataclass
class Log:
    """Requests of one or several loads.

    Attributes:
        rows: with the columns load, start_s, prompt, output, latency_s, ttft_s (or NaN).
        left_out: how many others there were, by what became of them.
    """

    rows: pd.DataFrame
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def loads(self) -> list[str]:
        """Names, in the order of the log."""
        return list(dict.fromkeys(self.rows["load"]))

    def is_saturated(self, load: str) -> bool:
        """Whether most of its requests were unfinished when the last one came."""
        of = self.rows[self.rows["load"] == load]
        return float((of["start_s"] + of["latency_s"] > of["start_s"].max()).mean()) > SATURATED


class _Row(BaseModel):
    """A row of a CSV file; times in seconds from any reference, `_ms` in milliseconds."""

    prompt_tokens: Tokens
    output_tokens: Tokens
    benchmark: str = ""
    strategy: str = ""
    rate: Amount | None = None
    start_s: Amount | None = None
    latency_s: Latency | None = None
    ttft_ms: Amount | None = None
    itl_ms: Amount | None = None
    queued_s: Amount | None = None
    scheduled_s: Amount | None = None
    first_token_s: Amount | None = None
    last_token_s: Amount | None = None

    def request(self, where: str) -> Request:
        """Load, start, prompt, output, latency, time to first token."""
        load = self.strategy or self.benchmark or "all"
        load = load if self.rate is None else f"{self.rate:.2f}"
        if self.start_s is not None and self.latency_s is not None:
            ttft_s = math.nan if self.ttft_ms is None else self.ttft_ms / 1000
            return load, self.start_s, self.prompt_tokens, self.output_tokens, self.latency_s, ttft_s
        if self.queued_s is None or self.first_token_s is None or self.last_token_s is None:
            raise UserError(f"{where}: needs start_s and latency_s, or queued_s, first_token_s and last_token_s")
        first_s, latency_s = self.first_token_s - self.queued_s, self.last_token_s - self.queued_s
        return load, self.queued_s, self.prompt_tokens, self.output_tokens, latency_s, first_s


class _Served(Record):
    """A line of LLMServingSim's requests.jsonl."""

    input_toks: Tokens
    output_toks: Tokens
    queued_ts: Amount
    first_token_ts: Amount
    last_token_ts: Amount


class _Request(Record):
    """A request of guidellm; the names of its times differ between versions."""

    request_id: Name | None = None
    prompt_tokens: Whole | None = None
    output_tokens: Whole | None = None
    request_start_time: Amount | None = None
    start_time: Amount | None = None
    request_latency: Latency
    time_to_first_token_ms: Amount | None = None


class _Requests(Record):
    successful: list[_Request]
    incomplete: list[Any] | None = None
    errored: list[Any] | None = None


class _Benchmark(Record):
    requests: _Requests
    args: dict[str, Any] | None = None
    config: dict[str, Any] | None = None

    def request(self, of: _Request, number: int, where: str) -> Request:
        """Load, start, prompt, output, latency, time to first token."""
        strategy = (self.config or self.args or {}).get("strategy") or {}
        load = f"{strategy['rate']:.2f}" if strategy.get("rate") else str(strategy.get("type_") or number)
        start_s = of.request_start_time if of.start_time is None else of.start_time
        if start_s is None or of.prompt_tokens is None or of.output_tokens is None:
            raise UserError(f"{where}: a request without prompt_tokens, output_tokens or request_start_time")
        ttft_s = math.nan if of.time_to_first_token_ms is None else of.time_to_first_token_ms / 1000
        return load, start_s, of.prompt_tokens, of.output_tokens, of.request_latency, ttft_s


class _Report(Record):
    """A JSON file of guidellm, or of `vllm bench serve --save-result --save-detailed`."""

    benchmarks: list[_Benchmark] | None = None
    input_lens: list[Whole] | None = None
    output_lens: list[Whole] | None = None
    ttfts: list[Amount] | None = None
    itls: list[list[Amount]] | None = None
    errors: list[Any] | None = None
    start_times: list[Amount] | None = None
    request_rate: Any = "inf"
    max_concurrency: int | None = None


def read_log(paths: Sequence[Path], progress: Progress | None = None) -> Log:
    """Requests of logs: CSV, JSON of guidellm or vLLM, LLMServingSim's requests.jsonl; several files are several loads.

    Raises:
        UserError: a file cannot be read, or is no such log.
    """
    progress, found, left_out = progress or Progress(), list[Request](), Counter[str]()
    for path in distinct_files(paths, progress):
        name = path.name.split(".")[0]
        for where, request in _requests(path, name, progress, left_out):
            load, start_s, prompt, output, latency_s, ttft_s = request
            if not (latency_s > 0 and prompt > 0 and output > 0):
                raise UserError(f"{where}: latency, prompt and output must be above 0 (got {request[2:5]})")
            if not (math.isnan(ttft_s) or 0 <= ttft_s <= 1.001 * latency_s + 1e-3):
                raise UserError(
                    f"{where}: time to first token {ttft_s:g} s: must be at most the latency, {latency_s:g} s"
                )
            progress.seen.is_equal("requests the same as an earlier one, kept", path, *request)
            load = load if len(paths) == 1 or path.name.endswith(".json") else f"{name} {load}"
            found.append((load, start_s, prompt, output, latency_s, ttft_s))
    rows = pd.DataFrame(found, columns=["load", "start_s", "prompt", "output", "latency_s", "ttft_s"])
    if rows.empty:
        raise UserError(f"{', '.join(map(str, paths))}: no completed request")
    return Log(rows, left_out)


def _requests(path: Path, name: str, progress: Progress, left_out: Counter[str]) -> Iterator[tuple[str, Request]]:
    """Place and values of each request of a file."""
    if path.suffix == ".csv":
        for where, row in read_csv(path, _Row, progress):
            yield where, build_model(_Row, row, where).request(where)
        return
    found: list[tuple[str, Request]] = []

    def add_served(row: _Served, where: str) -> None:
        times = (row.last_token_ts - row.queued_ts, row.first_token_ts - row.queued_ts)
        found.append((where, (name, row.queued_ts, row.input_toks, row.output_toks, *times)))

    def add_report(report: _Report, where: str) -> None:
        if report.benchmarks is not None:
            for number, benchmark in enumerate(report.benchmarks):
                at, of = f"{where}: benchmark {number}", benchmark.requests
                left_out.update(incomplete=len(of.incomplete or ()), errored=len(of.errored or ()))
                for request in of.successful:
                    if progress.seen.is_repeated("requests", request.request_id):
                        left_out["read before"] += 1
                    else:
                        found.append((at, benchmark.request(request, number, at)))
        elif report.input_lens is not None:
            found.extend((where, request) for request in _of_vllm(report, name, where, left_out))
        else:
            raise UserError(f"{where}: neither `benchmarks` (guidellm) nor `input_lens` (vLLM) is there")

    if path.name.endswith((".jsonl", ".jsonl.gz")):
        read_json([path], _Served, add_served, progress)
    else:
        read_json([path], _Report, add_report, progress)
    yield from found


def _of_vllm(report: _Report, name: str, where: str, left_out: Counter[str]) -> Iterator[Request]:
    columns: list[list[Any]] = [
        each or [] for each in (report.input_lens, report.output_lens, report.ttfts, report.itls)
    ]
    columns.append(report.errors or [""] * len(columns[0]))
    starts = report.start_times
    if starts is None and str(report.request_rate) == "inf" and report.max_concurrency is None:
        starts = [0.0] * len(columns[0])
    if starts is None or {len(column) for column in columns} != {len(starts)}:
        raise UserError(
            f"{where}: input_lens, output_lens, ttfts, errors, itls and start_times must have one entry per request "
            "(`vllm bench serve --save-result --save-detailed`)"
        )
    for start_s, prompt, output, ttft_s, itls, error in zip(starts, *columns, strict=True):
        if error or not (output > 0 and ttft_s > 0):
            left_out["failed"] += 1
        else:
            yield name, start_s, prompt, output, ttft_s + sum(itls), ttft_s


@dataclass
class Fit:
    """A fitted replica.

    Attributes:
        replica: its coefficients.
        fitted: loads that were fitted.
        rows: of the log, with the model's latency_model_s and ttft_model_s.
    """

    replica: Replica
    fitted: list[str]
    rows: pd.DataFrame

    def errors(self) -> list[dict[str, Any]]:
        """Errors of each load: relative errors of latencies, and of the capacity where the load is saturated."""
        table = []
        for load, of in self.rows.groupby("load", sort=False):
            error = (of["latency_model_s"] / of["latency_s"] - 1).abs()
            first = (of["ttft_model_s"] / of["ttft_s"].where(of["ttft_s"] > 0) - 1).abs()
            row = {"load": load, "fitted": load in self.fitted, "requests": len(of)}
            row |= {"latency_median": float(error.median()), "latency_mean": float(error.mean())}
            row |= {"ttft_median": float(first.median()), "capacity": math.nan}
            row |= {"measured_s": float(of["latency_s"].mean()), "model_s": float(of["latency_model_s"].mean())}
            if Log(self.rows).is_saturated(str(load)):
                row["capacity"] = _span(of, "latency_s") / _span(of, "latency_model_s") - 1
            table.append(row)
        return table


def _span(of: pd.DataFrame, latency: str) -> float:
    return float((of["start_s"] + of[latency]).max() - of["start_s"].min())


class Replay:
    """The requests of a log, to be played on replicas."""

    def __init__(self, log: Log, prefix_tokens: int = 0) -> None:
        ordered = log.rows.sort_values("start_s", kind="stable")
        self.rows = pd.concat([ordered[ordered["load"] == load] for load in log.loads], ignore_index=True)
        self.measured_s = self.rows["latency_s"].to_numpy()
        self.load = pd.factorize(self.rows["load"])[0]
        self._scripts = requests(self.rows["prompt"].to_numpy(), self.rows["output"].to_numpy(), prefix_tokens)
        self._starts, at_s = np.zeros(len(self.rows), START), 0.0
        self._starts["script"] = np.arange(len(self.rows))
        for number, load in enumerate(log.loads):
            own = self.rows[self.rows["load"] == load]
            self._starts["at_s"][self.load == number] = at_s + own["start_s"] - own["start_s"].min()
            at_s += BETWEEN_S + _span(own, "latency_s") * 100

    def latencies(self, replica: Replica) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Latency and time to the first token of each request [s]."""
        parts: list[Any] = []
        fleet = new_fleet([replica], self._scripts.arrays, self._starts, 64, closed_loop=False)
        run(fleet, 1e15, _ONLY, new_generator(0, 0), parts)
        done = np.concatenate(parts)
        done = done[np.argsort(done["script"])]
        return done["end_s"] - done["asked_s"], done["first_s"] - done["asked_s"]

    def check(self, replica: Replica) -> None:
        """Refuse limits by which a request could not run.

        Raises:
            UserError: with the option.
        """
        if (most := int((self.rows["prompt"] + self.rows["output"]).max())) > replica.kv_tokens:
            raise UserError(f"--kv-tokens {replica.kv_tokens}: a request has {most} tokens")
        if replica.token_budget < replica.max_calls:
            raise UserError(f"--token-budget {replica.token_budget}: must be at least --max-calls, {replica.max_calls}")

    def modelled(self, replica: Replica) -> pd.DataFrame:
        """The log with latency_model_s and ttft_model_s."""
        latency, ttft = self.latencies(replica)
        return self.rows.assign(latency_model_s=latency, ttft_model_s=ttft)


def fit_replica(
    log: Log, limits: Replica, loads: Sequence[str] | None = None, prefix_tokens: int = 0, saturated: bool = True
) -> Fit:
    """Fit step_s, context_s, prefill_s, request_s, and attention_s where prompts are long.

    Args:
        log: what was measured.
        limits: memory, budget and number of calls of the server, and `call_s`, which are not fitted.
        loads: those to fit; all by default.
        prefix_tokens: with which each prompt begins.
        saturated: whether one of the loads must be saturated.

    Raises:
        UserError: an unknown load, or none that is saturated.
    """
    from scipy.optimize import minimize

    chosen = list(loads or log.loads)
    for load in chosen:
        if load not in log.loads:
            raise choice_error("load", load, log.loads)
    if saturated and not any(map(log.is_saturated, chosen)):
        raise UserError(
            f"--fit {','.join(chosen)}: no load is saturated (more than half of its requests unfinished when the last "
            "one comes), so that the capacity could be anything; fit one that is, or give --unsaturated"
        )
    whole = Replay(log, prefix_tokens)
    whole.check(limits)
    part = Replay(Log(log.rows[log.rows["load"].isin(chosen)]), prefix_tokens)
    counts = np.bincount(part.load)
    names = ["step_s", "context_s", "prefill_s", "request_s"]
    names += ["attention_s"] if part.rows["prompt"].max() > LONG else []
    fixed = limits.model_copy(update={"attention_s": 0.0, "request_s": 0.0})

    def replica(values: Any) -> Replica:
        numbers = np.exp(np.clip(values, -40, 5))
        return fixed.model_copy(update=dict(zip(names, map(float, numbers), strict=True)))

    def loss(values: Any) -> float:
        off = np.abs(np.log(part.latencies(replica(values))[0] / part.measured_s))
        return float((np.bincount(part.load, off) / counts).mean())

    decode = float(np.quantile(part.rows["latency_s"] / part.rows["output"], 0.1))
    results = []
    for context_s in (1e-9, 1e-8, 1e-7):
        at = np.log([0.8 * decode, context_s, 1e-4, 5e-3, 1e-10][: len(names)])
        for size in (0.7, 0.3, 0.3):  # a simplex that has shrunk to a ridge starts again
            simplex = np.vstack([at, at + size * np.eye(len(names))])
            results.append(minimize(loss, at, method="Nelder-Mead", options=_STOP | {"initial_simplex": simplex}))
            at = results[-1].x
    best = min(results, key=lambda result: result.fun)
    sources = f"fit to {', '.join(chosen)}; call_s: not identifiable, fixed"
    result = replica(best.x).model_copy(update={"sources": sources})
    return Fit(result, chosen, whole.modelled(result))
