"""Commands that list what is available: methods, schedulers, scenarios, presets, doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

import click

from rllib_scale.cli.options import JSON_OUTPUT, address_option, check_outputs
from rllib_scale.cli.terminal import json_option, say, show


@click.command()
@json_option
def methods() -> None:
    """List the learned methods."""
    from rllib_scale.config import METHODS

    rows = [{"name": name, "description": spec.description} for name, spec in METHODS.items()]
    show(rows, {"name": "name", "description": "description"})


@click.command()
@json_option
def schedulers() -> None:
    """List the heuristics, their observability, and their parameters, written as NAME:key=value,key=value."""
    from rllib_scale.config import schedulers as config
    from rllib_scale.schedulers.rules import ALL_RULES

    rows: list[dict[str, Any]] = []
    for name, rule in ALL_RULES.items():
        spec = config.ALL_RULES[name]
        parameters = {key: field.default for key, field in spec.parameters.model_fields.items()}
        facts = {"description": rule.description, "sees": spec.sees, "knows": spec.knows, "parameters": parameters}
        rows.append({"name": name} | facts)
    rows += _installed("scheduler")

    def observability(row: dict[str, Any]) -> str:
        sees = row.get("sees", "")
        return "; ".join(filter(None, ({"tasks": "waiting tasks"}.get(sees, sees), row.get("knows"))))

    def parameters_of(row: dict[str, Any]) -> str:
        fields = config.ALL_RULES[row["name"]].parameters.model_fields if "parameters" in row else {}
        return "\n".join(f"{key}={config.plain(field.default)}: {field.description}" for key, field in fields.items())

    columns: dict[str, Any] = {"observability": observability, "parameters": parameters_of}
    show(rows, {"name": "name", "description": "description", **columns})


@click.command()
@json_option
def scenarios() -> None:
    """List the named problems and their observability."""
    from rllib_scale.config import SCENARIOS

    rows: list[dict[str, Any]] = [
        {"name": name, "description": text, "observability": env.information.label}
        for name, (env, text) in SCENARIOS.items()
    ]
    show(rows + _installed("scenario"), {name: name for name in ("name", "description", "observability")})


@click.command()
@json_option
def presets() -> None:
    """List the sweeps that come with the package: `rllib-scale sweep NAME` runs one."""
    from rllib_scale.presets import FOLDER, names, summary

    rows = [{"name": name, "description": summary(name)} for name in names()]
    show(rows, {"name": "name", "description": "description"}, caption=f"files: {FOLDER}")


@click.command()
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write it to FILE, .json.")
def schema(output: Path | None) -> None:
    """Print the JSON Schema of a sweep's YAML, by which editors complete and check keys.

    In the YAML's first line: `# yaml-language-server: $schema=FILE`
    """
    from rllib_scale.config.sweep import SweepConfig
    from rllib_scale.files import write_json

    content = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | SweepConfig.model_json_schema()
    if output is None:
        click.echo(json.dumps(content, indent=2))
        return
    check_outputs({"--output": output}, JSON_OUTPUT)
    write_json(output, content)


@click.command()
@address_option
@click.option("--compile", "compiles", is_flag=True, help="Compile everything ahead, and check nothing.")
@json_option
def doctor(address: str | None, compiles: bool) -> None:
    """Check the installation: versions, extras, cores, memory, compiled code, Ray."""
    from rllib_scale.cli.compile_ahead import compile_all
    from rllib_scale.cli.doctor import checks

    if compiles:
        for line in compile_all():
            say(line)
        return
    rows = [{"check": name, "result": result, "well": good} for name, result, good in checks(address)]
    show(rows, {"check": "check", "result": "result", "state": lambda row: "ok" if row["well"] else "FAILED"})
    sys.exit(0 if all(row["well"] for row in rows) else 1)


def _installed(kind: Literal["scheduler", "scenario"]) -> list[dict[str, Any]]:
    """Plug-ins of installed packages."""
    from rllib_scale.plugins import entry_points

    return [
        {"name": name, "description": f"{path}, of an installed package", "import_path": path}
        for name, path in entry_points(kind).items()
    ]
