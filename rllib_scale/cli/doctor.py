"""The checks of `rllib-scale doctor`."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

from packaging.specifiers import SpecifierSet

from rllib_scale.clusters.session import ray_session
from rllib_scale.config import EnvConfig
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
