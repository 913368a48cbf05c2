"""Logs of a real server's requests: what each load measured.

A load is a part of a log that a client sent in one way: requests one after the other, all at once, or at a rate.
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

from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.fields import Amount, Name, Record, Whole
from rllib_scale.workloads.formats.sources import distinct_files, read_csv, read_json

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
        limits: how many requests a load's client had in flight at most, where it limited them.
    """

    rows: pd.DataFrame
    left_out: Counter[str] = field(default_factory=Counter)
    limits: dict[str, int] = field(default_factory=dict)

    @property
    def loads(self) -> list[str]:
        """Names, in the order of the log."""
        return list(dict.fromkeys(self.rows["load"]))

    def of(self, load: str) -> pd.DataFrame:
        """The requests of a load, in the order of their starts."""
        return self.rows[self.rows["load"] == load].sort_values("start_s", kind="stable")

    def in_flight(self, load: str) -> NDArray[np.int64]:
        """Requests in flight at the start of each request of a load, itself included."""
        of = self.of(load)
        ends = np.sort((of["start_s"] + of["latency_s"]).to_numpy())
        return 1 + np.arange(len(of)) - np.searchsorted(ends, of["start_s"].to_numpy() + 1e-9, "right")

    def waited(self, load: str) -> NDArray[np.bool_]:
        """Whether the client's limit held back each request of a load.

        Such a request begins when another one ends, and with it about as many are in flight as the client allows.
        """
        of = self.of(load)
        if load not in self.limits:
            return np.zeros(len(of), bool)
        start_s = of["start_s"].to_numpy()
        ends = np.concatenate([[-np.inf], np.sort((of["start_s"] + of["latency_s"]).to_numpy())])
        since_end_s = start_s - ends[np.searchsorted(ends, start_s + 1e-9, "right") - 1]
        soon = since_end_s <= max(0.01, 0.01 * float(of["latency_s"].median()))
        return soon & (self.in_flight(load) >= 0.9 * self.limits[load])

    def speed(self, load: str) -> float:
        """Tokens that a request has per second in flight."""
        of = self.of(load)
        return float(of["output"].sum() / of["latency_s"].sum())

    @property
    def lightest(self) -> str:
        """The load with the fewest requests in flight."""
        return min(self.loads, key=lambda load: float(self.in_flight(load).mean()))

    def is_saturated(self, load: str) -> bool:
        """Whether the server could not keep up with a load, by its own throughput.

        Either more than half of the requests were unfinished when the last one came; or they became more and more while
        the server answered less than 90 % of the tokens that it was asked for; or the client held back half of them,
        and they were slower than those of the lightest load by 30 % or more.
        """
        of = self.of(load)
        start_s, end_s = of["start_s"].to_numpy(), (of["start_s"] + of["latency_s"]).to_numpy()
        waited = self.waited(load)
        if waited.mean() > 0.5 and self.limits[load] > 1:
            return load == self.lightest or self.speed(load) < 0.7 * self.speed(self.lightest)
        is_done = end_s <= start_s[-1]
        if is_done.mean() < 0.5:
            return len(of) > 1
        share = (start_s - start_s[0]) / max(start_s[-1] - start_s[0], 1e-9)
        counts, tokens = self.in_flight(load), of["output"].to_numpy()
        second, last = counts[(share >= 0.25) & (share < 0.5)], counts[share >= 0.75]
        grew = len(second) > 0 and last.mean() > 1.5 * second.mean()
        return bool(grew and tokens[is_done].sum() < 0.9 * tokens.sum())


