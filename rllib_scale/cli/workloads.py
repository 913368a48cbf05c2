"""Commands that make workloads: import, fit-workload."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from rllib_scale.cli.options import JSON_OUTPUT, check_outputs, set_option_of
from rllib_scale.cli.problems import Problem
from rllib_scale.cli.terminal import json_option, say, show, wants_json
from rllib_scale.errors import UserError

QUANTILES = (0.5, 0.95, 0.99)
SHOWN_UNREAD = 12
"""Keys that were not read and are named; the most frequent ones."""
DRAWN = 20_000
"""Workflows drawn from a fitted table for the comparison with its trace."""

if TYPE_CHECKING:
    from rllib_scale.config.base import Model
    from rllib_scale.workloads.formats.base import Format


class ImportCommand(click.Command):
    """Lists the formats in its help, which alone imports them."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list below the options."""
        from rllib_scale.workloads.formats.registry import FORMATS

        with formatter.section("Formats"):
            formatter.write_dl([(name, entry.description) for name, entry in FORMATS.items()])


@click.command("import", cls=ImportCommand)
@click.argument("format_name", metavar="FORMAT")
@click.argument("sources", nargs=-1, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Write the workload (JSON).")
@set_option_of("Change a setting; repeatable.", "mapping.KEY=VALUE")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds from its arrival in which each workflow should be done, where the source states none.",
)
@click.option("--scenario", default="steady-0.7", show_default=True, help="Cluster used to report the load.")
@click.option("--cluster", type=click.Path(path_type=Path), help="YAML with the key `cluster`, instead of these.")
@click.option("--servers", type=int, help="[default: 16, or those of your own cluster]")
@click.option("--settings", is_flag=True, help="List the settings of FORMAT and exit.")
@click.option("--skip-bad", is_flag=True, help="Skip invalid records, with a line about each, instead of stopping.")
@json_option
def import_workload(
    format_name: str,
    sources: tuple[Path, ...],
    output: Path | None,
    overrides: tuple[str, ...],
    deadline: float | None,
    scenario: str,
    cluster: Path | None,
    servers: int | None,
    settings: bool,
    skip_bad: bool,
) -> None:
    """Convert recorded traces or workflows (files or folders SOURCE) into a workload.

    Arrivals count from the first one. Prints what was read, left out and guessed, and what it amounts to on a cluster.
    """
    import numpy as np

    from rllib_scale.workloads.formats.base import Progress
    from rllib_scale.workloads.formats.registry import find_format
    from rllib_scale.workloads.summary import shift_text, summarise

    chosen = find_format(format_name)
    if settings:
        _print_settings(chosen)
        return
    if not sources:
        raise UserError(f"import {format_name}: name at least one SOURCE, a file or a folder")
    if output is None:
        raise UserError("--output: say where the workload is to be written")
    inside = [path for source in sources if format_name != "csv" for path in source.rglob("*.json")]
    check_outputs({"--output": output}, JSON_OUTPUT, inside)
    mapping = _mapping(chosen, overrides)
    problem = Problem(scenario, config=cluster, draws=False)
    env = problem.env(problem.servers(16) if servers is None else servers)
    progress = Progress(say=say, skip_bad=skip_bad)
    workload = chosen.read(list(sources), mapping, progress)
    if deadline is not None:
        workload = replace(workload, deadline_s=np.where(np.isinf(workload.deadline_s), deadline, workload.deadline_s))
    if progress.first_arrival_s:
        say(shift_text(progress.first_arrival_s))
    say(f"writing {workload.num_workflows:,} workflows, {workload.num_tasks:,} tasks")
    workload.save(output)
    counts = {"workflows": workload.num_workflows, "tasks": workload.num_tasks, "edges": len(workload.edges)}
    content: dict[str, Any] = {what: count for what, count in (progress.counts | counts).items() if count}
    shown = content | ({"bad records skipped": progress.skipped} if skip_bad else {})
    rows = [{"item": what, "count": f"{count:,}"} for what, count in shown.items()]
    found, where = summarise(workload, env.cluster), f" on {env.cluster.num_servers} servers of {cluster or scenario}"
    rows += [{"item": f"{name}{where}" if name == "load" else name, "count": value} for name, value in found.rows()]
    content |= asdict(found) | {"not_read": dict(progress.unread)}
    show(rows, {"item": "item", "count": "count"}, content=content)
    if progress.unread:
        most, others = progress.unread.most_common(SHOWN_UNREAD), len(progress.unread) - SHOWN_UNREAD
        more = f", and {others} more keys (--json lists them)" if others > 0 else ""
        say(f"not read: {', '.join(f'{key} ({count:,})' for key, count in most)}{more}")
    for warning in found.warnings():
        say(f"warning: {warning}")
    say(f"wrote {output}")


