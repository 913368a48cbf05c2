"""The command that explains one decision round: explain."""

from __future__ import annotations

import click
import numpy as np

from rllib_scale.cli.options import SEED, code_option
from rllib_scale.cli.problems import Problem, problem_options
from rllib_scale.cli.terminal import json_option, say, show
from rllib_scale.errors import UserError

SHOWN = 20
"""Tasks of a round that are listed."""


@click.command()
@click.argument("policy")
@click.option("--at", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Time in s.")
@problem_options("seed", "episode")
@click.option("--servers", type=int, help="[default: 16, or those of your own cluster]")
@click.option("--seed", type=SEED, default=1000, show_default=True, help="Of the drawn workload.")
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
    from rllib_scale.policies.make import make_policy
    from rllib_scale.schedulers.explaining import explain as explain_round
    from rllib_scale.schedulers.reserving import PricingDispatcher
    from rllib_scale.simulator.engine import Engine

    env = problem.env(problem.servers(16) if servers is None else servers)
    rule = make_policy(policy, env, trust=trust)
    if not isinstance(rule, PricingDispatcher):
        raise UserError(f"{policy}: has no prices; valid: price, dual-price, adaptive-price, zoo:context-price")
    engine = Engine(rule.problem(env))
    engine.reset([seed], [episode], workload=problem.workload)
    rule.reset([(seed, episode)])
    while not engine.done[0] and engine.clock[0] < at:
        rule.advance(engine)
    if engine.done[0]:
        raise UserError(f"--at {at:g}: the episode ends at {engine.clock[0]:.4g} s; valid: an earlier time")
    found = explain_round(rule, engine.view())
    rows = []
    for choice in found.choices:
        best, *others = choice.options
        decision = f"starts on {best.server}" if choice.starts else f"waits {best.wait_s:.2f} s for {best.server}"
        other = {"other": others[0].server, "other_cost": others[0].cost} if others else {}
        task = f"{choice.workflow}.{choice.task}"
        rows.append({"task": task, "decision": decision, "weight": choice.weight} | best._asdict() | other)
    columns = {"task": "task", "decision": "decision", "weight": "weight", "wait (s)": "wait_s", "time (s)": "lasts_s"}
    columns |= {
        "price": "price",
        "penalty": "penalty",
        "cost ↓": "cost",
        "next best": "other",
        "its cost": "other_cost",
    }
    title = f"{policy} on {problem.scenario} at {engine.clock[0]:.2f} s, kappa {found.numbers['kappa']:.2f}"
    show(rows[:SHOWN], columns, title, content={"numbers": found.numbers, "tasks": rows})
    speeds, of = np.unique(engine.view().capacity, return_inverse=True)
    prices = [f"{speed:g} GFLOPS {found.prices[of == k].mean():.3g}" for k, speed in enumerate(speeds) if speed > 0]
    say(f"price of a second: {', '.join(prices)}")
    if found.left:
        say(f"{found.left} more tasks wait: no server is open for them")
