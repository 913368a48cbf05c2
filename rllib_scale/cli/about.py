"""Commands about what there is: methods, schedulers, scenarios, doctor."""

from __future__ import annotations

import sys

import click
from rich.table import Table

from rllib_scale.cli.options import address_option
from rllib_scale.cli.terminal import json_option, show


@click.command()
@json_option
def methods() -> None:
    """List the learned methods."""
    from rllib_scale.config import METHODS

    _print_names({name: spec.description for name, spec in METHODS.items()})


@click.command()
@json_option
def schedulers() -> None:
    """List the heuristics, what they are told, and their parameters: NAME:key=value,key=value."""
    from rllib_scale.config.schedulers import HEURISTICS, plain
    from rllib_scale.plugins import entry_points
    from rllib_scale.schedulers.rules import SCHEDULERS

    content, table = [], Table("name", "what it is", "told of", "parameters")
    for name, rule in SCHEDULERS.items():
        spec = HEURISTICS[name]
        text = (f"{key}={plain(f.default)}: {f.description}" for key, f in spec.parameters.model_fields.items())
        parameters = {key: f.default for key, f in spec.parameters.model_fields.items()}
        facts = {"description": rule.description, "sees": spec.sees, "knows": spec.knows, "parameters": parameters}
        content.append({"name": name} | facts)
        told = "; ".join(filter(None, ({"tasks": "waiting tasks"}.get(spec.sees, spec.sees), spec.knows)))
        table.add_row(name, rule.description, told, "\n".join(text))
    for name, path in entry_points("scheduler").items():
        table.add_row(name, f"{path}, of an installed package", "", "")
        content.append({"name": name, "import_path": path})
    show(table, content)


@click.command()
@json_option
def scenarios() -> None:
    """List the named problems, and what is told in them."""
    from rllib_scale.config import SCENARIOS
    from rllib_scale.plugins import entry_points

    table = Table("name", "what it is", "observability")
    for name, (env, text) in SCENARIOS.items():
        table.add_row(name, text, env.information.label)
    content = [{"name": n, "description": t, "observability": e.information.label} for n, (e, t) in SCENARIOS.items()]
    for name, path in entry_points("scenario").items():
        table.add_row(name, f"{path}, of an installed package", "")
        content.append({"name": name, "import_path": path})
    show(table, content)


@click.command()
@address_option
@json_option
def doctor(address: str | None) -> None:
    """Check the installation: versions, modules, cores, memory, compiled code, Ray."""
    from rllib_scale.cli.doctor import checks

    table = Table("check", "result", "state")
    healthy, content = True, []
    for name, result, good in checks(address):
        healthy &= good
        content.append({"check": name, "result": result, "well": good})
        table.add_row(name, result, "ok" if good else "[red]FAILED[/red]")
    show(table, content)
    sys.exit(0 if healthy else 1)


def _print_names(names: dict[str, str]) -> None:
    table = Table("name", "what it is")
    for name, text in names.items():
        table.add_row(name, text)
    show(table, [{"name": name, "description": text} for name, text in names.items()])
