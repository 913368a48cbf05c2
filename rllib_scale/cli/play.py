"""Commands that play episodes: evaluate, simulate, bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rllib_scale.cli.options import (
    EPISODES,
    SEED,
    EpisodeFiles,
    check_outputs,
    code_option,
    files_options,
    numbers,
    output_option,
    write_output,
)
from rllib_scale.cli.problems import Problem, problem_options
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

_path = click.Path(path_type=Path)
FALLBACK, BASELINE = "steady-0.7", "fastest-idle"


@click.command()
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option("--scales", help="Servers, by commas.  [default: 16,32,48,128, or those of your own cluster]")
@click.option("--episodes", type=EPISODES, default=30, show_default=True)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="(seed, episode) determines a workload.")
@problem_options("seed", "episodes")
@click.option("--decision", type=click.Choice(["argmax", "sample"]), default="argmax", show_default=True)
@output_option
@code_option
@json_option
def evaluate(
    policies: tuple[str, ...],
    scales: str | None,
    episodes: int,
    seed: int,
    problem: Problem,
    decision: Any,
    output: Path | None,
    trust: bool,
) -> None:
    """Evaluate each POLICY, a heuristic's name, a folder with an exported policy or zoo:NAME, at any number of servers.

    All policies play the same episodes. One table compares them. Without --scenario they play `paper`, or steady-0.7
    together with fastest-idle if one of them cannot play `paper`.
    """
    import pandas as pd

    from rllib_scale.config.schedulers import observability
    from rllib_scale.evaluation.play import evaluate as run
    from rllib_scale.policies.make import make_policy

    check_outputs({"--output": output})
    given, frames = problem.workload, []
    scales = scales or ("16,32,48,128" if problem.servers(16) else None)
    sizes: list[Any] = numbers("--scales", scales) if scales else [None]
    problem, compared = _playable(problem, list(dict.fromkeys(policies)), sizes[0], decision, trust)
    for servers in sizes:
        env = problem.env(servers)
        schedulers = {name: make_policy(name, env, decision, trust) for name in compared}
        problem.check_unseen(schedulers.values(), env)
        for name, scheduler in schedulers.items():
            rows = pd.DataFrame(run(scheduler, env, seed, 1 if given else episodes, given=given))
            problem.say_unfinished(name, rows.iloc[0].to_dict())
            facts: dict[str, Any] = {
                "method": name,
                "scenario": problem.scenario,
                "test_servers": env.cluster.num_servers,
            }
            facts |= {"mask": env.episode.mask, "observability": observability(scheduler.sees, env.information)}
            frames.append(rows.assign(**facts))
    frame = pd.concat(frames, ignore_index=True).assign(decision=decision, eval_seed=seed)
    _print_comparison(frame, problem)
    write_output(frame, output)


def _playable(
    problem: Problem, policies: list[str], servers: int | None, decision: Any, trust: bool
) -> tuple[Problem, list[str]]:
    """The problem, or FALLBACK with a baseline where no scenario is named and a policy cannot play the default."""
    from rllib_scale.policies.make import make_policy

    is_default = click.get_current_context().get_parameter_source("scenario") is click.core.ParameterSource.DEFAULT
    if not is_default or problem.mask is not None or problem.changes:
        return problem, policies
    env, other = problem.env(servers), replace(problem, scenario=FALLBACK)
    for name in policies:
        scheduler = make_policy(name, env, decision, trust)
        try:
            scheduler.problem(env)
        except UserError:
            scheduler.problem(other.env(servers))  # refuses what can play neither
            say(f"{name} cannot play the default scenario, {problem.scenario}: playing {FALLBACK} beside {BASELINE}")
            return other, list(dict.fromkeys([BASELINE, *policies]))
    return problem, policies


def _print_comparison(frame: pd.DataFrame, problem: Problem) -> None:
    """Mean and standard deviation over episodes; columns that say nothing are left out, to fit into 80 characters."""
    rows = []
    for (servers, _), of_one in frame.groupby(["test_servers", "method"], sort=False):
        numeric = of_one.drop(columns=["episode", "test_servers", "eval_seed"]).select_dtypes("number")
        facts = {key: of_one[key].iloc[0] for key in ("method", "scenario", "mask", "decision", "observability")}
        invalid = of_one.filter(like="invalid_").to_numpy().sum() / max(1, of_one["decisions"].sum())
        means = {"mean": numeric.mean().to_dict(), "sd": numeric.std(ddof=1).to_dict()}
        rows.append(facts | {"servers": servers, "episodes": len(of_one), "invalid_share": invalid} | means)

    def mean(key: str, digits: int) -> Any:
        return lambda row: "-" if math.isnan(value := row["mean"][key]) else f"{value:.{digits}f}"

    def all_tasks(row: dict[str, Any]) -> str:
        sd = row["sd"]["response_censored_s"]
        return mean("response_censored_s", 2)(row) + ("" if math.isnan(sd) else f"±{sd:.2f}")

    methods, unfinished = frame["method"].unique(), any(row["mean"]["unfinished"] > 0 for row in rows)
    columns: dict[str, Any] = {"scheduler": "method"} if len(methods) > 1 else {}
    columns |= {"servers": "servers"}
    if "hit_rate" not in frame:
        columns |= {"mean response of all tasks that arrived (s) ↓": all_tasks}
        columns |= {"mean JCT (s) ↓": mean("jct_mean_s", 2), "completed ↑": mean("completed", 1)}
        if unfinished:
            done = {"unfinished ↓": mean("unfinished", 1), "response of completed (s) ↓": mean("response_mean_s", 2)}
            columns |= done
        columns |= {"return ↑": mean("episode_return", 2)}
    else:
        columns |= {"call (s) ↓": all_tasks, "p99 of calls ↓": mean("response_censored_p99_s", 1)}
        columns |= {"turn (s) ↓": mean("jct_censored_s", 1), "p99 of turns ↓": mean("jct_censored_p99_s", 0)}
        columns |= {"longest hold ↓": mean("longest_hold_s", 0), "p95 of TTFT ↓": mean("ttft_p95_s", 2)}
        columns |= {"hit rate ↑": mean("hit_rate", 2), "tokens/GPU h ↑": mean("output_per_gpu_hour", 0)}
    if problem.workload is not None and problem.workload.has_deadlines:
        columns["in time ↑"] = lambda row: "-" if math.isnan(share := row["mean"]["slo_share"]) else f"{share:.0%}"
    if any(row["invalid_share"] > 0 for row in rows):
        columns["invalid ↓"] = lambda row: f"{row['invalid_share']:.0%}"
    title = "" if len(methods) > 1 else f"{methods[0]}, "
    title += f"scenario {problem.scenario}{' changed' if problem.changes else ''}"
    title += f", mask {rows[0]['mask']}, {rows[0]['decision']}: "
    episodes = rows[0]["episodes"]
    title += str(problem.workload_file or ("one episode" if episodes == 1 else f"mean ± sd over {episodes} episodes"))
    observed = frame.groupby("observability", sort=False)["method"].unique()
    parts = (f"{what} ({', '.join(who)})" if len(observed) > 1 else str(what) for what, who in observed.items())
    caption = "JCT: job completion time of a workflow that was completed; "
    if "hit_rate" in frame:
        caption = "means and percentiles [s] count open calls and turns; TTFT: time to first token; "
    caption += f"↑ more is better, ↓ less is better; observability: {'; '.join(parts)}"
    show(rows, columns, title, caption=caption)


@click.command()
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    default=("fastest-idle",),
    show_default=True,
    help="A heuristic's name, a policy's folder, or zoo:NAME; repeatable.",
)
@problem_options("seed", "episode")
@click.option("--servers", type=int, help="[default: 16, or those of your own cluster]")
@click.option("--seed", type=SEED, default=1000, show_default=True, help="Seed of the workload.")
@click.option("--episode", type=SEED, default=0, show_default=True)
@files_options
@click.option("--video", type=_path, help="Film the schedule (GIF).")
@click.option("--save-workload", type=_path, help="Write the played workload (JSON).")
@code_option
@json_option
def simulate(
    schedulers: tuple[str, ...],
    problem: Problem,
    servers: int | None,
    seed: int,
    episode: int,
    files: EpisodeFiles,
    video: Path | None,
    save_workload: Path | None,
    trust: bool,
) -> None:
    """Play one episode, print its metrics and write its schedule.

    Several schedulers play the same episode: --gantt and --video draw one schedule above the other.

    --trace writes Chrome trace events: a row for each place, a slice for each attempt with its transfer, flows along
    the edges, and the number of waiting tasks.
    """
    from rllib_scale.envs.gantt import MOST_LANES, Chart, draw_gantts, film, save_film
    from rllib_scale.evaluation.exports import Played
    from rllib_scale.evaluation.play import play
    from rllib_scale.files import write_atomic
    from rllib_scale.policies.make import make_policy
    from rllib_scale.workloads.generators import generate

    check_outputs(files.options | {"--video": video, "--save-workload": save_workload})
    for option, path in {"--schedule": files.schedule, "--trace": files.trace}.items():
        if path is not None and len(schedulers) > 1:
            raise UserError(
                f"{option}: is about one scheduler, and {len(schedulers)} are given; valid: one --scheduler"
            )
    env = problem.env(problem.servers(16) if servers is None else servers)
    chosen = [make_policy(scheduler, env, trust=trust) for scheduler in schedulers]
    problem.check_unseen(chosen, env)
    is_drawn = files.gantt is not None or video is not None
    if is_drawn and env.cluster.num_places > MOST_LANES:
        raise UserError(f"--gantt, --video: {env.cluster.num_places:,} places; valid: at most {MOST_LANES:,}")
    source = problem.workload_file.name if problem.workload_file else None
    source = source or f"{problem.scenario}, {env.cluster.num_servers} servers, seed {seed}, episode {episode}"
    engines = [play(policy, env, seed, [episode], workload=problem.workload) for policy in chosen]
    metrics = [engine.metrics() for engine in engines]
    title = f"{schedulers[0]} on {source}" if len(schedulers) == 1 else source
    rows = [{"metric": name, **{str(k): of_one[name] for k, of_one in enumerate(metrics)}} for name in metrics[0]]
    headings = schedulers if len(schedulers) > 1 else ["value"]
    columns = {"metric": "metric"} | {heading: str(k) for k, heading in enumerate(headings)}
    content = [{"scheduler": name, **of_one} for name, of_one in zip(schedulers, metrics, strict=True)]
    show(rows, columns, title, content=content if len(content) > 1 else content[0])
    for scheduler, of_one in zip(schedulers, metrics, strict=True):
        problem.say_unfinished(scheduler, of_one)
    if env.on_replicas:
        refused = {"--video": video, "--save-workload": save_workload, "--trace": files.trace}
        _write_fleet(engines, files, refused, f"{schedulers[0]} on {source}")
        return
    arrived = problem.workload or generate(env, seed, episode)
    figure = None
    if is_drawn:
        charts = [
            Chart(engine.schedule(), env.cluster, float(engine.clock[0]), _heading(name, of_one))
            for name, engine, of_one in zip(schedulers, engines, metrics, strict=True)
        ]
        figure = draw_gantts(charts, source)
    files.write(Played(env, arrived, engines[0].schedule(), float(engines[0].clock[0]), title), figure)
    if video is not None and figure is not None:
        pictures = film(figure)
        write_atomic(video, lambda path: save_film(pictures, path))
        say(f"wrote {video}: {len(pictures)} pictures")
    if save_workload is not None:
        arrived.save(save_workload)
        say(f"wrote {save_workload}")


def _write_fleet(engines: list[Any], files: EpisodeFiles, refused: dict[str, Path | None], title: str) -> None:
    """Write the calls of the first scheduler, and draw five minutes of them after the warm-up."""
    import pandas as pd
    from rllib_scale_analysis.figures.draw import save
    from rllib_scale_analysis.figures.replicas import gantt

    from rllib_scale.files import write_atomic

    for option, path in refused.items():
        if path is not None:
            raise UserError(f"{option}: not with service replica; valid: --schedule, --gantt")
    calls, begin_s = pd.DataFrame(engines[0].calls()), engines[0].config.service.warm_up_s
    if files.schedule is not None:
        write_atomic(files.schedule, lambda path: calls.to_csv(path, index=False))
        say(f"wrote {files.schedule}: {len(calls)} completed calls")
    if files.gantt is not None:
        save(gantt(calls, begin_s, begin_s + 300, f"{title}, after the warm-up"), files.gantt)
        say(f"wrote {files.gantt}")


def _heading(name: str, metrics: dict[str, float]) -> str:
    """Heading of the chart of an episode."""
    mean = f"mean response {metrics['response_mean_s']:.2f} s, " if metrics["completed"] else ""
    return f"{name}: {mean}{metrics['completed']:g} tasks completed"


@click.command()
@click.argument("scenario")
@click.option("--scales", default="16,128", show_default=True, help="Servers, by commas.")
@click.option("--episodes", type=EPISODES, default=30, show_default=True)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="(seed, episode) determines a workload.")
@output_option
@json_option
def bounds(scenario: str, scales: str, episodes: int, seed: int, output: Path | None) -> None:
    """Compute lower bounds on the mean response in SCENARIO, which no scheduler can beat.

    The bounds by critical path and capacity hold in each episode and are columns of every evaluation.
    """
    import pandas as pd

    from rllib_scale.bounds.lower_bounds import lower_bounds
    from rllib_scale.workloads.generators import generate

    check_outputs({"--output": output})
    rows, summary = [], list[dict[str, Any]]()
    for servers in numbers("--scales", scales):
        env = Problem(scenario).env(servers)
        for episode in range(episodes):
            workload = generate(env, seed, episode)
            where = {"scenario": scenario, "test_servers": servers, "eval_seed": seed, "episode": episode}
            rows.append(where | lower_bounds(env, workload))
        means: dict[Any, Any] = pd.DataFrame(rows[-episodes:]).mean(numeric_only=True).to_dict()
        summary.append(means | {"servers": servers})
    columns = {"servers": "servers", "critical path": "bound_critical_path_s", "capacity": "bound_capacity_s"}
    title = f"{scenario}: lower bounds on the mean response (s), {episodes} episodes"
    show(summary, columns, title, content=rows)
    write_output(pd.DataFrame(rows), output)
