"""The command that plays on a live Ray cluster: execute."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click

from rllib_scale.cli.options import (
    SEED,
    EpisodeFiles,
    address_option,
    check_outputs,
    code_option,
    files_options,
    scheduler_option,
)
from rllib_scale.cli.problems import Problem, mask_option
from rllib_scale.cli.terminal import json_option, say, show

_path = click.Path(path_type=Path)


@click.command()
@click.argument("workload", type=_path)
@scheduler_option
@click.option("--scenario", default="steady-0.7", show_default=True, help="Cluster, decisions and communication.")
@click.option("--servers", default=16, show_default=True, help="Actors, distributed over the Ray nodes.")
@click.option("--ray-nodes", is_flag=True, help="Take the Ray nodes as servers, with the resources that Ray reports.")
@mask_option
@address_option
@click.option(
    "--time-scale",
    type=click.FloatRange(min=0, min_open=True),
    default=0.1,
    show_default=True,
    help="Seconds that one second of the workload takes.",
)
@click.option(
    "--bytes-per-gb",
    type=click.FloatRange(min=0),
    default=1e6,
    show_default=True,
    help="Bytes moved for each GB of an output.",
)
@click.option("--retries", type=click.IntRange(min=0), default=3, show_default=True, help="Of a failed task.")
@click.option(
    "--horizon", type=click.FloatRange(min=0, min_open=True), help="End in s (default: when all tasks are done)."
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
    servers: int,
    ray_nodes: bool,
    mask: str | None,
    address: str | None,
    time_scale: float,
    bytes_per_gb: float,
    retries: int,
    horizon: float | None,
    seed: int,
    results: Path | None,
    files: EpisodeFiles,
    trust: bool,
) -> None:
    """Play WORKLOAD on Ray actors, where surrogate tasks sleep for their demand.

    Prints the metrics beside those of the simulator for the same workload and scheduler, and writes both to a results
    folder, which `report` and `dashboard` show.
    """
    import numpy as np

    from rllib_scale.clusters.session import ray_session
    from rllib_scale.evaluation.exports import Played
    from rllib_scale.live.backend import check_live
    from rllib_scale.live.execute import execute as run
    from rllib_scale.live.servers import nodes_as_servers
    from rllib_scale.live.side_by_side import add_rows, open_results, simulated
    from rllib_scale.live.surrogates import Surrogates
    from rllib_scale.policies.make import make_policy
    from rllib_scale.workloads.model import Workload

    check_outputs(files.options)
    given = Workload.load(workload)
    env, nodes = Problem(scenario, mask).env(servers), None
    policy = make_policy(scheduler, env, trust=trust)
    folder = results or Path("results") / f"live-{workload.stem}"

    def check() -> None:
        """Refuse a problem that a live cluster cannot play, before Ray starts if the servers are known."""
        check_live(policy.problem(env))
        given.check_fits(max(tier.memory_gb for tier in env.cluster.tiers), str(workload))

    if not ray_nodes:
        check()
    with ray_session(address):
        if ray_nodes:
            env, nodes = nodes_as_servers(env)
            check()
        open_results(folder, given, workload.stem)
        end_s = horizon or math.inf
        live = run(policy, env, given, Surrogates(time_scale, bytes_per_gb), retries, nodes, seed, end_s, say)
    engine = simulated(policy, env, given, seed, end_s)
    add_rows(folder, policy.name, scenario, seed, live, engine)
    title = f"{policy.name} on {workload.name}: {env.cluster.num_servers} Ray actors, 1 s in {time_scale:g} s"
    simulation = engine.metrics()
    pairs = zip(live.metrics.items(), simulation.values(), strict=True)
    rows = [{"metric": name, "live": ours, "simulated": theirs} for (name, ours), theirs in pairs]
    content = {"live": live.metrics, "simulated": simulation}
    show(rows, {name: name for name in ("metric", "live", "simulated")}, title, content=content)
    if len(live.overheads_s):
        p50, p99 = np.quantile(live.overheads_s * 1e3, (0.5, 0.99))
        say(f"decision and dispatch beyond the sleep: p50 {p50:.1f} ms, p99 {p99:.1f} ms, of {len(live.overheads_s)}")
    say(f"wrote {folder}: `rllib-scale report {folder}` shows both")
    files.write(Played(live.env, given, live.schedule, live.end_s, title))
    for number, error in live.failed.items():
        say(f"workflow {number} failed: {error}")
    sys.exit(1 if live.failed else 0)
