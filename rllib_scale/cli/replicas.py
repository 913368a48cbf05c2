"""The command about replicas of a language model: fit-replica."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from rllib_scale.cli.options import JSON_OUTPUT, check_outputs
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

_path = click.Path(path_type=Path)


@click.command("fit-replica")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...", type=_path)
@click.option("--fit", "loads", help="Loads to fit, by commas; the others show the error.  [default: all]")
@click.option(
    "--kv-tokens", type=int, default=10**9, help="Memory for contexts, from the server's log.  [default: no limit]"
)
@click.option("--token-budget", type=int, default=8192, show_default=True, help="Tokens of a step.")
@click.option("--max-calls", type=int, default=256, show_default=True, help="Running requests.")
@click.option("--prefix-tokens", type=int, default=0, show_default=True, help="With which each prompt begins.")
@click.option(
    "--max-concurrency", type=int, help="Requests that the client had in flight at most, where the log has no limit."
)
@click.option(
    "--call-us",
    type=float,
    default=0.0,
    show_default=True,
    help="Time of each call in a step, if the log does not determine it.",
)
@click.option("--gpu", help="With --kv-bytes: the server's GPU, for the least time of a token of context.")
@click.option(
    "--kv-bytes", type=int, help="Of a token's cache: 2 x layers x KV heads x their width x bytes of a number."
)
@click.option("--unsaturated", is_flag=True, help="Fit although no load is saturated.")
@click.option("--figure", type=_path, help="Draw model against measurement (PNG).")
@click.option("--output", type=_path, help="Write the replica (JSON), for `replica` in `cluster.tiers` of a problem.")
@json_option
def fit_replica(
    logs: tuple[Path, ...],
    loads: str | None,
    kv_tokens: int,
    token_budget: int,
    max_calls: int,
    prefix_tokens: int,
    max_concurrency: int | None,
    call_us: float,
    gpu: str | None,
    kv_bytes: int | None,
    unsaturated: bool,
    figure: Path | None,
    output: Path | None,
) -> None:
    """Fit a replica to LOG: requests of a real server as CSV, or by guidellm, vLLM, AIPerf or inference-perf.

    Prints the relative errors of each load, and which of them were fitted. The formats: docs/replicas.md.
    """
    from rllib_scale.config.replicas import Replica, least_context_s
    from rllib_scale.config.yaml_files import build_model
    from rllib_scale.evaluation.fit_replica import FITTED
    from rllib_scale.evaluation.fit_replica import fit_replica as fit
    from rllib_scale.evaluation.measured import read_log
    from rllib_scale.files import write_json
    from rllib_scale.workloads.formats.base import Progress

    check_outputs({"--output": output, "--figure": figure}, JSON_OUTPUT | {"--figure": (".png",)})
    for name, value, least in (("--prefix-tokens", prefix_tokens, 0), ("--max-concurrency", max_concurrency, 1)):
        if value is not None and value < least:
            raise UserError(f"{name} {value}: must be at least {least}")
    facts = {"kv_tokens": kv_tokens, "token_budget": token_budget, "max_calls": max_calls, "call_s": call_us / 1e6}
    limits, progress = build_model(Replica, facts, "fit-replica"), Progress(say=say)
    context_s = least_context_s(gpu, kv_bytes)
    log = read_log(list(logs), progress, max_concurrency)
    left_out = ", ".join(f"{count:,} {what}" for what, count in log.left_out.items() if count)
    total = len(log.rows) + log.left_out.total()
    say(f"{len(log.rows):,} of {total:,} requests{left_out and f'; left out: {left_out}'}")
    for what, count in progress.counts.items():
        say(f"{count:,} {what}")
    fitted = fit(log, limits, loads.split(",") if loads else None, prefix_tokens, not unsaturated, context_s)
    rows = fitted.errors()
    columns: dict[str, Any] = {"load": "load", "fitted": lambda row: "yes" if row["fitted"] else "no"}
    columns |= {"saturated": lambda row: "yes" if row["saturated"] else "no", "requests": "requests"}
    columns |= {"mean latency (s)": lambda row: f"{row['measured_s']:.2f}"}
    columns |= {"model (s)": lambda row: f"{row['model_s']:.2f}"}
    shown = {"latency": "latency_median", "first token": "ttft_median", "per token": "tpot_median"}
    for heading, key in (shown | {"throughput": "throughput"}).items():
        columns[heading] = lambda row, key=key: _percent(row[key])
    replica = fitted.replica.model_dump(mode="json")
    content = {"replica": replica, "not_told": fitted.not_told, "loads": rows}
    note = "latency, first token, per token: median relative error of a request; throughput: model over measurement"
    show(rows, columns, "Model against measurement", content, note)
    for name in FITTED:
        said = f"; the log does not determine it: {fitted.not_told[name]}" if name in fitted.not_told else ""
        say(f"{name} = {replica[name]:.4g}{said}")
    if kv_tokens == 10**9:
        say("--kv-tokens was not given: where the server's memory was full, the fit is wrong")
    if figure is not None:
        from rllib_scale_analysis.figures.draw import draw, save
        from rllib_scale_analysis.figures.replicas import fit_chart

        save(draw(fit_chart(fitted.rows, rows)), figure)
        say(f"wrote {figure}")
    if output is not None:
        write_json(output, replica)
        say(f"wrote {output}")


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"
