"""What `rllib-scale doctor` looks at."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import platform
import re
from collections.abc import Iterator
from importlib import metadata

from rllib_scale.clusters.session import ray_session
from rllib_scale.config import EnvConfig
from rllib_scale.errors import UserError


def checks(address: str | None) -> Iterator[tuple[str, str, bool]]:
    """(what, finding, whether it is well), one after the other."""
    version = platform.python_version_tuple()
    yield "python", platform.python_version(), version[:2] in (("3", "11"), ("3", "12"))
    for requirement in metadata.requires("rllib-scale") or ():
        package, is_optional = re.split(r"[^\w-]", requirement)[0], "extra ==" in requirement
        try:
            if not is_optional:
                yield package, metadata.version(package), True
        except metadata.PackageNotFoundError:
            yield package, "not installed", False
    yield "modules", *_import_all()
    yield "cores", str(os.cpu_count()), True
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield "memory", f"{memory:.1f} GiB (one training needs about 1)", memory > 2
    yield "simulator", *_simulate()
    try:
        with ray_session(address) as cpus:
            yield "ray", f"{address or 'local'}: reachable, largest node {cpus:g} CPUs", True
    except UserError as error:
        yield "ray", str(error), False


def _import_all() -> tuple[str, bool]:
    """Import every module: commands import late, so one of them can fail where `rllib-scale --help` works."""
    count, failed, absent = 0, [], set()
    logging.disable(logging.WARNING)  # Streamlit's, that it does not serve a page
    try:
        for root in ("rllib_scale", "rllib_scale_analysis"):
            path = importlib.import_module(root).__path__
            for module in pkgutil.walk_packages(path, f"{root}.", onerror=lambda name: None):
                if module.name.endswith("__main__"):
                    continue
                try:
                    importlib.import_module(module.name)
                    count += 1
                except Exception as error:
                    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("rllib_scale"):
                        absent.add(str(error.name))  # of an extra; what every command needs is checked above
                    else:
                        failed.append(f"{module.name}: {error}")
    finally:
        logging.disable(logging.NOTSET)
    text = f"{count} imported" + (f"; extras without {', '.join(sorted(absent))}" if absent else "")
    return (failed[0] if failed else text), not failed


def _simulate() -> tuple[str, bool]:
    from rllib_scale.evaluation.play import evaluate
    from rllib_scale.schedulers.rules import make_scheduler

    env = EnvConfig()
    rows = evaluate(make_scheduler("fastest-idle", env.observation), env, seed=0, episodes=1)
    return f"compiled code runs, {rows[0]['completed']} tasks completed in one episode", rows[0]["completed"] > 0
