"""One compute thread per process, before anything starts its own; the order of the tests; the Ray that they share."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from local_ray import RAY_CPUS
from rllib_scale.clusters.session import ONE_THREAD

os.environ.update(ONE_THREAD)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
    os.environ.setdefault(name, "test")  # of `s3_server`; the workers of the shared Ray read them, too
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
unhurried: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("suite", **unhurried)
settings.register_profile("many", max_examples=2000, **unhurried)
settings.load_profile("suite")

SHARED_RAY = ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Properties draw new examples in each run; xdist's processes take the seed from the first."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))


def pytest_report_header(config: pytest.Config) -> str:
    return f"examples of properties: repeat them with --hypothesis-seed={config.option.hypothesis_seed}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files that start Ray or a browser come first: run last, one would keep the other process waiting.

    Of those the ones with clusters of their own, which end the shared Ray.
    """
    cluster = {item.path for item in items if item.get_closest_marker("cluster")}
    long = {item.path for item in items if any(item.get_closest_marker(name) for name in ("ray", "browser"))}
    items.sort(key=lambda item: (item.path not in cluster, item.path not in long))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of `cluster` starts a Ray of its own, and a process has only one."""
    if item.get_closest_marker("cluster"):
        SHARED_RAY.close()


def pytest_sessionfinish() -> None:
    SHARED_RAY.close()


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """The local Ray of `RAY_CPUS` CPUs that all modules of a process share; commands run in this process join it.

    A module that has not given back its CPUs ends it, so that the next one starts with a new one.
    """
    import ray

    from rllib_scale.clusters.session import ray_session

    if not ray.is_initialized():
        SHARED_RAY.enter_context(ray_session(num_cpus=RAY_CPUS))
    yield
    deadline = time.monotonic() + 5
    while ray.is_initialized() and ray.available_resources().get("CPU", 0) < RAY_CPUS:
        if time.monotonic() > deadline:
            SHARED_RAY.close()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def running_serve(local_ray: None) -> Iterator[None]:
    """Ray Serve on that Ray; requests come from handles: no proxy listens."""
    from ray import serve

    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()
