"""One compute thread per process, before anything starts its own; the order of the tests; the Ray that some share."""

import os
from collections.abc import Iterator

import pytest

from rllib_scale.clusters.session import ONE_THREAD

os.environ.update(ONE_THREAD)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files that start Ray or a browser come first: run last, one would keep the other process waiting."""
    long = {item.path for item in items if any(item.get_closest_marker(name) for name in ("ray", "browser"))}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="module")
def local_ray(request: pytest.FixtureRequest) -> Iterator[None]:
    """A local Ray that ends with the module, of 3 CPUs, or as many as RAY_CPUS of the module says."""
    from rllib_scale.clusters.session import ray_session

    with ray_session(num_cpus=getattr(request.module, "RAY_CPUS", 3)):
        yield
