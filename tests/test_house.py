"""The rooms of the house and who may import whom."""

import subprocess
import sys

import pytest

HEAVY = {"ray", "torch", "gymnasium", "numba", "pandas", "matplotlib"}
ROOMS = {
    "rllib_scale.config": HEAVY,
    "rllib_scale.cli": HEAVY,
    "rllib_scale.simulator.engine": {"ray", "torch", "gymnasium", "pandas", "matplotlib"},
    "rllib_scale.schedulers.heuristics": {"ray", "torch", "gymnasium", "pandas", "matplotlib"},
    "rllib_scale.envs.vector": {"ray", "torch", "matplotlib"},
    "rllib_scale.models.cross_attention": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.models.deep_sets": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.models.mlp": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.models.set_transformer": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.models.srr": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.policy": {"ray", "gymnasium"},
    "rllib_scale.experiments.plan": {"ray", "torch", "gymnasium"},
    "rllib_scale.experiments.results": {"ray", "torch", "gymnasium"},
    "rllib_scale.experiments.features": {"ray", "gymnasium"},
    "rllib_scale.experiments.evaluate": {"ray", "torch", "gymnasium"},
    "rllib_scale.experiments.status": {"ray", "torch", "gymnasium"},
    "rllib_scale.inspect_policy": {"ray", "torch"},
    "rllib_scale.models.attention": {"ray", "gymnasium", "numba", "pandas"},
    "analysis.report": {"ray", "torch", "gymnasium"},
    "analysis.dashboard.store": {"ray", "torch", "gymnasium", "streamlit"},
    "analysis.dashboard.page": {"ray", "torch", "gymnasium"},
}


@pytest.mark.parametrize("module", ROOMS)
def test_room_imports_nothing_from_above(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & ROOMS[module]
