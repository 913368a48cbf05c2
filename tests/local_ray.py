"""What a module sets as its `pytestmark` whose tests share the local Ray of `conftest.py`."""

import pytest

RAY_CPUS = 4
"""CPUs of that Ray."""
LOCAL_RAY = [
    pytest.mark.ray,
    pytest.mark.usefixtures("local_ray"),
    pytest.mark.filterwarnings("ignore:.*rllib-single-agent-env-v0 already in registry"),
]
