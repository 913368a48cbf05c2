"""Commands about episodes: evaluate, simulate, and the bounds that nothing played in them can beat."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from rllib_scale.cli.options import SEED, numbers
from rllib_scale.cli.terminal import console, say
from rllib_scale.errors import UserError, choice_error

if TYPE_CHECKING:
    from rllib_scale.config import EnvConfig
    from rllib_scale.evaluation.play import Player


@click.command()
@click.argument("policy")
@click.option("--scales", default="16,32,48,128", show_default=True, help="Servers, by commas.")
@click.option("--episodes", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="(seed, episode) fixes a workload.")
@click.option("--scenario", default="paper", show_default=True, help="See `rllib-scale scenarios`.")
@click.option("--decision", type=click.Choice(["argmax", "sample"]), default="argmax", show_default=True)
@click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: the scenario's own.")
@click.option("--output", type=click.Path(path_type=Path), help="Write one row per episode, .csv or .parquet.")
def evaluate(
    policy: str,
    scales: str,
    episodes: int,
    seed: int,
    scenario: str,
    decision: str,
    mask: str | None,
    output: Path | None,
) -> None:
    """Evaluate POLICY, a folder with an exported policy or a heuristic's name, at any number of servers."""
    import pandas as pd

    from rllib_scale.config.heuristics import information
    from rllib_scale.evaluation.play import evaluate as run
    from rllib_scale.files import write_atomic

    if output is not None and output.suffix not in (".csv", ".parquet"):
        raise UserError(f"--output {output}: must end in .csv or .parquet")
    frames = []
    for servers in numbers("--scales", scales):
        env = named_problem(scenario, servers, mask)
        scheduler = named_scheduler(policy, env, decision)
        method = scheduler.trial.method if hasattr(scheduler, "trial") else scheduler.name
        rows = pd.DataFrame(run(scheduler, env, seed, episodes))
        frames.append(
            rows.assign(
                method=scheduler.name,
                scenario=scenario,
                test_servers=servers,
                mask=env.episode.mask,
                information=information(method, env.information, scheduler.sees),
            )
        )
    frame = pd.concat(frames, ignore_index=True).assign(decision=decision, eval_seed=seed)
    title = f"{frame['method'][0]}, scenario {scenario}, mask {frame['mask'][0]}, {decision}"
    title += f", told: {frame['information'][0]}"
    table = Table(title=f"{title}: mean ± sd over {episodes} episodes", title_justify="left")
    for column in ("servers", "completed", "unfinished", "response (s)", "censored (s)", "return", "invalid"):
        table.add_column(column, justify="right")
    for at_scale, rows in frame.groupby("test_servers"):
        invalid = rows.filter(like="invalid_").to_numpy().sum() / max(1, rows["decisions"].sum())
        means = (
            f"{rows[k].mean():.{d}f} ± {rows[k].std(ddof=1) if len(rows) > 1 else 0:.{d}f}"
            for k, d in (("completed", 2), ("unfinished", 1), ("response_mean_s", 2), ("response_censored_s", 2))
        )
        table.add_row(str(at_scale), *means, f"{rows['episode_return'].mean():.2f}", f"{invalid:.0%}")
    console.print(table)
    if output is not None:
        write = frame.to_csv if output.suffix == ".csv" else frame.to_parquet
        write_atomic(output, lambda path: write(path, index=False))
        say(f"wrote {output}")


