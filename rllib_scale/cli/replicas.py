"""Commands about replicas of a language model: fit-replica, replicas."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rllib_scale.cli.options import EPISODES, JSON_OUTPUT, SEED, check_outputs, numbers, output_option, write_output
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

_path = click.Path(path_type=Path)
RULES = (
    *("least-outstanding", "power-of-two", "sticky", "prefix-affinity", "weighted-scores", "lmetric"),
    *("sticky:gate=1", "lmetric:gate=1"),
)


@click.command("fit-replica")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...", type=_path)
@click.option("--fit", "loads", help="Loads to fit, by commas; the others show the error.  [default: all]")
@click.option(
    "--kv-tokens", type=int, default=10**9, help="Memory for contexts, from the server's log.  [default: no limit]"
)
@click.option("--token-budget", type=int, default=8192, show_default=True, help="Tokens of a step.")
@click.option("--max-calls", type=int, default=256, show_default=True, help="Running requests.")
@click.option("--prefix-tokens", type=int, default=0, show_default=True, help="With which each prompt begins.")
@click.option("--call-us", type=float, default=0.0, show_default=True, help="Time of each call in a step; not fitted.")
@click.option("--unsaturated", is_flag=True, help="Fit although no load is saturated.")
@click.option("--figure", type=_path, help="Draw model against measurement (PNG).")
@click.option("--output", type=_path, help="Write the replica (JSON), for `replicas --replica`.")
@json_option
def fit_replica(
    logs: tuple[Path, ...],
    loads: str | None,
    kv_tokens: int,
    token_budget: int,
    max_calls: int,
    prefix_tokens: int,
    call_us: float,
    unsaturated: bool,
    figure: Path | None,
    output: Path | None,
) -> None:
    """Fit a replica to LOG: a CSV, the JSON of guidellm or of vLLM's benchmark, or LLMServingSim's requests.jsonl.

    Prints the relative errors of each load, and which of them were fitted.
    """
    from rllib_scale.config.yaml_files import build_model
    from rllib_scale.evaluation.fit_replica import fit_replica as fit
    from rllib_scale.evaluation.fit_replica import read_log
    from rllib_scale.files import write_json
    from rllib_scale.simulator.replicas.presets import Replica

    check_outputs({"--output": output, "--figure": figure}, JSON_OUTPUT | {"--figure": (".png",)})
    if prefix_tokens < 0:
        raise UserError(f"--prefix-tokens {prefix_tokens}: must be at least 0")
    facts = {"kv_tokens": kv_tokens, "token_budget": token_budget, "max_calls": max_calls, "call_s": call_us / 1e6}
    limits, log = build_model(Replica, facts, "fit-replica"), read_log(list(logs))
    fitted = fit(log, limits, loads.split(",") if loads else None, prefix_tokens, not unsaturated)
    rows = fitted.errors()
    columns: dict[str, Any] = {"load": "load", "fitted": lambda row: "yes" if row["fitted"] else "no"}
    columns |= {"requests": "requests", "mean latency (s)": lambda row: f"{row['measured_s']:.2f}"}
    columns |= {"model (s)": lambda row: f"{row['model_s']:.2f}"}
    for heading, key in (("median error", "latency_median"), ("mean error", "latency_mean"), ("TTFT", "ttft_median")):
        columns[heading] = lambda row, key=key: _percent(row[key])
    columns["capacity"] = lambda row: _percent(row["capacity"])
    replica = fitted.replica.model_dump(mode="json")
    show(
        rows, columns, "Model against measurement", {"replica": replica, "loads": rows}, "capacity: of saturated loads"
    )
    for name in ("step_s", "context_s", "prefill_s", "attention_s", "request_s"):
        say(f"{name} = {replica[name]:.4g}")
    say(f"call_s = {replica['call_s']:.4g}, fixed: no log can tell the time of a call from step_s and context_s")
    if replica["attention_s"] == 0:
        say("attention_s = 0, fixed: the prompts are too short to show it")
    if kv_tokens == 10**9:
        say("--kv-tokens was not given: where the server's memory was full, the fit is wrong")
    if figure is not None:
        from rllib_scale_analysis.figures.draw import draw, save
        from rllib_scale_analysis.figures.replicas import fit_chart

        save(draw(fit_chart(fitted.rows, rows)), figure)
        say(f"wrote {figure}")
    if output is not None:
        write_json(output, replica)
        say(f"wrote {output}")


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SESSIONS...", type=_path)
@click.option(
    "--rule", "rules", multiple=True, metavar="RULE", help="NAME:key=value,...; repeatable.  [default: several]"
)
@click.option(
    "--replica", "kinds", multiple=True, metavar="REPLICA", help="GPU/MODEL or a file of fit-replica; repeat it."
)
@click.option("--replicas", "count", type=click.IntRange(1, 4096), default=8, show_default=True, help="Kinds in turn.")
@click.option("--sessions", default="16", show_default=True, help="Live sessions per replica, by commas.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change the load; repeatable: --set warm_up_s=600."
)
@click.option("--episodes", type=EPISODES, default=5, show_default=True)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="(seed, episode) determines the sessions.")
@click.option("--gantt", type=_path, help="Draw five minutes of the first rule's first episode (PNG).")
@output_option
@json_option
def replicas(
    sources: tuple[Path, ...],
    rules: tuple[str, ...],
    kinds: tuple[str, ...],
    count: int,
    sessions: str,
    overrides: tuple[str, ...],
    episodes: int,
    seed: int,
    gantt: Path | None,
    output: Path | None,
) -> None:
    """Play recorded SESSIONS (of kv-cache-tester) on a fleet of replicas under several rules.

    --set arrivals_per_s=0.01 lets sessions arrive (per second and replica) in place of a closed loop.
    """
    import pandas as pd

    from rllib_scale.config.yaml_files import build_model, parse_override
    from rllib_scale.evaluation.fleets import play_fleet
    from rllib_scale.simulator.replicas.arrivals import Load
    from rllib_scale.simulator.replicas.presets import find_replica
    from rllib_scale.simulator.replicas.rules import parse_rule
    from rllib_scale.simulator.replicas.scripts import read_scripts

    check_outputs({"--output": output, "--gantt": gantt})
    chosen = [parse_rule(text) for text in rules or RULES]
    servers = [find_replica(kind) for kind in kinds or ("2xh100/30b-a3b",)]
    fleet = [servers[number % len(servers)] for number in range(count)]
    settings = dict(parse_override(override) for override in overrides)
    scripts, rows = read_scripts(list(sources)), list[dict[str, Any]]()
    for live in numbers("--sessions", sessions):
        load = build_model(Load, {"sessions": live} | settings, "replicas: --set")
        for rule in chosen:
            for episode in range(episodes):
                played = play_fleet(fleet, scripts, load, rule, seed, episode)
                if gantt is not None and not rows:
                    _draw(played.calls, load.warm_up_s, gantt)
                facts = {"rule": str(rule), "replicas": count, "sessions": live, "episode": episode}
                rows.append(facts | {"eval_seed": seed} | played.metrics)
    frame = pd.DataFrame(rows)
    means: list[Any] = (
        frame.groupby(["sessions", "rule"], sort=False).mean(numeric_only=True).reset_index().to_dict("records")
    )
    shown = {"turn (s) ↓": "turn_mean_s", "p99": "turn_p99_s", "call (s) ↓": "call_little_s", "TTFT p95": "ttft_p95_s"}
    columns: dict[str, Any] = {"rule": "rule", "sessions": "sessions"}
    for heading, key in shown.items():
        columns[heading] = lambda row, key=key: f"{row[key]:.1f}"
    columns["output/GPU-h ↑"] = lambda row: f"{row['output_per_gpu_hour']:,.0f}"
    columns["hits ↑"] = lambda row: f"{row['hit_rate']:.2f}"
    columns["set/KV"] = lambda row: f"{row['working_set']:.2f}"
    columns["held"] = lambda row: f"{row['held_calls']:.0f}"
    columns["longest"] = lambda row: f"{row['longest_hold_s']:.0f}"
    caption = "call: Little's law, held and unfinished calls included; held, longest: calls held, longest hold (s)"
    title = f"{count} replicas, {len(scripts)} recorded sessions, mean of {episodes} episodes"
    show(means, columns, title, content=rows, caption=caption)
    write_output(frame, output)


def _draw(calls: pd.DataFrame, begin_s: float, path: Path) -> None:
    from rllib_scale_analysis.figures.draw import save
    from rllib_scale_analysis.figures.replicas import gantt

    save(gantt(calls, begin_s, begin_s + 300), path)
    say(f"wrote {path}")