class _Row(BaseModel):
    """A row of a CSV file; times in seconds from any reference, `_ms` in milliseconds."""

    prompt_tokens: Tokens
    output_tokens: Tokens
    benchmark: str = ""
    strategy: str = ""
    rate: Amount | None = None
    max_concurrency: Tokens | None = None
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

    @property
    def _strategy(self) -> dict[str, Any]:
        return (self.config or self.args or {}).get("strategy") or {}

    @property
    def limit(self) -> int | None:
        """The client's limit of requests in flight."""
        limit = self._strategy.get("streams") or self._strategy.get("max_concurrency")
        return int(limit) if isinstance(limit, int) and limit > 0 else None

    def load(self, number: int) -> str:
        """Its name: the rate, or the kind of load."""
        strategy = self._strategy
        if strategy.get("rate"):
            return f"{strategy['rate']:.2f}"
        streams = f" {strategy['streams']}" if strategy.get("streams") else ""
        return f"{strategy.get('type_') or number}{streams}"

    def request(self, of: _Request, number: int, where: str) -> Request:
        """Load, start, prompt, output, latency, time to first token."""
        start_s = of.request_start_time if of.start_time is None else of.start_time
        if start_s is None or of.prompt_tokens is None or of.output_tokens is None:
            raise UserError(f"{where}: a request without prompt_tokens, output_tokens or request_start_time")
        ttft_s = math.nan if of.time_to_first_token_ms is None else of.time_to_first_token_ms / 1000
        return self.load(number), start_s, of.prompt_tokens, of.output_tokens, of.request_latency, ttft_s


class _Value(Record):
    value: Any


class _Times(Record):
    request_start_ns: Whole
    benchmark_phase: str | None = None


class _Profiled(Record):
    """A line of AIPerf's profile_export.jsonl."""

    metadata: _Times
    metrics: dict[str, _Value]
    error: Any = None

    def request(self, load: str, where: str) -> Request:
        """Load, start, prompt, output, latency, time to first token."""
        names = ("input_sequence_length", "output_sequence_length", "request_latency", "time_to_first_token")
        values = [self.metrics[name].value if name in self.metrics else None for name in names]
        if any(not isinstance(value, int | float) for value in values[:3]):
            raise UserError(f"{where}: metrics: needs {', '.join(names[:3])}")
        prompt, output, latency_ms, ttft_ms = (math.nan if value is None else float(value) for value in values)
        start_s = self.metadata.request_start_ns / 1e9
        return load, start_s, int(prompt), int(output), latency_ms / 1e3, ttft_ms / 1e3


class _Streamed(Record):
    output_tokens: Whole | None = None
    output_token_times: list[Amount] | None = None


class _Info(_Streamed):
    input_tokens: Whole
    response_metrics: _Streamed | None = None


class _Lifecycle(Record):
    """An entry of inference-perf's per_request_lifecycle_metrics.json."""

    start_time: Amount
    end_time: Amount
    info: _Info | None = None
    error: Any = None

    def request(self, load: str, where: str) -> Request:
        """Load, start, prompt, output, latency, time to first token."""
        answer = self.info and (self.info.response_metrics or self.info)
        if self.info is None or not answer or answer.output_tokens is None:
            raise UserError(f"{where}: info: needs input_tokens and output_tokens")
        ttft_s = answer.output_token_times[0] - self.start_time if answer.output_token_times else math.nan
        latency_s = self.end_time - self.start_time
        return load, self.start_time, self.info.input_tokens, answer.output_tokens, latency_s, ttft_s


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


_KINDS: dict[str, type[Record]] = {"metadata": _Profiled, "start_time": _Lifecycle, "queued_ts": _Served}
"""Kinds of JSON records by a key that they have; any other is a `_Report`."""


class _Any(Record):
    pass


