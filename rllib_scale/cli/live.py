"""The command on a live Ray cluster: execute."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click
from rich.table import Table

from rllib_scale.cli.options import SEED, address_option, check_endings, code_option, played_options
from rllib_scale.cli.problems import named_problem
from rllib_scale.cli.terminal import json_option, say, show

_path = click.Path(path_type=Path)


@click.command()
@click.argument("workload", type=_path)
@click.option(
    "--scheduler", default="fastest-idle", show_default=True, help="A heuristic's name, a policy's folder, or zoo:NAME."
)
@click.option("--scenario", default="steady-0.7", show_default=True, help="Cluster, decisions and communication.")
@click.option("--servers", default=16, show_default=True, help="Actors, dealt out to the Ray nodes.")
@click.option("--ray-nodes", is_flag=True, help="The Ray nodes are the servers, as large as Ray says they are.")
@click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: the scenario's own.")
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
    help="Really moved for each GB of an output.",
)
@click.option("--retries", type=click.IntRange(min=0), default=3, show_default=True, help="Of a task that fails.")
@click.option("--horizon", type=click.FloatRange(min=0, min_open=True), help="End in s (default: when all is done).")
@click.option("--seed", type=SEED, default=1000, show_default=True, help="Of the scheduler's draws.")
@click.option("--results", type=_path, help="Results folder (default: results/live-WORKLOAD).")
@played_options
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
    schedule: Path | None,
    gantt: Path | None,
    trace: Path | None,
    trust: bool,
) -> None:
    """Play WORKLOAD on real Ray actors: SCHEDULER decides, surrogate tasks sleep for their demand.

    Prints the metrics beside those of the simulator, for the same workload and scheduler, and writes both to a results
    folder, which `report` and `dashboard` show.
    """
    import numpy as np
    import pandas as pd

    from rllib_scale.clusters.session import ray_session
    from rllib_scale.envs.gantt import draw_gantt
    from rllib_scale.evaluation import exports
    from rllib_scale.files import check_writable, write_atomic
    from rllib_scale.live.backend import check_live
    from rllib_scale.live.execute import dispatcher_of
    from rllib_scale.live.execute import execute as run
    from rllib_scale.live.servers import nodes_as_servers
    from rllib_scale.live.side_by_side import add_rows, open_results, simulated
    from rllib_scale.live.surrogates import Surrogates
    from rllib_scale.policies.make import make_policy
    from rllib_scale.workloads.model import Workload

    check_endings({"--schedule": schedule, "--gantt": gantt})
    check_writable({"--schedule": schedule, "--gantt": gantt, "--trace": trace})
    given = Workload.load(workload)
    env, nodes = named_problem(scenario, servers, mask), None
    player = make_policy(scheduler, env, trust=trust)
    folder = results or Path("results") / f"live-{workload.stem}"

    def refuse_what_cannot_be() -> None:
        """Before anything starts, where the servers are known before."""
        check_live(dispatcher_of(player, env)[1])
        given.check_fits(max(tier.memory_gb for tier in env.cluster.tiers), str(workload))

    if not ray_nodes:
        refuse_what_cannot_be()
    with ray_session(address):
        if ray_nodes:
            env, nodes = nodes_as_servers(env)
            refuse_what_cannot_be()
        open_results(folder, given, workload.stem)
        end_s = horizon or math.inf
        live = run(player, env, given, Surrogates(time_scale, bytes_per_gb), retries, nodes, seed, end_s, say)
    engine = simulated(player, env, given, seed, end_s)
    add_rows(folder, player.name, scenario, seed, live, engine)
    title = f"{player.name} on {workload.name}: {env.cluster.num_servers} Ray actors, 1 s in {time_scale:g} s"
    table = Table("metric", "live", "simulated", title=title, title_justify="left")
    for (name, ours), theirs in zip(live.metrics.items(), engine.metrics().values(), strict=True):
        table.add_row(name, *(f"{v:.3f}" if isinstance(v, float) else str(v) for v in (ours, theirs)))
    show(table, {"live": live.metrics, "simulated": engine.metrics()})
    if len(live.overheads_s):
        p50, p99 = np.quantile(live.overheads_s * 1e3, (0.5, 0.99))
        say(f"decision and dispatch beyond the sleep: p50 {p50:.1f} ms, p99 {p99:.1f} ms, of {len(live.overheads_s)}")
    say(f"wrote {folder}: `rllib-scale report {folder}` shows both")
    played = exports.Played(live.env, given, live.schedule, live.end_s, title)
    if schedule is not None:
        write_atomic(schedule, lambda path: pd.DataFrame(live.schedule).to_csv(path, index=False))
        say(f"wrote {schedule}: {len(live.schedule)} started tasks")
    if gantt is not None:
        figure = draw_gantt(live.schedule, env.cluster, live.end_s, title)
        write_atomic(gantt, lambda path: figure.savefig(path, format="png"))
        say(f"wrote {gantt}")
    if trace is not None:
        exports.write(trace, exports.to_trace(played))
        say(f"wrote {trace}")
    for number, error in live.failed.items():
        say(f"workflow {number} was given up: {error}")
    sys.exit(1 if live.failed else 0)
