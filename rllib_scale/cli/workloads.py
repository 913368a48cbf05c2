"""Commands that make workloads: import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.table import Table

from rllib_scale.cli.terminal import json_option, say, show, wants_json
from rllib_scale.errors import UserError

if TYPE_CHECKING:
    from rllib_scale.config.base import Model
    from rllib_scale.workloads.formats.base import Format


class ImportCommand(click.Command):
    """Its help lists the formats, which are imported only then."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list below the options."""
        from rllib_scale.workloads.formats.registry import FORMATS

        with formatter.section("Formats"):
            formatter.write_dl([(name, entry.description) for name, entry in FORMATS.items()])


@click.command("import", cls=ImportCommand)
@click.argument("format_name", metavar="FORMAT")
@click.argument("sources", nargs=-1, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Where the workload is written (JSON).")
@click.option(
    "--unit", type=click.Choice(["turn", "session"]), help="A workflow is one turn of a user, or a whole session."
)
@click.option("--set", "overrides", multiple=True, metavar="mapping.KEY=VALUE", help="Change a setting; repeatable.")
@click.option("--settings", is_flag=True, help="List the settings of FORMAT, and do nothing else.")
@click.option("--skip-bad", is_flag=True, help="Leave a bad record out, with a line about it, rather than stop at it.")
@json_option
def import_workload(
    format_name: str,
    sources: tuple[Path, ...],
    output: Path | None,
    unit: str | None,
    overrides: tuple[str, ...],
    settings: bool,
    skip_bad: bool,
) -> None:
    """Turn recorded traces or other people's workflows (files or folders SOURCE) into a workload to play."""
    from rllib_scale.files import check_writable
    from rllib_scale.workloads.formats.base import Progress
    from rllib_scale.workloads.formats.registry import find_format

    chosen = find_format(format_name)
    if settings:
        _print_settings(chosen)
        return
    if not sources:
        raise UserError(f"import {format_name}: name at least one SOURCE, a file or a folder")
    if output is None:
        raise UserError("--output: say where the workload is to be written")
    check_writable({"--output": output})
    mapping = _mapping(chosen, overrides, unit)
    progress = Progress(say=say, skip_bad=skip_bad)
    workload = chosen.read(list(sources), mapping, progress)
    say(f"writing {workload.num_workflows:,} workflows, {workload.num_tasks:,} tasks")
    workload.save(output)
    table = Table("what", "count")
    table.columns[1].justify = "right"
    counts = {"workflows": workload.num_workflows, "tasks": workload.num_tasks, "edges": len(workload.edges)}
    for what, count in (progress.counts | counts).items():
        if count:
            table.add_row(what, f"{count:,}")
    if skip_bad:
        table.add_row("bad records skipped", f"{progress.skipped:,}")
    show(table, {key: value for key, value in (progress.counts | counts).items() if value})
    say(f"wrote {output}")


def _mapping(chosen: Format, overrides: tuple[str, ...], unit: str | None) -> Model:
    """The settings of an import."""
    from rllib_scale.config.yaml_files import build_model, parse_override

    data: dict[str, Any] = {}
    if (overrides or unit) and not chosen.mapping.model_fields:
        raise UserError(
            f"import {chosen.name}: the format has no settings (got {overrides[0] if overrides else unit!r})"
        )
    for override in overrides:
        path, value = parse_override(override)
        place, _, key = path.partition(".")
        if place != "mapping" or not key:
            raise UserError(f"--set {path}: must be mapping.KEY; valid: {', '.join(chosen.mapping.model_fields)}")
        data[key] = value
    if unit is not None:
        data["unit"] = unit
    return build_model(chosen.mapping, data, f"import {chosen.name}: mapping")


def _print_settings(chosen: Format) -> None:
    table = Table("setting", "default", "valid", "what it is", title=f"{chosen.name}: mapping.", title_justify="left")
    for name, field in chosen.mapping.model_fields.items():
        literals = [value for value in get_args(field.annotation) if isinstance(value, str)]
        valid = ", ".join(literals) or ("true, false" if field.annotation is bool else "a number")
        table.add_row(name, f"{field.default}", valid, (field.description or "").replace("[", "\\["))
    if table.row_count or wants_json():
        show(table, {name: field.default for name, field in chosen.mapping.model_fields.items()})
    else:
        say(f"{chosen.name} has no settings")
