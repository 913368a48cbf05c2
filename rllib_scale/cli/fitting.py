"""The command that fits a table of workflows to traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.table import Table

from rllib_scale.cli.terminal import json_option, say, show

if TYPE_CHECKING:
    from rllib_scale.workloads.fit import Distance

QUANTILES = (5, 25, 50, 75, 95, 99)
COMPARED = 20_000
"""Workflows that are drawn to compare."""


@click.command("fit-workload")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Write the table (JSON).")
@json_option
def fit_workload(traces: tuple[Path, ...], output: Path) -> None:
    """Fit a table to TRACES, workloads as `rllib-scale import` writes them, from which `workload.fitted` draws.

    Says how close it comes: a table fitted to half of the sessions is compared with the other half.
    """
    from rllib_scale.files import check_writable, write_json
    from rllib_scale.workloads.fit import compare, fit, halves, join, sample
    from rllib_scale.workloads.model import Workload

    check_writable({"--output": output})
    trace = join([Workload.load(path) for path in traces])
    sessions = len(np.unique(trace.session))
    say(f"{trace.num_workflows:,} workflows, {trace.num_tasks:,} tasks, {sessions:,} sessions")
    half, held_out = halves(trace)
    table = fit(trace)
    drawn = compare(held_out, sample(fit(half), COMPARED))
    _print(drawn, compare(held_out, half), len(np.unique(held_out.session)))
    mean = trace.compute_gflop.sum() / trace.num_workflows
    say(
        f"mean work of a workflow: {mean:.4g} GFLOP in the trace, {table.mean_workflow_gflop:.4g} as drawn by the table"
    )
    write_json(output, table.model_dump(mode="json"))
    say(f"wrote {output}")


def _print(drawn: list[Distance], halves: list[Distance], sessions: int) -> None:
    title = (
        f"{sessions} sessions held out (first line) and as drawn by a table fitted to the others (second); KS: "
        "Kolmogorov-Smirnov distance, W: Wasserstein distance over the mean, in brackets those of the two halves"
    )
    table = Table("quantity", title=title, title_justify="left")
    for name in (*(f"{q} %" for q in QUANTILES), "mean", "KS", "W"):
        table.add_column(name, justify="right")
    for by_table, by_half in zip(drawn, halves, strict=True):
        table.add_row(by_table.name, *_numbers(by_table.trace), "", "")
        distances = (
            f"{getattr(by_table, name):.3f} ({getattr(by_half, name):.3f})"
            for name in ("kolmogorov_smirnov", "wasserstein")
        )
        table.add_row("", *_numbers(by_table.drawn), *distances)
    content = [
        {"quantity": each.name, "trace_mean": each.trace.mean(), "drawn_mean": each.drawn.mean()}
        | {"kolmogorov_smirnov": each.kolmogorov_smirnov, "wasserstein": each.wasserstein}
        for each in drawn
    ]
    show(table, content)


def _numbers(values: np.ndarray) -> list[str]:
    return [f"{x:.3g}" for x in (*np.percentile(values, QUANTILES), values.mean())]