@click.command()
@click.option("--scheduler", default="fastest-idle", show_default=True, help="A heuristic's name or a policy folder.")
@click.option("--scenario", default="paper", show_default=True)
@click.option("--servers", default=16, show_default=True)
@click.option("--workload", type=click.Path(path_type=Path), help="Workload to play (JSON).")
@click.option("--horizon", type=float, help="End of the episode in s (default: the scenario's).")
@click.option("--seed", type=SEED, default=1000, show_default=True, help="Of the workload, where none is given.")
@click.option("--episode", type=SEED, default=0, show_default=True)
@click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: the scenario's own.")
@click.option("--schedule", type=click.Path(path_type=Path), help="Write the schedule (CSV).")
@click.option("--gantt", type=click.Path(path_type=Path), help="Draw the schedule (PNG).")
@click.option("--video", type=click.Path(path_type=Path), help="Film the schedule as it comes about (GIF).")
@click.option("--prices", type=click.Path(path_type=Path), help="Draw the prices of a context-price policy (PNG).")
@click.option("--wfformat", type=click.Path(path_type=Path), help="Write what ran as a WfFormat execution (JSON).")
@click.option("--trace", type=click.Path(path_type=Path), help="Write a trace for ui.perfetto.dev (JSON).")
@click.option("--save-workload", type=click.Path(path_type=Path), help="Write the workload that was played (JSON).")
def simulate(
    scheduler: str,
    scenario: str,
    servers: int,
    workload: Path | None,
    horizon: float | None,
    seed: int,
    episode: int,
    mask: str | None,
    schedule: Path | None,
    gantt: Path | None,
    video: Path | None,
    prices: Path | None,
    wfformat: Path | None,
    trace: Path | None,
    save_workload: Path | None,
) -> None:
    """Play one episode and write its whole schedule.

    --wfformat writes workflows, files, machines and the tasks that finished as an instance of WfFormat 1.6, which
    `rllib-scale import wfformat` and the tools of wfcommons.org read. --trace writes Chrome trace events: a row for
    each slot, a slice for each attempt with its transfer, flows along the edges, and how many tasks wait.
    """
    import pandas as pd

    from rllib_scale.envs.gantt import draw_gantt, film, save_film
    from rllib_scale.envs.price_chart import draw_prices
    from rllib_scale.evaluation import exports
    from rllib_scale.evaluation.play import play
    from rllib_scale.files import write_atomic
    from rllib_scale.schedulers.context_price import ContextPrice
    from rllib_scale.workloads.generators import generate
    from rllib_scale.workloads.model import Workload

    if video is not None and video.suffix != ".gif":
        raise UserError(f"--video {video}: must end in .gif")
    env = named_problem(scenario, servers, mask, horizon)
    given = Workload.load(workload) if workload else None
    if given is not None:
        given.check_fits(max(tier.memory_gb for tier in env.cluster.tiers), str(workload))
    chosen = named_scheduler(scheduler, env, "argmax")
    if prices is not None:
        if not isinstance(chosen, ContextPrice):
            raise UserError(f"--prices: {chosen.name} has none; valid: a policy of the method context-price")
        chosen.keeps_account = True
    engine = play(chosen, env, seed, [episode], workload=given)
    title = f"{chosen.name} on {workload.name if workload else f'{scenario}, seed {seed}, episode {episode}'}"
    table = Table("metric", "value", title=title, title_justify="left")
    for name, value in engine.metrics().items():
        table.add_row(name, f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)
    rows = engine.schedule()
    arrived = given or generate(env, seed, episode)
    played = exports.Played(env, arrived, rows, float(engine.clock[0]), title)
    wanted = ((wfformat, exports.to_wfformat), (trace, exports.to_trace))
    contents = [(path, export(played)) for path, export in wanted if path is not None]
    if schedule is not None:
        write_atomic(schedule, lambda path: pd.DataFrame(rows).to_csv(path, index=False))
        say(f"wrote {schedule}: {len(rows)} started tasks")
    if gantt is not None or video is not None:
        figure = draw_gantt(rows, env.cluster, float(engine.clock[0]), title)
    if gantt is not None:
        write_atomic(gantt, lambda path: figure.savefig(path, format="png"))
        say(f"wrote {gantt}")
    if video is not None:
        pictures = film(figure)
        write_atomic(video, lambda path: save_film(pictures, path))
        say(f"wrote {video}: {len(pictures)} pictures")
    if prices is not None and isinstance(chosen, ContextPrice):
        drawn = draw_prices(*chosen.over_time(), title)
        write_atomic(prices, lambda path: drawn.savefig(path, format="png", dpi=150))
        say(f"wrote {prices}")
    for path, content in contents:
        exports.write(path, content)
        say(f"wrote {path}")
    if save_workload is not None:
        arrived.save(save_workload)
        say(f"wrote {save_workload}")


