"""The command that explains one decision round: explain."""

from __future__ import annotations

import click

from rllib_scale.cli.options import SEED, code_option
from rllib_scale.cli.problems import Problem, problem_options
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

SHOWN = 20
"""Tasks of a round that are listed."""
BESIDE = ("other", "other_cost")
"""Columns about the next best server; `--json` has all."""


@click.command()
@click.argument("policy")
@click.option("--at", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Time in s.")
@problem_options("seed", "episode")
@click.option("--servers", type=int, help="[default: 16, or those of your own cluster]")
@click.option("--seed", type=SEED, default=1000, show_default=True, help="Seed of the workload.")
@click.option("--episode", type=SEED, default=0, show_default=True)
@code_option
@json_option
def explain(
    policy: str, at: float, problem: Problem, servers: int | None, seed: int, episode: int, trust: bool
) -> None:
    """Explain the first round of POLICY at or after a time: why each task starts on a server, or waits for one.

    POLICY is a price rule: price, dual-price, adaptive-price, or a policy of context-price. It chooses the least cost:
    weight x (kappa x wait + time) + price x time + penalty.
    """
    from rllib_scale.evaluation.explained import COLUMNS, explain_at
    from rllib_scale.policies.make import make_policy

    env = problem.env(problem.servers(16) if servers is None else servers)
    found = explain_at(make_policy(policy, env, trust=trust), env, seed, episode, at, problem.workload)
    if found is None:
        raise UserError(f"{policy}: has no prices; valid: price, dual-price, adaptive-price, zoo:context-price")
    columns = {heading: key for heading, key in COLUMNS.items() if key in BESIDE or not key.startswith("other")}
    title = f"{policy} on {problem.scenario} at {found.clock_s:.2f} s, kappa {found.numbers['kappa']:.2f}"
    show(found.rows[:SHOWN], columns, title, content={"numbers": found.numbers, "tasks": found.rows})
    prices = [f"{speed:g} GFLOPS {price:.3g}" for speed, price in found.prices.items()]
    say(f"price of a second: {', '.join(prices)}")
    if found.left:
        say(f"{found.left} more tasks wait: no server is open for them")
