"""The command that tries a policy on the user's workload and cluster: tryout."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rllib_scale.cli.options import EPISODES, SEED, check_outputs, code_option, output_option, write_output
from rllib_scale.cli.problems import Problem, problem_options
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

if TYPE_CHECKING:
    from rllib_scale.config import EnvConfig
    from rllib_scale.observation.policy import Policy
    from rllib_scale.workloads.model import Workload


@click.command()
@click.argument("policy")
@problem_options(default="steady-0.7")
@click.option("--servers", type=int, help="[default: 16, or those of your own cluster]")
@click.option("--episodes", type=EPISODES, default=20, show_default=True)
@click.option("--seed", type=SEED, default=1000, show_default=True, help="Seed for sampling.")
@output_option
@code_option
@json_option
def tryout(
    policy: str, problem: Problem, servers: int | None, episodes: int, seed: int, output: Path | None, trust: bool
) -> None:
    """Compare POLICY with the best rules on a recorded --workload and your own --cluster, and say which to use.

    POLICY is a heuristic's name, a folder with a policy, or zoo:NAME. Where servers are replicas, as in --scenario
    agents-replicas, the sessions of service.trace are played in place of a --workload, or drawn ones without a trace.

    Each episode draws workflows from the recorded ones, with replacement. They arrive at random at the recorded load.
    Keys of workload.trace change that: --set workload.trace.sample=session, say; with arrivals=recorded they come when
    they did. For a policy that was trained on that file say --set workload.trace.part=test, or service.part=test.
    """
    import pandas as pd
    from rllib_scale_analysis.verdict import advice, table, too_few

    from rllib_scale.evaluation.candidates import BASES
    from rllib_scale.evaluation.play import check_unseen
    from rllib_scale.evaluation.tryout import hashed_seed, play_beside

    check_outputs({"--output": output})
    env, drawn, content, line = _drawing(problem, servers)
    service, base = env.service.name, BASES[env.service.name]
    players = _players(policy, env, trust)
    check_unseen(players, env)
    say(line)
    if (missing := too_few(drawn, episodes, service)) is not None:
        say(missing)
    rows = pd.DataFrame(play_beside(players, env, hashed_seed(seed), episodes, say))
    rows = rows.assign(scenario=problem.scenario, test_servers=env.cluster.num_servers, eval_seed=hashed_seed(seed))
    shown, columns = table(rows, base, service)
    said = advice(rows, players[0 if policy == base else 1].name, base, drawn, service)
    content = {"scenario": problem.scenario, "servers": env.cluster.num_servers, **content, "episodes": episodes}
    caption = f"less is better; against {base} [low, high]: paired 95 % interval over {episodes} episodes"
    show(shown, columns, content=content | {"schedulers": shown, "advice": said}, caption=caption)
    say(said)
    write_output(rows, output)


class _Drawing(NamedTuple):
    """A problem to play: its number of workflows or sessions, facts about them, and a line that describes it."""

    env: EnvConfig
    drawn: int
    content: dict[str, Any]
    line: str


def _drawing(problem: Problem, servers: int | None) -> _Drawing:
    """The problem on a recorded workload, or on sessions where its servers are replicas.

    Raises:
        UserError: neither is there.
    """
    recorded = problem.workload
    if recorded is None:
        env = problem.env(problem.servers(16) if servers is None else servers)
        if env.on_replicas:
            return _sessions(env)
        raise UserError("--workload: is missing; give a file of `rllib-scale import`, or sample:agents")
    env, drawn_from, load = _workflows(problem, recorded, servers)
    drawn = drawn_from.num_workflows
    line = f"{problem.workload_file}: {recorded.num_workflows:,} workflows; episodes draw from {drawn:,} of them, "
    line += f"for {env.cluster.num_servers} servers at load {load:.2f}"
    if load >= 1:
        line += "\nThis is more than the servers can do: waits grow as long as workflows arrive"
    return _Drawing(env, drawn, {"load": load, "workflows": recorded.num_workflows, "drawn_from": drawn}, line)


def _sessions(env: EnvConfig) -> _Drawing:
    """The sessions of a problem on replicas.

    Raises:
        UserError: they come as recorded, so that all episodes would be the same.
    """
    from rllib_scale.simulator.replicas.scripts import scripts_of

    if env.service.arrivals_per_s == "recorded":
        raise UserError(
            "service.arrivals_per_s recorded: every episode would be the same, and says nothing of others; valid: "
            "sessions per second and replica, or none for a closed loop"
        )
    count, recording = len(scripts_of(env.service)), env.recording
    source = "sessions as coding agents have them" if recording is None else recording.file
    line = f"{source}: episodes draw from {count:,} sessions, for {env.cluster.num_servers} replicas"
    return _Drawing(env, count, {"sessions": count}, line)


def _workflows(problem: Problem, recorded: Workload, servers: int | None) -> tuple[EnvConfig, Workload, float]:
    """The problem that draws from a recorded workload, the part that it draws from, and the load.

    What the options say of rate and clock holds; else the load is the recorded one, and every episode is played to its
    end.
    """
    from rllib_scale.evaluation.tryout import check_work, load_of, with_time_to_end
    from rllib_scale.presets import workload_file
    from rllib_scale.workloads.traces import part_of_trace

    given, episode = (problem.changes.get(key) for key in ("workload", "episode"))
    written = {name for section in (given, episode) if isinstance(section, dict) for name in section}
    file = workload_file(str(problem.workload_file)).absolute()
    forced = [f"workload.trace.file={json.dumps(str(file))}", "workload.fitted=null", "workload.generator=null"]
    forced += [] if "offered_load" in written else ["workload.offered_load=null"]
    drawing = replace(problem, workload_file=None, overrides=(*forced, *problem.overrides))
    env = drawing.env(drawing.servers(16) if servers is None else servers)
    trace = env.workload.trace
    assert trace is not None, "it was set"
    drawn_from = part_of_trace(env, trace)
    check_work(drawn_from)
    if trace.arrivals == "recorded":
        load = load_of(env, drawn_from)
    elif {"offered_load", "arrival_rate_per_server"} & written:
        load = env.arrival_rate_of(drawn_from.mean_gflop) * drawn_from.mean_gflop / env.cluster.total_gflops
    else:
        load = load_of(env, recorded)
        env = env.model_copy(update={"workload": env.workload.model_copy(update={"offered_load": load})})
    if problem.horizon is None and not {"horizon_s", "arrivals_until_s"} & written:
        env = with_time_to_end(env, drawn_from, load)
    return env, drawn_from, load


def _players(policy: str, env: EnvConfig, trust: bool) -> list[Policy]:
    """The base rule, the policy, and the other rules as far as they can play the problem."""
    from rllib_scale.evaluation.candidates import BASES
    from rllib_scale.evaluation.tryout import RULES
    from rllib_scale.policies.make import make_policy

    players = []
    for name in dict.fromkeys((BASES[env.service.name], policy, *RULES[env.service.name])):
        player = make_policy(name, env, trust=trust)
        try:
            player.problem(env)
        except UserError as error:
            if name == policy:
                raise
            say(f"{name} is left out: {error}")
            continue
        players.append(player)
    return players