def _mapping(chosen: Format, overrides: tuple[str, ...]) -> Model:
    """The settings of an import."""
    from rllib_scale.config.yaml_files import build_model, parse_override

    data: dict[str, Any] = {}
    if overrides and not chosen.mapping.model_fields:
        raise UserError(f"import {chosen.name}: the format has no settings (got {overrides[0]!r})")
    for override in overrides:
        path, value = parse_override(override)
        place, _, key = path.partition(".")
        if place != "mapping" or not key:
            raise UserError(f"--set {path}: must be mapping.KEY; valid: {', '.join(chosen.mapping.model_fields)}")
        data[key] = value
    return build_model(chosen.mapping, data, f"import {chosen.name}: mapping")


def _print_settings(chosen: Format) -> None:
    rows = []
    for name, field in chosen.mapping.model_fields.items():
        literals = [value for value in get_args(field.annotation) if isinstance(value, str)]
        valid = ", ".join(literals) or ("true, false" if field.annotation is bool else "a number")
        rows.append({"setting": name, "default": str(field.default), "valid": valid, "meaning": field.description})
    if rows or wants_json():
        content = {name: field.default for name, field in chosen.mapping.model_fields.items()}
        columns = {name: name for name in ("setting", "default", "valid", "meaning")}
        show(rows, columns, f"{chosen.name}: mapping.", content=content)
    else:
        say(f"{chosen.name} has no settings")


@click.command("fit-workload")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Write the table (JSON).")
@json_option
def fit_workload(traces: tuple[Path, ...], output: Path) -> None:
    """Fit a table, for `workload.fitted`, to TRACES, workloads as `rllib-scale import` writes them.

    Prints the error of fit: a table fitted to half of the sessions is compared with the other half.
    """
    import numpy as np

    from rllib_scale.files import write_json
    from rllib_scale.workloads.fit import compare, fit, halves, join, sample
    from rllib_scale.workloads.model import Workload

    check_outputs({"--output": output}, JSON_OUTPUT)
    trace = join([Workload.load(path) for path in traces])
    say(f"{trace.num_workflows:,} workflows, {trace.num_tasks:,} tasks, {len(np.unique(trace.session)):,} sessions")
    half, held_out = halves(trace)
    table = fit(trace)
    drawn, halved = compare(held_out, sample(fit(half), DRAWN)), compare(held_out, half)
    rows = [
        {
            "quantity": by_table.name,
            "trace": [float(value) for value in (*np.quantile(by_table.trace, QUANTILES), by_table.trace.mean())],
            "drawn": [float(value) for value in (*np.quantile(by_table.drawn, QUANTILES), by_table.drawn.mean())],
            "kolmogorov_smirnov": by_table.kolmogorov_smirnov,
            "kolmogorov_smirnov_of_halves": by_half.kolmogorov_smirnov,
        }
        for by_table, by_half in zip(drawn, halved, strict=True)
        if min(map(len, (by_table.trace, by_table.drawn, by_half.drawn))) > 0  # a single call has no later one
    ]
    columns: dict[str, Any] = {"quantity": "quantity"}
    columns |= {"held out": lambda row: _few_digits(row["trace"]), "as drawn": lambda row: _few_digits(row["drawn"])}
    columns |= {"KS": "kolmogorov_smirnov", "KS of halves": "kolmogorov_smirnov_of_halves"}
    title = (
        f"{len(np.unique(held_out.session))} sessions held out, and as drawn by a table fitted to the others: 50, 95, "
        "99 % and mean, and Kolmogorov-Smirnov distances"
    )
    show(rows, columns, title)
    mean = trace.compute_gflop.sum() / trace.num_workflows
    say(f"mean work of a workflow: {mean:.4g} GFLOP in the trace, {table.mean_workflow_gflop:.4g} as drawn")
    write_json(output, table.model_dump(mode="json"))
    say(f"wrote {output}")


def _few_digits(values: list[float]) -> str:
    return " / ".join(f"{value:.3g}" for value in values)