def read_log(paths: Sequence[Path], progress: Progress | None = None, max_concurrency: int | None = None) -> Log:
    """Requests of logs in the formats of docs/replicas.md; several files are several loads.

    Args:
        paths: of the logs.
        progress: takes messages and counts.
        max_concurrency: the client's limit of requests in flight of loads whose log does not name it.

    Raises:
        UserError: a file cannot be read, or is no such log.
    """
    reader = _Reader(progress or Progress())
    for path in distinct_files(paths, reader.progress):
        name = path.name.split(".")[0]
        for where, request in reader.requests(path, name):
            load, start_s, prompt, output, latency_s, ttft_s = request
            if not (latency_s > 0 and prompt > 0 and output > 0):
                raise UserError(f"{where}: latency, prompt and output must be above 0 (got {request[2:5]})")
            if not (math.isnan(ttft_s) or 0 <= ttft_s <= 1.001 * latency_s + 1e-3):
                raise UserError(
                    f"{where}: time to first token {ttft_s:g} s: must be at most the latency, {latency_s:g} s"
                )
            reader.progress.seen.is_equal("requests the same as an earlier one, kept", path, *request)
            full = load if len(paths) == 1 or load == name else f"{name} {load}"
            if (limit := reader.limits.get(load, max_concurrency)) is not None:
                reader.of_loads[full] = limit
            reader.found.append((full, start_s, prompt, output, latency_s, ttft_s))
    rows = pd.DataFrame(reader.found, columns=["load", "start_s", "prompt", "output", "latency_s", "ttft_s"])
    if rows.empty:
        raise UserError(f"{', '.join(map(str, paths))}: no completed request")
    return Log(rows, reader.left_out, reader.of_loads)


@dataclass
class _Reader:
    """Reads the requests of files.

    Attributes:
        progress: takes messages and counts.
        found: requests so far.
        left_out: others, by what became of them.
        limits: the client's limit of each load of the file that is read.
        of_loads: the same of all files' loads.
    """

    progress: Progress
    found: list[Request] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    limits: dict[str, int] = field(default_factory=dict)
    of_loads: dict[str, int] = field(default_factory=dict)

    def requests(self, path: Path, name: str) -> Iterator[tuple[str, Request]]:
        """Place and values of each request of a file."""
        self.limits.clear()
        if path.suffix == ".csv":
            for where, cells in read_csv(path, _Row, self.progress):
                row = build_model(_Row, cells, where)
                request = row.request(where)
                if row.max_concurrency is not None:
                    self.limits[request[0]] = row.max_concurrency
                yield where, request
            return
        found: list[tuple[str, Request]] = []

        def add(record: _Any, where: str) -> None:
            content = record.model_extra or {}
            kind = next((kind for key, kind in _KINDS.items() if key in content), _Report)
            for at, request in self._of(build_model(kind, content, where), name, where):
                found.append((at, request))

        read_json([path], _Any, add, self.progress)
        yield from found

    def _of(self, record: Record, name: str, where: str) -> Iterator[tuple[str, Request]]:
        """Place and values of each request of a JSON record."""
        if isinstance(record, _Served):
            times = (record.last_token_ts - record.queued_ts, record.first_token_ts - record.queued_ts)
            yield where, (name, record.queued_ts, record.input_toks, record.output_toks, *times)
        elif isinstance(record, _Profiled | _Lifecycle):
            if record.error is not None:
                self.left_out["failed"] += 1
            elif isinstance(record, _Profiled) and record.metadata.benchmark_phase == "warmup":
                self.left_out["warm-up"] += 1
            else:
                yield where, record.request(name, where)
        elif isinstance(record, _Report) and record.benchmarks is not None:
            for number, benchmark in enumerate(record.benchmarks):
                at, of = f"{where}: benchmark {number}", benchmark.requests
                self.left_out.update(incomplete=len(of.incomplete or ()), errored=len(of.errored or ()))
                if benchmark.limit is not None:
                    self.limits[benchmark.load(number)] = benchmark.limit
                for request in of.successful:
                    if self.progress.seen.is_repeated("requests", request.request_id):
                        self.left_out["read before"] += 1
                    else:
                        yield at, benchmark.request(request, number, at)
        elif isinstance(record, _Report) and record.input_lens is not None:
            if record.max_concurrency is not None:
                self.limits[name] = record.max_concurrency
            yield from ((where, request) for request in _of_vllm(record, name, where, self.left_out))
        else:
            raise UserError(
                f"{where}: no log that can be read; needed: `benchmarks` (guidellm), `input_lens` (vLLM), `metadata` "
                "(AIPerf), `start_time` (inference-perf) or `queued_ts` (LLMServingSim)"
            )


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
