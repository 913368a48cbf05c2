"""The checks of `rllib-scale doctor`."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata

from rllib_scale.clusters.session import ray_session
from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError


def checks(address: str | None) -> Iterator[tuple[str, str, bool]]:
    """(name, result, success) of each check."""
    version = platform.python_version_tuple()
    yield "python", platform.python_version(), version[:2] in (("3", "11"), ("3", "12"))
    for requirement in metadata.requires("rllib-scale") or ():
        package, is_optional = re.split(r"[^\w-]", requirement)[0], "extra ==" in requirement
        try:
            if not is_optional:
                yield package, metadata.version(package), True
        except metadata.PackageNotFoundError:
            yield package, "not installed", False
    yield "cores", str(os.cpu_count()), True
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield "memory", f"{memory:.1f} GiB (one training needs about 1)", memory > 2
    yield "simulator", *_simulate()
    try:
        with ray_session(address) as cpus:
            yield "ray", f"{address or 'local'}: reachable, largest node {cpus:g} CPUs", True
    except UserError as error:
        yield "ray", str(error), False


def _simulate() -> tuple[str, bool]:
    from rllib_scale.evaluation.play import evaluate
    from rllib_scale.schedulers.rules import make_scheduler

    env = EnvConfig()
    rows = evaluate(make_scheduler("fastest-idle", env.observation), env, seed=0, episodes=1)
    return f"compiled code runs, {rows[0]['completed']} tasks completed in one episode", rows[0]["completed"] > 0
