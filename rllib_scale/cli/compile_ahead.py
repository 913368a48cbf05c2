"""Compilation ahead: `rllib-scale doctor --compile`. Each part runs once what is compiled when it is first called."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from multiprocessing import get_context

from rllib_scale.config import EnvConfig, TrialConfig, scenario
from rllib_scale.config.schedulers import HEURISTICS

SAMPLE = "sample:agents"
ON_REPLICAS = "agents-replicas"


def _problem() -> EnvConfig:
    return scenario("steady-0.7").at_scale(4)


# ---------------------------------------------------------------------- parts


def simulator() -> None:
    """Episodes that are drawn, and rules that decide for one task at a time."""
    from rllib_scale.evaluation.play import play
    from rllib_scale.policies.make import make_policy

    play(make_policy("fastest-idle", _problem()), _problem(), 0, [0]).metrics()


def rules() -> None:
    """Every rule, and a network that is asked in the rounds of one, in the simulator and on a live cluster."""
    from rllib_scale.evaluation.play import play
    from rllib_scale.networks.build import build_network
    from rllib_scale.policies.make import make_policy
    from rllib_scale.policies.visiting_policy import VisitingPolicy
    from rllib_scale.simulator.rehearsal import rehearse
    from rllib_scale.workloads.model import Workload

    env, workload = _problem(), Workload.load(SAMPLE)
    asked = TrialConfig.of("scale-any", env=env)
    policies = [make_policy(name, env) for name in (*HEURISTICS, "zoo:context-price")]
    for policy in (*policies, VisitingPolicy(build_network(asked), asked, epochs=0)):
        play(policy, env, 0, [0], workload=workload)
        rehearse(policy, policy.problem(env))


def workloads() -> None:
    """Generators of workloads of scenarios and from traces, and lower bounds."""
    from rllib_scale.bounds.lower_bounds import lower_bounds
    from rllib_scale.config.scenarios import SCENARIOS
    from rllib_scale.loading import env_from
    from rllib_scale.presets import workload_file
    from rllib_scale.workloads.generators import generate
    from rllib_scale.workloads.model import Workload

    recorded = env_from({"workload": {"trace": str(workload_file(SAMPLE).absolute())}}, SAMPLE)
    for env in (recorded, *(env for env, _ in SCENARIOS.values() if not env.on_replicas)):
        generate(env.at_scale(4), 0, 0)
    lower_bounds(_problem(), Workload.load(SAMPLE))


def networks() -> None:
    """Networks, forwards and backwards, and other compiled code of an epoch of RLlib."""
    import numpy as np

    from rllib_scale.networks.build import build_network
    from rllib_scale.networks.compiled.fused import pass_through
    from rllib_scale.rl.ppo.group import group_advantages
    from rllib_scale.rl.ppo.lean_update import advantage_estimates

    pass_through(build_network(TrialConfig.of()))
    steps, lengths = np.zeros(2), np.array([2])
    advantage_estimates(steps, np.zeros(3), lengths, np.array([True]), 1.0, 1.0)
    group_advantages([steps, steps], [steps, steps], None)


def replicas() -> None:
    """Rules for replicas of a language model, in the simulator and in a router."""
    from rllib_scale.evaluation.play import play
    from rllib_scale.live.holding import HoldingRouter
    from rllib_scale.live.requests import RouterSettings
    from rllib_scale.policies.make import make_policy
    from rllib_scale.simulator.engine import make_engine

    env = scenario(ON_REPLICAS).at_scale(2)
    engine = make_engine(env)
    engine.reset([0], [0])
    engine.step([0])
    read = env.model_copy(update={"observation": env.observation.model_copy(update={"caches": 5.0})})
    for problem in (env, read):
        play(make_policy("lmetric", problem), problem, 0, [0])
    HoldingRouter(RouterSettings(scheduler="lmetric", replica="h100/8b"))


PARTS: dict[str, Callable[[], None]] = {
    part.__name__: part for part in (simulator, rules, networks, replicas, workloads)
}
LANES = (("simulator", "rules"), ("networks", "replicas", "workloads"))
"""Functions to compile, by the process that does it: rules reuse what the simulator's part has typed and lowered."""


# ---------------------------------------------------------------------- processes


def compile_all() -> Iterator[str]:
    """Compile all parts, in two processes; yields lines of progress.

    What an earlier process compiled is loaded.
    """
    start, quiet = time.monotonic(), (signal.SIGINT, signal.SIG_DFL)
    with ExitStack() as stack:
        running: dict[Future[float], str] = {}
        for lane in LANES:
            pool = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"), signal.signal, quiet))
            running |= {pool.submit(compile_part, name): name for name in lane}
        while running:
            done, _ = wait(running, timeout=10, return_when=FIRST_COMPLETED)
            for future in done:
                yield f"compiled: {running.pop(future)}, {future.result():.0f} s"
            if not done:
                yield f"still to compile: {', '.join(running.values())} ({time.monotonic() - start:.0f} s)"


def compile_part(name: str) -> float:
    """Run a part; returns how long it took [s]."""
    start = time.monotonic()
    # Compiling allocates millions of objects that stay: looking for garbage among them takes a tenth of the time.
    gc.set_threshold(200_000, 50, 100)
    PARTS[name]()
    return time.monotonic() - start
