"""Commands about episodes: evaluate, simulate, and the bounds that nothing played in them can beat."""

from __future__ import annotations

import math
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from rllib_scale.cli.options import EPISODES, SEED, check_endings, code_option, numbers, played_options, write_output
from rllib_scale.cli.problems import (
    given_workload,
    named_problem,
    own_options,
    own_problem,
    say_what_is_left,
    to_its_end,
)
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

_path = click.Path(path_type=Path)


@click.command()
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option("--scales", help="Servers, by commas.  [default: 16,32,48,128, or those of a cluster of your own]")
@click.option("--episodes", type=EPISODES, default=30, show_default=True)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="(seed, episode) fixes a workload.")
@click.option("--scenario", default="paper", show_default=True, help="See `rllib-scale scenarios`; or FILE.yaml.")
@own_options
@click.option("--workload", type=_path, help="Play this one (JSON), to its end unless a horizon is set.")
@click.option("--horizon", type=float, help="End of an episode in s (default: the scenario's).")
@click.option("--decision", type=click.Choice(["argmax", "sample"]), default="argmax", show_default=True)
@click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: the scenario's own.")
@click.option("--output", type=_path, help="Write one row per episode, .csv or .parquet.")
@code_option
@json_option
@click.pass_context
def evaluate(
    ctx: click.Context,
    policies: tuple[str, ...],
    scales: str | None,
    episodes: int,
    seed: int,
    scenario: str,
    config: Path | None,
    overrides: tuple[str, ...],
    workload: Path | None,
    horizon: float | None,
    decision: str,
    mask: str | None,
    output: Path | None,
    trust: bool,
) -> None:
    """Evaluate each POLICY, a heuristic's name, a folder with an exported policy or zoo:NAME, at any number of servers.

    All of them play the same episodes, and stand in one table.
    """
    import pandas as pd

    from rllib_scale.config.schedulers import observability
    from rllib_scale.evaluation.play import evaluate as run
    from rllib_scale.files import check_writable
    from rllib_scale.policies.make import make_policy

    check_endings({"--output": output})
    check_writable({"--output": output})
    own = own_problem(config, overrides)
    given = None if workload is None else given_workload(workload, ctx, ("seed", "episodes"))
    places = [None] if scales is None and "cluster" in own else numbers("--scales", scales or "16,32,48,128")
    frames, episodes = [], 1 if given is not None else episodes
    for servers in places:
        env = named_problem(scenario, servers, mask, horizon, own, config and config.parent)
        if given is not None and workload is not None:
            env = to_its_end(env, given, workload, horizon is not None or "horizon_s" in own.get("episode", {}))
        else:
            env.check_size()
        for policy in policies:
            scheduler = make_policy(policy, env, decision, trust)  # type: ignore[arg-type]
            method = scheduler.trial.method if hasattr(scheduler, "trial") else scheduler.name
            rows = pd.DataFrame(run(scheduler, env, seed, episodes, given=given))
            if given is not None and (rows["workflows_completed"] < given.num_workflows).any():
                say_what_is_left(scheduler.name, rows.iloc[0].to_dict(), given)
            frames.append(
                rows.assign(
                    method=scheduler.name,
                    scenario=scenario,
                    test_servers=env.cluster.num_servers,
                    mask=env.episode.mask,
                    observability=observability(method, env.information, scheduler.sees),
                )
            )
    frame = pd.concat(frames, ignore_index=True).assign(decision=decision, eval_seed=seed)
    several, told = len(policies) > 1, frame.groupby("observability", sort=False)["method"].unique()
    title = f"{'' if several else frame['method'][0] + ', '}scenario {scenario}{' changed' if own else ''}"
    title += f", mask {frame['mask'][0]}, {decision}"
    title += f": mean ± sd over {episodes} episodes" if given is None else f": {workload}"
    by_whom = (f"{what} ({', '.join(who)})" if len(told) > 1 else str(what) for what, who in told.items())
    caption = f"told: {'; '.join(by_whom)}"
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    invalid = frame.filter(like="invalid_").sum(axis=1)
    # A column that has nothing to say is left out: names and numbers are to fit into 80 characters.
    unfinished, is_invalid = bool((frame["unfinished"] > 0).any()), bool((invalid > 0).any())
    columns = ["scheduler"] * several + ["servers", "completed"] + ["unfinished"] * unfinished + ["response (s)"]
    columns += ["censored (s)"] * unfinished + ["return"] + ["invalid"] * is_invalid
    for column in columns:
        text = column == "scheduler"
        table.add_column(column, justify="left" if text else "right", no_wrap=text, overflow="fold")
    content = []
    for (at_scale, name), rows in frame.groupby(["test_servers", "method"], sort=False):
        numeric = rows.drop(columns=["episode", "test_servers", "eval_seed"]).select_dtypes("number")
        mean, sd = numeric.mean(), numeric.std(ddof=1)
        share = invalid[rows.index].sum() / max(1, rows["decisions"].sum())
        cells = {
            "scheduler": str(name),
            "servers": str(at_scale),
            "completed": f"{mean['completed']:.1f}",
            "unfinished": f"{mean['unfinished']:.1f}",
            "response (s)": f"{mean['response_mean_s']:.2f}±{sd.fillna(0.0)['response_mean_s']:.2f}",
            "censored (s)": f"{mean['response_censored_s']:.2f}",
            "return": f"{mean['episode_return']:.2f}",
            "invalid": f"{share:.0%}",
        }
        table.add_row(*[cells[column].replace("nan", "-") for column in columns])
        facts = {key: rows[key].iloc[0] for key in ("method", "scenario", "mask", "decision", "observability")}
        summary = {"mean": mean.to_dict(), "sd": sd.to_dict()}
        content.append({**facts, "servers": at_scale, "episodes": len(rows), "invalid_share": share, **summary})
    show(table, content)
    if output is not None:
        write_output(frame, output)


