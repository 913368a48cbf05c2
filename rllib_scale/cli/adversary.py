"""The command that looks for a scheduler's worst case."""

from __future__ import annotations

import math
from pathlib import Path

import click
from rich.table import Table

from rllib_scale.cli.options import SEED, address_option
from rllib_scale.cli.problems import named_problem
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError


@click.command()
@click.argument("scheduler")
@click.option("--against", required=True, metavar="OTHER", help="The scheduler that it is measured by.")
@click.option("--scenario", default="steady-0.7", show_default=True, help="For all that is not searched.")
@click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: the scenario's own.")
@click.option("--metric", type=click.Choice(["response", "makespan"]), default="response", show_default=True)
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="[default: 10, without --generations]")
@click.option("--generations", type=click.IntRange(min=1), help="So many, whatever the time: the same every time.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default="worst.json", show_default=True)
@address_option
@json_option
def adversary(
    scheduler: str,
    against: str,
    scenario: str,
    mask: str | None,
    metric: str,
    minutes: float | None,
    generations: int | None,
    seed: int,
    output: Path,
    address: str | None,
) -> None:
    """Search for an instance on which SCHEDULER does as badly as can be against OTHER.

    Simulated annealing over load, sizes, shapes and demands of workflows, numbers of servers and bandwidth (limits:
    docs/trouble.md). The worst one found is written to FILE.json, its settings to FILE.yaml, and `simulate --workload
    FILE.json --config FILE.yaml` plays it. Ctrl-C keeps what is found.
    """
    from rllib_scale.clusters.session import ray_session
    from rllib_scale.files import check_writable
    from rllib_scale.sweeps.adversary import METRICS, Adversary, settings_file

    if output.suffix != ".json":
        raise UserError(f"--output {output}: must end in .json")
    settings = settings_file(output)
    check_writable({"--output": output})
    base = named_problem(scenario, None, mask)
    search = Adversary(scheduler, against, base, metric, seed)
    seconds = math.inf if minutes is None and generations is not None else 60 * (minutes or 10.0)
    with ray_session(address) as cpus:
        search.remote = max(0, int(cpus) - 1)  # this process plays, too
        found = search.run(generations, seconds, output, say)
    table = Table("metric", scheduler, against, "ratio", title="The worst instance found", title_justify="left")
    table.add_row(METRICS[metric], f"{found.first:.3f}", f"{found.other:.3f}", f"{found.ratio:.3f}")
    content = {"metric": METRICS[metric], "scheduler": found.first, "against": found.other, "ratio": found.ratio}
    show(table, content | {"generations": search.generation, "workload": str(output), "settings": str(settings)})
    say(f"wrote {output} and {settings}")
    for name in (scheduler, against):
        say(f"play it: rllib-scale simulate --workload {output} --config {settings} --scheduler {name}")
