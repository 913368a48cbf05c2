"""The checks of `rllib-scale doctor`, and compilation ahead."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from importlib import metadata
from multiprocessing import get_context

from packaging.specifiers import SpecifierSet

from rllib_scale.clusters.session import ray_session
from rllib_scale.config import EnvConfig, TrialConfig, scenario
from rllib_scale.errors import UserError, extra


def checks(address: str | None) -> Iterator[tuple[str, str, bool]]:
    """(name, result, success) of each check."""
    wanted = metadata.metadata("rllib-scale")["Requires-Python"]
    yield "python", f"{platform.python_version()} (needs {wanted})", platform.python_version() in SpecifierSet(wanted)
    for requirement in metadata.requires("rllib-scale") or ():
        package, is_optional = re.split(r"[^\w-]", requirement)[0], "extra ==" in requirement
        try:
            if not is_optional:
                yield package, metadata.version(package), True
        except metadata.PackageNotFoundError:
            yield package, "not installed", False
    for name, modules in EXTRAS.items():
        yield f"extra {name}", *_import(name, modules)
    yield "cores", str(os.cpu_count()), True
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield "memory", f"{memory:.1f} GiB (one training needs about 1)", memory > 2
    yield "simulator", *_simulate()
    try:
        with ray_session(address) as cpus:
            yield "ray", f"{address or 'local'}: reachable, largest node {cpus:g} CPUs", True
    except UserError as error:
        yield "ray", str(error), False


EXTRAS = {
    "cluster": ("ray.job_submission", "ray.dashboard.dashboard"),
    "dashboard": ("plotly.graph_objects", "streamlit.web.cli"),
    "docs": ("furo", "myst_nb", "sphinx_click"),
    "onnx": ("onnx", "onnxscript"),
    "search": ("optuna",),
    "serve": ("ray.serve",),
    "tracking": ("mlflow", "wandb"),
}
"""Extra of the package -> what it is for: importing it shows whether the installed versions fit together."""


def _import(name: str, modules: Sequence[str]) -> tuple[str, bool]:
    """Import the modules of an extra in a process of their own; what is not installed is no fault."""
    run = [sys.executable, "-c", f"import {', '.join(modules)}"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if last.startswith("ModuleNotFoundError"):
        return f"not installed; {extra(name)}", True
    return ("imports", True) if done.returncode == 0 else (f"{last}; {extra(name)}", False)


def _simulate() -> tuple[str, bool]:
    from rllib_scale.evaluation.play import evaluate
    from rllib_scale.schedulers.rules import make_scheduler

    env = EnvConfig()
    rows = evaluate(make_scheduler("fastest-idle", env.observation), env, seed=0, episodes=1)
    return f"compiled code runs, {rows[0]['completed']} tasks completed in one episode", rows[0]["completed"] > 0


LANES = (("simulator", "policies"), ("networks", "replicas", "bounds"))
"""What is compiled, by the process that does it: policies reuse what the simulator's part has typed and lowered."""


def compile_all() -> Iterator[str]:
    """Compile what sweeps of the presets need, in two processes; yields lines of progress.

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
    """Run the compiled functions of a part once; returns how long it took [s]."""
    from rllib_scale.evaluation.play import play
    from rllib_scale.policies.make import make_policy
    from rllib_scale.simulator.event_engine import compile_ahead
    from rllib_scale.workloads.model import Workload

    start, env = time.monotonic(), scenario("steady-0.7").at_scale(4)
    if name == "simulator":
        play(make_policy("fastest-idle", env), env, 0, [0]).metrics()
    elif name == "networks":
        from rllib_scale.networks.build import build_network
        from rllib_scale.networks.compiled.fused import pass_through

        pass_through(build_network(TrialConfig.of()))
    elif name == "bounds":
        from rllib_scale.bounds.lower_bounds import lower_bounds

        lower_bounds(env, Workload.load("sample:agents"))
    elif name == "replicas":
        from rllib_scale.simulator.services import make_engine

        env = scenario("agents-replicas")
        engine = make_engine(env)
        engine.reset([0], [0])
        engine.step([0])
        play(make_policy("lmetric", env), env, 0, [0])
    else:
        for policy in ("dual-price", "zoo:context-price", "adaptive-price", "fastest-idle"):
            play(make_policy(policy, env), env, 0, [0], workload=Workload.load("sample:agents"))
        compile_ahead(env)
    return time.monotonic() - start
