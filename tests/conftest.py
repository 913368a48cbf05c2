"""One compute thread per process, before anything starts its own; and the Ray that tests of one process share."""

import os
from collections.abc import Iterator

import pytest

from rllib_scale.clusters.session import ONE_THREAD

os.environ.update(ONE_THREAD)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


@pytest.fixture(scope="module")
def local_ray(request: pytest.FixtureRequest) -> Iterator[None]:
    """A local Ray that ends with the module, of 3 CPUs, or as many as RAY_CPUS of the module says."""
    from rllib_scale.clusters.session import ray_session

    with ray_session(num_cpus=getattr(request.module, "RAY_CPUS", 3)):
        yield