@click.command()
@click.argument("scenario")
@click.option("--scales", default="16,128", show_default=True, help="Servers, by commas.")
@click.option("--episodes", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="(seed, episode) fixes a workload.")
@click.option("--fluid", is_flag=True, help="Also the fluid bound: tighter, seconds an episode at 16 servers.")
@click.option("--output", type=click.Path(path_type=Path), help="Write one row per episode (CSV).")
def bounds(scenario: str, scales: str, episodes: int, seed: int, fluid: bool, output: Path | None) -> None:
    """Lower bounds on the mean response in SCENARIO: what no scheduler can beat.

    Critical path and capacity hold in each episode, and stand in the rows of every evaluation; the fluid bound holds in
    each episode, too, is tighter, and slow. The stationary bound is on the mean in the long run, without the beginning
    and the end of an episode; its error is that of its sample.
    """
    import pandas as pd

    from rllib_scale.bounds.fluid import fluid_bound
    from rllib_scale.bounds.lower_bounds import lower_bounds
    from rllib_scale.bounds.stationary import stationary_bound
    from rllib_scale.files import write_atomic
    from rllib_scale.workloads.generators import generate

    if output is not None and output.suffix != ".csv":
        raise UserError(f"--output {output}: must end in .csv")
    table = Table(title=f"{scenario}: lower bounds on the mean response (s), {episodes} episodes", title_justify="left")
    for column in ("servers", "critical path", "capacity", "fluid", "stationary ± error", "prices of a second"):
        table.add_column(column, justify="right")
    rows = []
    for servers in numbers("--scales", scales):
        env = named_problem(scenario, servers, None).for_evaluation()
        long_run = stationary_bound(env)
        stationary = {"bound_stationary_s": long_run.response_s, "bound_stationary_error_s": long_run.standard_error_s}
        for episode in range(episodes):
            workload = generate(env, seed, episode)
            of_episode = lower_bounds(env, workload) | {"bound_fluid_s": math.nan}
            if fluid:
                of_episode["bound_fluid_s"] = fluid_bound(env, workload)
                say(f"{servers} servers, episode {episode}: fluid bound {of_episode['bound_fluid_s']:.2f} s")
            where = {"scenario": scenario, "test_servers": servers, "eval_seed": seed, "episode": episode}
            rows.append(where | of_episode | stationary)
        means = pd.DataFrame(rows[-episodes:]).mean(numeric_only=True)
        table.add_row(
            str(servers),
            f"{means['bound_critical_path_s']:.2f}",
            f"{means['bound_capacity_s']:.2f}",
            f"{means['bound_fluid_s']:.2f}" if fluid else "",
            f"{long_run.response_s:.2f} ± {long_run.standard_error_s:.2f}",
            "/".join(f"{price:.2g}" for price in long_run.prices),
        )
    console.print(table)
    if output is not None:
        write_atomic(output, lambda path: pd.DataFrame(rows).to_csv(path, index=False))
        say(f"wrote {output}")


def named_problem(name: str, servers: int, mask: str | None, horizon: float | None = None) -> EnvConfig:
    """A scenario at a number of servers.

    Raises:
        UserError: there is none of that name, or not at so few servers.
    """
    from rllib_scale.config import SCENARIOS, EnvConfig
    from rllib_scale.config.yaml_files import build_model

    if name not in SCENARIOS:
        raise choice_error("scenario", name, SCENARIOS)
    data = SCENARIOS[name][0].model_dump(mode="json")
    data["cluster"]["servers"] = servers
    if mask is not None:
        data["episode"]["mask"] = mask
    if horizon is not None:
        data["episode"]["horizon_s"] = horizon
    return build_model(EnvConfig, data, name)


def named_scheduler(name: str, env: EnvConfig, decision: str) -> Player:
    """A heuristic by its name, or the policy in a folder.

    Raises:
        UserError: it is neither.
    """
    from rllib_scale.config.heuristics import is_heuristic
    from rllib_scale.plugins import entry_points
    from rllib_scale.schedulers.rules import SCHEDULERS, make_scheduler

    if name.partition(":")[0] in SCHEDULERS or not Path(name).exists():
        if not is_heuristic(name):
            valid = [*SCHEDULERS, *entry_points("scheduler")]
            raise UserError(f"{choice_error('scheduler', name, valid)}; and no policy folder of that name")
        return make_scheduler(name, env.observation, env.episode.mask, decision)  # type: ignore[arg-type]
    from rllib_scale.policies.policy import load_policy

    return load_policy(Path(name), mask=env.episode.mask, decision=decision)  # type: ignore[arg-type]
