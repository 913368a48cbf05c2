"""The command that plays on a live Ray cluster: execute."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rllib_scale.cli.options import (
    SEED,
    EpisodeFiles,
    address_option,
    check_outputs,
    code_option,
    files_options,
    scheduler_option,
    set_option,
)
from rllib_scale.cli.problems import Problem, config_option, given_workload, mask_option
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

_path = click.Path(path_type=Path)


class _Finite(click.FloatRange):
    """A range without infinity and without NaN, which no comparison keeps out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


@click.command()
@click.argument("workload", type=_path)
@scheduler_option
@click.option("--scenario", default="steady-0.7", show_default=True, help="Cluster, decisions and communication.")
@config_option
@set_option
@click.option("--servers", type=int, help="Actors on the Ray nodes.  [default: 16, or those of your own cluster]")
@click.option("--ray-nodes", is_flag=True, help="Take the Ray nodes as servers, with the resources that Ray reports.")
@mask_option
@address_option
@click.option(
    "--time-scale",
    type=_Finite(min=0, min_open=True),
    default=0.1,
    show_default=True,
    help="Seconds that one second of the workload takes.",
)
@click.option(
    "--bytes-per-gb", type=_Finite(min=0), default=1e6, show_default=True, help="Bytes moved for each GB of an output."
)
@click.option("--guard", help="Rule that takes over for good once workflows stay 10 % longer than they would with it.")
@click.option("--retries", type=click.IntRange(min=0), default=3, show_default=True, help="Of a failed task.")
@click.option(
    "--horizon", type=_Finite(min=0, min_open=True), help="End in s of the workload (default: when all tasks are done)."
)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="Of the scheduler's draws.")
@click.option("--results", type=_path, help="Results folder (default: results/live-WORKLOAD).")
@files_options
@code_option
@json_option
def execute(
    workload: Path,
    scheduler: str,
    scenario: str,
    config: Path | None,
    overrides: tuple[str, ...],
    servers: int | None,
    ray_nodes: bool,
    mask: str | None,
    address: str | None,
    time_scale: float,
    bytes_per_gb: float,
    guard: str | None,
    retries: int,
    horizon: float | None,
    seed: int,
    results: Path | None,
    files: EpisodeFiles,
    trust: bool,
) -> None:
    """Run WORKLOAD on a Ray cluster: each server is an actor, and each task sleeps for its demand.

    Prints the metrics, and those of a simulation of the same workload and scheduler. Both are written to a results
    folder, which `report` and `dashboard` show.
    """
    import numpy as np

    from rllib_scale.clusters.session import ray_session
    from rllib_scale.live.execute import check
    from rllib_scale.live.execute import execute as run
    from rllib_scale.live.guard import Guard
    from rllib_scale.live.servers import check_room, nodes_as_servers
    from rllib_scale.live.side_by_side import add_rows, open_results, simulated
    from rllib_scale.live.surrogates import Surrogates
    from rllib_scale.policies.make import make_policy

    check_outputs(files.options)
    given, surrogates = given_workload(workload), Surrogates(time_scale, bytes_per_gb)
    problem = Problem(scenario, mask, horizon, config, overrides, draws=False)
    env, nodes = problem.env(problem.servers(16) if servers is None else servers), None
    policy, guarding = make_policy(scheduler, env, trust=trust), Guard(guard) if guard else None
    if ray_nodes and (servers is not None or problem.servers(16) is None):
        raise UserError("--ray-nodes: the Ray nodes are the servers; leave out --servers and settings of cluster")
    if not ray_nodes:  # else they are not known before Ray has started
        check(policy, env, given, surrogates, str(workload))
        if guarding is not None:
            guarding.rule(env)
        if address is None:
            check_room(env.cluster.num_servers)
    folder = results or Path("results") / f"live-{workload.stem}"
    open_results(folder, given, workload.stem)
    has_horizon = horizon is not None or "horizon_s" in problem.changes.get("episode", {})
    end_s = env.episode.horizon_s if has_horizon else math.inf
    say("Ray starts, which takes some seconds" if address is None else f"connecting to {address}")
    with ray_session(address):
        if ray_nodes:
            env, nodes = nodes_as_servers(env)
        last_s = float(given.arrival_s[-1]) * time_scale
        say(
            f"{env.cluster.num_servers} servers start; then {given.num_workflows:,} workflows arrive within "
            f"{last_s:.0f} s and run to their ends"
        )
        live = run(policy, env, given, surrogates, retries, nodes, seed, end_s, say, guarding)
    engine = simulated(policy, env, given, seed, end_s)
    add_rows(folder, policy, scenario, seed, live, engine)
    title = f"{policy.name} on {workload.name}: {env.cluster.num_servers} servers, one second takes {time_scale:g} s"
    simulation = engine.metrics()
    pairs = zip(live.metrics.items(), simulation.values(), strict=True)
    rows = [{"metric": name, "live": ours, "simulated": theirs} for (name, ours), theirs in pairs]
    say("simulated: the same workload and scheduler, without Ray's own time; live is what happened")
    content = {"live": live.metrics, "simulated": simulation}
    show(rows, {name: name for name in ("metric", "live", "simulated")}, title, content=content)
    if len(live.overheads_s):
        p50, p99 = np.quantile(live.overheads_s * 1e3, (0.5, 0.99))
        say(f"time of a task beyond its sleep: median {p50:.1f} ms, 99 % quantile {p99:.1f} ms")
    say(f"wrote {folder}: `rllib-scale report {folder}` shows both")
    files.write(replace(live, name=title))
    for number, error in live.failed.items():
        say(f"workflow {number} failed: {error}")
    sys.exit(1 if live.failed else 0)
