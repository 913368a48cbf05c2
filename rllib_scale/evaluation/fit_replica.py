"""Fits the coefficients of a replica to logs of a real server.

Each load is played on one replica as its client sent it: at the recorded starts, and never with more requests in flight
than the client allowed. The fit minimises the mean over loads of the mean |log(model / measurement)| of the latencies
of requests, and of their times to the first token and per further token with a weight of BESIDE each.

The fit starts from the lightest load: for requests one at a time all coefficients but `call_s` and `overlap` act
linearly. Whether
the log determines a coefficient is tried by fits without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rllib_scale.config.replicas import Replica
from rllib_scale.errors import UserError, choice_error
from rllib_scale.evaluation.measured import Log
from rllib_scale.simulator.replicas.rules import LEAST, VALUES, run
from rllib_scale.simulator.replicas.scripts import requests
from rllib_scale.simulator.replicas.state import START, new_fleet
from rllib_scale.workloads.random_numbers import new_generator

BESIDE = 0.25
"""Weight of times to the first token and per token beside that of latencies."""
FITTED = ("step_s", "call_s", "context_s", "prefill_s", "attention_s", "request_s", "overlap")
NOTHING = 1e-4
"""Share of what is typical for a coefficient, of which it can be told that it is not 0."""
MOST_REQUEST_S = 1.0
"""More than any server needs for a request outside of its steps."""
BETWEEN_S = 3600.0
"""Pause between the request that leaves the prefix in the cache and a load."""
MOSTLY = 0.9
"""An overlap to start from."""
FLOOR_ADVICE = "--gpu and --kv-bytes give it a floor"
_ONLY = np.array([LEAST, *(0.0 for _ in VALUES)])


@dataclass
class Fit:
    """A fitted replica.

    Attributes:
        replica: its coefficients.
        log: what was measured.
        fitted: loads that were fitted.
        rows: of the log, with the model's start_model_s, latency_model_s and ttft_model_s.
        not_told: coefficients that the log does not determine, and what they were set to.
    """

    replica: Replica
    log: Log
    fitted: list[str]
    rows: pd.DataFrame
    not_told: dict[str, str] = field(default_factory=dict)

    def errors(self) -> list[dict[str, Any]]:
        """Relative errors of each load: of its requests' times, and of its output tokens per second."""
        table = []
        for load, of in self.rows.groupby("load", sort=False):
            row = {"load": load, "fitted": load in self.fitted, "saturated": self.log.is_saturated(str(load))}
            row |= {"requests": len(of), "measured_s": of["latency_s"].mean(), "model_s": of["latency_model_s"].mean()}
            error = (of["latency_model_s"] / of["latency_s"] - 1).abs()
            row |= {"latency_median": error.median(), "latency_mean": error.mean()}
            row["ttft_median"] = (of["ttft_model_s"] / of["ttft_s"].where(of["ttft_s"] > 0) - 1).abs().median()
            measured, model = _per_token(of, "latency_s", "ttft_s"), _per_token(of, "latency_model_s", "ttft_model_s")
            row["tpot_median"] = (model / measured - 1).abs().median()
            row["throughput"] = _span(of, "start_s", "latency_s") / _span(of, "start_model_s", "latency_model_s") - 1
            table.append({key: float(value) if isinstance(value, float) else value for key, value in row.items()})
        return table


def _per_token(of: pd.DataFrame, latency: str, ttft: str) -> pd.Series:
    """Time per token after the first [s]; NaN where there is none, or it took no time."""
    time = (of[latency] - of[ttft]) / (of["output"] - 1).where(of["output"] > 1)
    return time.where(time > 0)


def _span(of: pd.DataFrame, start: str, latency: str) -> float:
    return float((of[start] + of[latency]).max() - of[start].min())


