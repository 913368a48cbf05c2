"""The command that tries a policy on a workload and a cluster of one's own: tryout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rllib_scale.cli.options import EPISODES, SEED, check_outputs, code_option, output_option, set_option, write_output
from rllib_scale.cli.problems import Problem
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

if TYPE_CHECKING:
    from rllib_scale.config import EnvConfig
    from rllib_scale.observation.policy import Policy
    from rllib_scale.workloads.model import Workload

_path = click.Path(path_type=Path)
_RATES = ("offered_load", "arrival_rate_per_server")
_CLOCK = ("horizon_s", "arrivals_until_s")


@click.command()
@click.argument("policy")
@click.option("--workload", type=_path, required=True, help="A recorded workload, JSON or sample:agents, to draw from.")
@click.option(
    "--cluster",
    "--config",
    "config",
    type=_path,
    help="YAML with keys of `env`, as cluster, which change the scenario.",
)
@click.option("--scenario", default="steady-0.7", show_default=True, help="Decisions, communication and information.")
@set_option
@click.option("--servers", type=int, help="[default: 16, or those of your own cluster]")
@click.option("--episodes", type=EPISODES, default=20, show_default=True)
@click.option(
    "--seed", type=SEED, default=1000, show_default=True, help="Is hashed; with the episode it decides draws."
)
@output_option
@code_option
@json_option
def tryout(
    policy: str,
    workload: Path,
    config: Path | None,
    scenario: str,
    overrides: tuple[str, ...],
    servers: int | None,
    episodes: int,
    seed: int,
    output: Path | None,
    trust: bool,
) -> None:
    """Try POLICY on a recorded workload and a cluster of your own, beside the best rules; says which to use.

    Each episode draws workflows from the test half of the workload, with replacement, and lets them arrive at random at
    the recorded load. --set workload.trace.KEY=VALUE changes that: arrivals=recorded, sample=session, split.
    """
    import pandas as pd
    from rllib_scale_analysis.verdict import advice

    from rllib_scale.evaluation.tryout import BASE, hashed_seed, play_beside
    from rllib_scale.workloads.model import Workload

    check_outputs({"--output": output})
    trace, drawn_with = Workload.load(workload), hashed_seed(seed)
    problem = _on_trace(Problem(scenario, config=config, overrides=overrides), workload)
    env, drawn_from = _problem(problem, trace, servers, drawn_with, episodes)
    players, load = _players(policy, env, trust), env.workload.offered_load
    say(
        f"{workload}: {trace.num_workflows:,} workflows, of which episodes draw from {drawn_from.num_workflows:,}; "
        f"{env.cluster.num_servers} servers" + (f" at load {load:.2f}" if load else "")
    )
    if load and load >= 1:
        say("That is more than the servers can do: waits grow as long as workflows arrive")
    rows = pd.DataFrame(play_beside(players, env, drawn_with, episodes, say))
    rows = rows.assign(scenario=scenario, test_servers=env.cluster.num_servers, eval_seed=drawn_with)
    said = advice(rows, players[0 if policy == BASE else 1].name, BASE, drawn_from.num_workflows)
    facts = {"workflows": trace.num_workflows, "workflows_drawn_from": drawn_from.num_workflows, "offered_load": load}
    _show(rows, facts | {"servers": env.cluster.num_servers, "episodes": episodes}, said)
    write_output(rows, output)


def _on_trace(asked: Problem, workload: Path) -> Problem:
    """The problem with arrivals from the trace; a rate that its options do not name is left to the trace."""
    from rllib_scale.presets import workload_file

    given = asked.changes.get("workload")
    file = json.dumps(str(workload_file(str(workload)).absolute()))
    changes = [f"workload.trace.file={file}", "workload.fitted=null", "workload.generator=null"]
    changes += [
        f"workload.{name}=null" for name in _RATES[:1] if name not in (given if isinstance(given, dict) else ())
    ]
    return Problem(asked.scenario, config=asked.config, overrides=(*asked.overrides, *changes))


def _problem(
    problem: Problem, trace: Workload, servers: int | None, seed: int, episodes: int
) -> tuple[EnvConfig, Workload]:
    """What is played, and the part of the trace that it draws from."""
    from rllib_scale.evaluation.tryout import at_recorded_load, with_whole_episodes, workflow_rate
    from rllib_scale.workloads.traces import part_of_trace

    env = problem.env(problem.servers(16) if servers is None else servers)
    settings = env.workload.trace
    assert settings is not None, "it draws from a trace"
    recorded = settings.arrivals == "recorded"
    written = {section: problem.changes.get(section) or {} for section in ("workload", "episode")}
    if not recorded and not any(written["workload"].get(name) for name in _RATES):
        env = at_recorded_load(env, trace)
    test = env.for_evaluation()
    drawn_from = part_of_trace(test, test.workload.trace or settings)
    if not any(name in written["episode"] for name in _CLOCK):
        rate = workflow_rate(trace) if recorded else env.arrival_rate_of(drawn_from.mean_gflop)
        env = with_whole_episodes(env, drawn_from, rate, seed, episodes)
    return env, drawn_from


def _players(policy: str, env: EnvConfig, trust: bool) -> list[Policy]:
    """The base rule, the policy and the other rules that can play the problem."""
    from rllib_scale.evaluation.tryout import BASE, RULES
    from rllib_scale.policies.make import make_policy

    players = []
    for name in dict.fromkeys((BASE, policy, *RULES)):
        player = make_policy(name, env, trust=trust, key="POLICY")
        try:
            player.problem(env)
        except UserError as error:
            if name == policy:
                raise
            say(f"{name} is left out: {error}")
            continue
        players.append(player)
    return players


def _show(rows: Any, facts: dict[str, Any], said: str) -> None:
    """Print the table and the advice."""
    from dataclasses import asdict

    from rllib_scale_analysis.verdict import RESPONSE, TAIL, against

    from rllib_scale.evaluation.tryout import BASE

    means, compared = rows.groupby("method", sort=False)[[RESPONSE, TAIL]].mean(), against(rows, BASE)
    table = [
        {"scheduler": name, RESPONSE: row[RESPONSE], TAIL: row[TAIL], "against": compared.get(name, {})}
        for name, row in means.iterrows()
    ]
    content = [row | {"against": {key: asdict(of) for key, of in row["against"].items()}} for row in table]
    columns: dict[str, Any] = {"scheduler": "scheduler", "mean response (s)": RESPONSE, "p95 of JCT (s)": TAIL}
    columns |= {f"response against {BASE}, %": lambda row: str(row["against"].get(RESPONSE, ""))}
    columns |= {"p95 of JCT, %": lambda row: str(row["against"].get(TAIL, ""))}
    caption = "[low, high]: paired 95 % interval over episodes; less is better"
    content_all = facts | {"schedulers": content, "advice": said}
    show(table, columns, f"mean over {facts['episodes']} episodes", content=content_all, caption=caption)
    say(said)