@click.command()
@click.option(
    "--scheduler", default="fastest-idle", show_default=True, help="A heuristic's name, a policy's folder, or zoo:NAME."
)
@click.option("--scenario", default="paper", show_default=True)
@own_options
@click.option("--servers", type=int, help="[default: 16, or those of a cluster of your own]")
@click.option("--workload", type=_path, help="Play this one (JSON), to its end unless a horizon is set.")
@click.option("--horizon", type=float, help="End of the episode in s (default: the scenario's).")
@click.option("--seed", type=SEED, default=1000, show_default=True, help="Of the workload, where none is given.")
@click.option("--episode", type=SEED, default=0, show_default=True)
@click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: the scenario's own.")
@played_options
@click.option("--video", type=_path, help="Film the schedule as it comes about (GIF).")
@click.option("--prices", type=_path, help="Draw the prices of a context-price policy (PNG).")
@click.option("--save-workload", type=_path, help="Write the workload that was played (JSON).")
@code_option
@json_option
@click.pass_context
def simulate(
    ctx: click.Context,
    scheduler: str,
    scenario: str,
    config: Path | None,
    overrides: tuple[str, ...],
    servers: int | None,
    workload: Path | None,
    horizon: float | None,
    seed: int,
    episode: int,
    mask: str | None,
    schedule: Path | None,
    gantt: Path | None,
    video: Path | None,
    prices: Path | None,
    trace: Path | None,
    save_workload: Path | None,
    trust: bool,
) -> None:
    """Play one episode and write its whole schedule.

    --trace writes Chrome trace events: a row for each slot, a slice for each attempt with its transfer, flows along the
    edges, and how many tasks wait.
    """
    import pandas as pd

    from rllib_scale.envs.gantt import MOST_LANES, draw_gantt, film, save_film
    from rllib_scale.envs.price_chart import draw_prices
    from rllib_scale.evaluation import exports
    from rllib_scale.evaluation.play import play
    from rllib_scale.files import check_writable, write_atomic
    from rllib_scale.policies.make import make_policy
    from rllib_scale.schedulers.context_price import ContextPrice
    from rllib_scale.workloads.generators import generate

    pictures_and_tables = {"--schedule": schedule, "--gantt": gantt, "--video": video, "--prices": prices}
    check_endings(pictures_and_tables)
    others = {"--trace": trace, "--save-workload": save_workload}
    check_writable(pictures_and_tables | others)
    own = own_problem(config, overrides)
    if servers is None and "cluster" not in own:
        servers = 16
    env = named_problem(scenario, servers, mask, horizon, own, config and config.parent)
    given = None if workload is None else given_workload(workload, ctx, ("seed", "episode"))
    if given is not None and workload is not None:
        env = to_its_end(env, given, workload, horizon is not None or "horizon_s" in own.get("episode", {}))
    else:
        env.check_size()
    chosen = make_policy(scheduler, env, trust=trust)
    if prices is not None:
        if not isinstance(chosen, ContextPrice):
            raise UserError(f"--prices: {chosen.name} has none; valid: a policy of the method context-price")
        chosen.keeps_account = True
    if (gantt is not None or video is not None) and env.cluster.num_servers > MOST_LANES:
        raise UserError(f"--gantt, --video: {env.cluster.num_servers:,} servers; valid: at most {MOST_LANES:,}")
    engine = play(chosen, env, seed, [episode], workload=given)
    title = f"{chosen.name} on {workload.name if workload else f'{scenario}, seed {seed}, episode {episode}'}"
    table = Table("metric", "value", title=title, title_justify="left")
    for name, value in engine.metrics().items():
        table.add_row(name, f"{value:.3f}" if isinstance(value, float) else str(value))
    show(table, {"scheduler": chosen.name, **engine.metrics()})
    if given is not None and engine.metrics()["workflows_completed"] < given.num_workflows:
        say_what_is_left(chosen.name, engine.metrics(), given)
    rows = engine.schedule()
    arrived = given or generate(env, seed, episode)
    played = exports.Played(env, arrived, rows, float(engine.clock[0]), title)
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
    if trace is not None:
        exports.write(trace, exports.to_trace(played))
        say(f"wrote {trace}")
    if save_workload is not None:
        arrived.save(save_workload)
        say(f"wrote {save_workload}")


@click.command()
@click.argument("scenario")
@click.option("--scales", default="16,128", show_default=True, help="Servers, by commas.")
@click.option("--episodes", type=EPISODES, default=30, show_default=True)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="(seed, episode) fixes a workload.")
@click.option("--fluid", is_flag=True, help="Also the fluid bound: tighter, seconds an episode at 16 servers.")
@click.option("--output", type=_path, help="Write one row per episode, .csv or .parquet.")
@json_option
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
    from rllib_scale.files import check_writable
    from rllib_scale.workloads.generators import generate

    check_endings({"--output": output})
    check_writable({"--output": output})
    table = Table(title=f"{scenario}: lower bounds on the mean response (s), {episodes} episodes", title_justify="left")
    for column in ("servers", "critical path", "capacity", "fluid", "stationary ± error", "prices of a second"):
        table.add_column(column, justify="right")
    rows = []
    for servers in numbers("--scales", scales):
        env = named_problem(scenario, servers, None).for_evaluation()
        env.check_size()
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
    show(table, rows)
    if output is not None:
        write_output(pd.DataFrame(rows), output)