class Replay:
    """The requests of a log, to be played on replicas."""

    def __init__(self, log: Log, prefix_tokens: int = 0) -> None:
        self.rows = pd.concat([log.of(load) for load in log.loads], ignore_index=True)
        self.prefix_tokens = prefix_tokens
        self._plays = [_Play(log, load, prefix_tokens) for load in log.loads]
        self.load = pd.factorize(self.rows["load"])[0]
        output = self.rows["output"].to_numpy(float)
        self._further = np.where(output > 1, output - 1, np.nan)
        with np.errstate(invalid="ignore"):
            self._logs = np.log(self._positive(self.rows["latency_s"].to_numpy(), self.rows["ttft_s"].to_numpy()))

    def _positive(self, latency_s: NDArray[np.float64], ttft_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """(3, requests) latency, time to the first and per further token [s]; NaN where there is none, or no time."""
        times = np.stack([latency_s, ttft_s, (latency_s - ttft_s) / self._further])
        return np.where(times > 0, times, np.nan)

    def _times(self, replica: Replica) -> NDArray[np.float64]:
        return np.concatenate([play.times(replica) for play in self._plays]).T

    def modelled(self, replica: Replica) -> pd.DataFrame:
        """The log with start_model_s, latency_model_s and ttft_model_s."""
        start_s, first_s, end_s = self._times(replica)
        return self.rows.assign(start_model_s=start_s, latency_model_s=end_s - start_s, ttft_model_s=first_s - start_s)

    def deviations(self, replica: Replica) -> NDArray[np.float64]:
        """log(model / measurement) of latency, time to first token and per token, in turn; NaN where not measured."""
        start_s, first_s, end_s = self._times(replica)
        with np.errstate(invalid="ignore"):
            return np.log(self._positive(end_s - start_s, first_s - start_s)) - self._logs

    def weights(self) -> NDArray[np.float64]:
        """Weight of each deviation; the fit minimises their weighted sum."""
        weights = np.zeros((3, len(self.rows)))
        for kind, beside in enumerate((1.0, BESIDE, BESIDE)):
            known = ~np.isnan(self._logs[kind])
            counts = np.bincount(self.load, known)
            weights[kind] = np.where(known, beside / np.maximum(counts[self.load], 1) / len(counts), 0.0)
        return weights

    def check(self, replica: Replica) -> None:
        """Refuse limits by which a request could not run.

        Raises:
            UserError: with the option.
        """
        if (most := int((self.rows["prompt"] + self.rows["output"]).max())) > replica.kv_tokens:
            raise UserError(f"--kv-tokens {replica.kv_tokens}: a request has {most} tokens")
        if replica.token_budget < replica.max_calls:
            raise UserError(f"--token-budget {replica.token_budget}: must be at least --max-calls, {replica.max_calls}")


class _Play:
    """The requests of a load, as its client sends them; the loads before it have left the prefix in the cache."""

    def __init__(self, log: Log, load: str, prefix_tokens: int) -> None:
        of = log.of(load)
        prompt, output, start_s = (of[name].to_numpy() for name in ("prompt", "output", "start_s"))
        at_s = np.where(log.waited(load), 0.0, start_s - start_s[0])  # held back: as soon as one before it ends
        if prefix_tokens and load != log.loads[0]:
            prompt, output = np.append(prompt, prefix_tokens + 1), np.append(output, 1)
            at_s = np.append(at_s + BETWEEN_S, 0.0)
        self.limit = log.limits.get(load)
        self.count = len(of)
        self.scripts = requests(prompt, output, prefix_tokens)
        self.starts = np.zeros(len(prompt), START)
        self.starts["script"], self.starts["at_s"] = np.arange(len(prompt)), at_s
        if len(prompt) > self.count:
            self.starts = np.roll(self.starts, 1)

    def times(self, replica: Replica) -> NDArray[np.float64]:
        """(requests, 3) start, first token and end of each request [s]."""
        parts: list[Any] = []
        limited = self.limit is not None
        fleet = new_fleet([replica], self.scripts.arrays, self.starts, self.limit or 64, closed_loop=limited)
        run(fleet, 1e15, _ONLY, new_generator(0, 0), parts)
        done = np.concatenate(parts)
        done = done[np.argsort(done["script"])][: self.count]
        return np.stack([done["asked_s"], done["first_s"], done["end_s"]], axis=1)


def fit_replica(
    log: Log,
    limits: Replica,
    loads: Sequence[str] | None = None,
    prefix_tokens: int = 0,
    saturated: bool = True,
    least_context_s: float = 0.0,
) -> Fit:
    """Fit step_s, context_s, prefill_s, request_s, and where the log determines them overlap, attention_s, call_s.

    Args:
        log: what was measured.
        limits: memory, budget and number of calls of the server, and the `call_s` of a log that does not determine it.
        loads: those to fit; all by default.
        prefix_tokens: with which each prompt begins.
        saturated: whether one of the loads must be saturated.
        least_context_s: what reading the cache of a token takes at the least [s].

    Raises:
        UserError: an unknown load, none that is saturated, or a fit that contradicts the log.
    """
    chosen = list(loads or log.loads)
    for load in chosen:
        if load not in log.loads:
            raise choice_error("load", load, log.loads)
    if saturated and not any(map(log.is_saturated, chosen)):
        raise UserError(
            f"--fit {','.join(chosen)}: no load is saturated (the server keeps up with each of them), so that the "
            "capacity could be anything; fit one that is, or give --unsaturated"
        )
    whole = Replay(log, prefix_tokens)
    whole.check(limits)
    part = replace(log, rows=log.rows[log.rows["load"].isin(chosen)])
    search = _Search(Replay(part, prefix_tokens), limits, least_context_s)
    values, fixed, not_told = search.best()
    result = search.replica(values, fixed)
    _check_plausible(result, part)
    said = "".join(f"; {name}: not told by the log, {what}" for name, what in not_told.items())
    result = result.model_copy(update={"sources": f"fit to {', '.join(chosen)}{said}"})
    return Fit(result, log, chosen, whole.modelled(result), not_told)


class _Search:
    """Looks for the coefficients of a replica that are closest to a log, in units of what is typical for each."""

    def __init__(self, replay: Replay, limits: Replica, least_context_s: float) -> None:
        self.replay, self.limits = replay, limits
        self.weights = replay.weights()
        self.alone = self._of_lightest(0.0)
        step_s = self.alone[0]
        self.units = np.maximum(self.alone, np.append(step_s * np.array([1.0, 0.01, 3e-6, 3e-3, 3e-7, 0.1]), 1.0))
        self.most = np.where(np.array(FITTED) == "overlap", 1.0, np.inf)
        self.least = np.full(len(FITTED), NOTHING)
        self.least[FITTED.index("context_s")] = max(least_context_s / self.units[FITTED.index("context_s")], NOTHING)
        self.has_floor = least_context_s > 0

    def replica(self, values: NDArray[np.float64], fixed: dict[str, float]) -> Replica:
        """The replica with some values of FITTED; others are fixed."""
        found = np.where(values > 2 * NOTHING, np.clip(values, self.least, self.most), 0.0) * self.units
        found[0] = max(found[0], NOTHING * self.units[0])
        return self.limits.model_copy(update=dict(zip(FITTED, map(float, found), strict=True)) | fixed)

    def loss(self, values: NDArray[np.float64], fixed: dict[str, float]) -> float:
        """The weighted sum of deviations."""
        deviations = np.abs(self.replay.deviations(self.replica(values, fixed)))
        return float(np.nansum(self.weights * deviations))

    def fit(
        self, start: NDArray[np.float64], fixed: dict[str, float], passes: int = 2
    ) -> tuple[float, NDArray[np.float64]]:
        """The least loss from a start, and where it is: by least squares, which are smooth, and by the loss."""
        from scipy.optimize import least_squares, minimize

        free = [number for number, name in enumerate(FITTED) if name not in fixed]
        bounds = (self.least[free], self.most[free])

        def full(some: NDArray[np.float64]) -> NDArray[np.float64]:
            values = start.copy()
            values[free] = some
            return values

        def residuals(some: NDArray[np.float64]) -> NDArray[np.float64]:
            found = np.sqrt(self.weights) * self.replay.deviations(self.replica(full(some), fixed))
            return np.nan_to_num(found, nan=0.0, posinf=10.0, neginf=-10.0).ravel()

        def loss(some: NDArray[np.float64]) -> float:
            return self.loss(full(np.maximum(some, self.least[free])), fixed)

        near = np.clip(start[free], 1.01 * self.least[free], 0.99 * self.most[free])
        value = loss(near)
        for size in (0.1, 0.02)[:passes]:
            found = least_squares(
                residuals, near, bounds=bounds, diff_step=3e-3, loss="soft_l1", f_scale=0.002, max_nfev=25
            ).x
            near, value = min(((each, loss(each)) for each in (near, found)), key=lambda pair: pair[1])
            simplex = np.vstack([near, near + size * np.diag(near + 0.1)])
            options = {"xatol": 1e-4, "fatol": 1e-6, "maxfev": 60 * len(free), "initial_simplex": simplex}
            result = minimize(loss, near, method="Nelder-Mead", options=options)
            near = np.clip(result.x, 1.01 * self.least[free], 0.99 * self.most[free])
            value = loss(near)
        return value, full(near)

    def best(self) -> tuple[NDArray[np.float64], dict[str, float], dict[str, str]]:
        """Values of the coefficients, those that are fixed, and why.

        It begins without `attention_s` and `overlap` and with the given `call_s`, and frees each of them if that brings
        the model nearer to the log, alone or beside another.
        """
        fixed = {"overlap": 0.0, "attention_s": 0.0, "call_s": self.limits.call_s}
        fits = [self.fit(start, fixed, passes=1) for start in self.starts()]
        loss, values = self.fit(min(fits, key=lambda each: each[0])[1], fixed)
        untried = list(fixed)
        while untried:
            name = untried.pop(0)
            others = {key: value for key, value in fixed.items() if key != name}
            starts = [np.where(np.array(FITTED) == name, share, values) for share in (0.1, 1.0)]
            if name == "overlap":
                starts.append(self._of_lightest(MOSTLY) / self.units)
            freed = min((self.fit(start, others) for start in starts), key=lambda each: each[0])
            if _as_good(freed[0]) < loss:
                (loss, values), fixed = freed, others
                untried = list(fixed)  # one may be told only where another one is free
        not_told = {name: f"fixed at {value:g}" for name, value in fixed.items()}
        if not self.has_floor:
            context_s = self.replica(values, fixed).context_s or NOTHING * self.units[FITTED.index("context_s")]
            for factor in (1 / 3, 3.0):
                if self.fit(values, fixed | {"context_s": context_s * factor}, passes=1)[0] <= _as_good(loss):
                    not_told["context_s"] = f"values from a third of it to its triple fit as well; {FLOOR_ADVICE}"
        return values, fixed, not_told

    def starts(self) -> list[NDArray[np.float64]]:
        """Values of the coefficients to start from: those of the lightest load, and others around."""
        alone = np.maximum(self.alone / self.units, 0.03)
        typical = np.ones(len(FITTED))
        typical[0] = alone[0]
        return [alone, typical, (alone + typical) / 2]

    def _of_lightest(self, overlap: float) -> NDArray[np.float64]:
        """FITTED by the lightest load, as if its requests came one at a time; `call_s` is 0.

        Args:
            overlap: that is taken; prefills are longer than what they overlap with.
        """
        from scipy.optimize import nnls

        log, prefix = Log(self.replay.rows), self.replay.prefix_tokens
        of = log.of(log.lightest)
        new, output = (of["prompt"] - prefix).clip(1).to_numpy(float), of["output"].to_numpy(float)
        chunks, none, one = np.ceil(new / self.limits.token_budget), np.zeros(len(of)), np.ones(len(of))
        # Of the first token and of the whole answer: what each of FITTED is multiplied with.
        first = [(1 - overlap) * chunks, none, none, new, new * (new / 2 + prefix), one]
        whole = [first[0] + output - 1, none, (output - 1) * (of["prompt"] + output / 2), *first[3:]]
        factors, measured = np.stack(whole, axis=1), of["latency_s"].to_numpy()
        if of["ttft_s"].gt(0).all():
            factors = np.concatenate([factors, np.stack(first, axis=1)])
            measured = np.concatenate([measured, of["ttft_s"].to_numpy()])
        scale = np.maximum(factors.max(axis=0), 1.0)
        found = nnls(factors / measured[:, None] / scale, np.ones(len(measured)))[0] / scale
        found[0] = max(found[0], 0.3 * float((of["latency_s"] / (of["output"] + chunks)).quantile(0.05)))
        return np.append(found, overlap)


def _as_good(loss: float) -> float:
    """Largest loss of a fit that is as good as one with this loss."""
    return 1.02 * loss + 2e-4


def _check_plausible(replica: Replica, log: Log) -> None:
    """Refuse coefficients that requests of the log contradict.

    Raises:
        UserError: with the likely cause.
    """
    rows = log.rows
    firsts = rows["ttft_s"].where(rows["ttft_s"] > 0, rows["latency_s"])
    soonest_s = float(firsts.quantile(0.02))
    if replica.request_s <= MOST_REQUEST_S and replica.request_s + replica.step_s <= 1.25 * soonest_s:
        return
    raise UserError(
        f"the log can only be fitted with request_s {replica.request_s:.3g}, step_s {replica.step_s:.3g}, where "
        f"requests had a first token after {soonest_s:.3g} s; likely causes: the client limited its requests in flight "
        "(give --max-concurrency), several engines share the load, or --max-calls, --token-budget or --kv-tokens is "
        "not the server's"
    )
