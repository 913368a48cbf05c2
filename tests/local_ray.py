"""What a module sets as its `pytestmark` whose tests share the local Ray of `conftest.py`, or a Ray Serve on it."""

import pytest

RAY_CPUS = 4
"""CPUs of that Ray."""
LOCAL_RAY = [
    pytest.mark.ray,
    pytest.mark.usefixtures("local_ray"),
    pytest.mark.filterwarnings("ignore:.*rllib-single-agent-env-v0 already in registry"),
]
LOCAL_SERVE = [*LOCAL_RAY, pytest.mark.usefixtures("running_serve")]
