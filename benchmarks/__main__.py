"""`python -m benchmarks [PART ...]`: speed, side by side with RLlib's own parts, a plain PPO loop and Ray's own."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Measure
from rllib_scale.errors import UserError
from rllib_scale.files import write_json

PACKAGES = ("ray", "torch", "gymnasium", "numpy", "numba")
"""On whose versions the numbers depend."""
NAMES = ("sim", "replicas", "net", "train", "scaling", "decide", "live", "rates", "router", "receipts")
ASKED_FOR = ("real_fleet",)
"""Parts that run only if they are named: this one installs 3 GB."""


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(NAMES + ASKED_FOR))
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Medians are over these.")
@click.option("--workflows", default=500, show_default=True, help="live: approximate number, on actors and simulated.")
@click.option("--turns", default=40, show_default=True, help="live: of coding agents, a round and router.")
@click.option(
    "--sessions",
    type=click.Path(path_type=Path, exists=True),
    help="receipts: recorded sessions (kv-cache-tester), without which those that need them are left out.",
)
@click.option("--small", is_flag=True, help="real_fleet: one engine, two policies, two loads.")
@click.option("--paired", is_flag=True, help="real_fleet: a learned release against a gate, six seeds at two loads.")
@click.option("--policy", multiple=True, help="real_fleet: a rule for replicas; several times.  [default: five]")
@click.option("--cache", type=click.Path(path_type=Path), help="real_fleet: of the environment of its engines.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("results/real-fleet"),
    show_default=True,
    help="real_fleet: for logs, frozen predictions and runs.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write every raw number (JSON).")
def main(
    parts: tuple[str, ...],
    rounds: int,
    workflows: int,
    turns: int,
    sessions: Path | None,
    small: bool,
    paired: bool,
    policy: tuple[str, ...],
    cache: Path | None,
    folder: Path,
    output: Path | None,
) -> None:
    """Run PARTS of the benchmarks; by default all of them but real_fleet."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the slow reference simulator is there
    options: dict[str, dict[str, Any]] = {"live": {"workflows": workflows, "turns": turns}}
    options["receipts"] = {"sessions": sessions}
    options["real_fleet"] = {"small": small, "paired": paired, "policies": policy, "cache": cache, "folder": folder}
    try:
        result = run(parts or NAMES, rounds, Console(), options)
    except UserError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    if output is not None:
        write_json(output, result)


def run(
    names: tuple[str, ...],
    rounds: int,
    console: Console,
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Run benchmarks one after the other, print each one's table, return everything as plain data.

    Args:
        names: of `NAMES` and `ASKED_FOR`.
        rounds: of each.
        console: to print on.
        options: name -> further arguments of its `run`.

    Returns:
        {"machine": model, cores and load average before, "versions": package -> version, "rounds": how many,
        "benchmarks": name -> list of `Measure.to_dict()`}.
    """
    result: dict[str, Any] = {"machine": machine(), "versions": versions(), "rounds": rounds, "benchmarks": {}}
    console.print(describe(result["machine"]), markup=False)
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        measures = module.run(rounds, **options.get(name, {}))
        how = f"medians of {rounds} rounds; CPU time, and wall time where both are taken"
        console.print(table(f"{name}: {getattr(module, 'TITLE', how)}", measures))
        result["benchmarks"][name] = [measure.to_dict() for measure in measures]
    return result


def machine() -> dict[str, Any]:
    """Processor, cores and load average over 1, 5 and 15 minutes."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return {"model": model, "cores": os.cpu_count(), "load_average": list(os.getloadavg())}


def describe(facts: dict[str, Any]) -> str:
    """The machine in one line."""
    load = ", ".join(f"{x:.2f}" for x in facts["load_average"])
    return f"{facts['model']}, {facts['cores']} cores, load average {load} at the start; one thread a process"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages the numbers depend on."""
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}


def table(title: str, measures: list[Measure]) -> Table:
    """One row a measure."""
    result = Table("measure", title=title, title_justify="left")
    for column in ("value", "wall", "bar", "aim"):
        result.add_column(column, justify="right")
    result.add_column("unit")
    result.add_column("reaches")
    colours = {"missed": "[red]missed[/red]", "bar": "bar", "aim": "[green]aim[/green]", "": ""}
    for m in measures:
        numbers = (_number(x) for x in (m.value, m.wall, m.bar, m.aim))
        result.add_row(m.name, *numbers, m.unit, colours[m.verdict])
    return result


def _number(x: float | None) -> str:
    if x is None:
        return ""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


if __name__ == "__main__":
    main()
