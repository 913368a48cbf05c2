"""The rooms of the house and who may import whom."""

import subprocess
import sys

import pytest

HEAVY = {"ray", "torch", "gymnasium", "numba", "pandas", "matplotlib"}
ROOMS = {
    "rllib_scale.config": HEAVY,
    "rllib_scale.cli": HEAVY,
    "rllib_scale.simulator.engine": {"ray", "torch", "gymnasium", "pandas", "matplotlib"},
    "rllib_scale.schedulers.rules": {"ray", "torch", "gymnasium", "pandas", "matplotlib"},
    "rllib_scale.envs.vector": {"ray", "torch", "matplotlib"},
    "rllib_scale.networks.build": {"ray", "gymnasium", "pandas"},
    "rllib_scale.networks.cross_attention": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.networks.deep_sets": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.networks.mlp": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.networks.set_transformer": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.networks.srr": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale.policies.policy": {"ray", "gymnasium"},
    "rllib_scale.config.plan": {"ray", "torch", "gymnasium"},
    "rllib_scale.results.tables": {"ray", "torch", "gymnasium"},
    "rllib_scale.evaluation.feature_drift": {"ray", "gymnasium"},
    "rllib_scale.evaluation.play": {"ray", "torch", "gymnasium"},
    "rllib_scale.results.status": {"ray", "torch", "gymnasium"},
    "rllib_scale.evaluation.inspection": {"ray", "torch"},
    "rllib_scale.networks.attention": {"ray", "gymnasium", "numba", "pandas"},
    "rllib_scale_analysis.report": {"ray", "torch", "gymnasium"},
    "rllib_scale_analysis.dashboard.store": {"ray", "torch", "gymnasium", "streamlit"},
    "rllib_scale_analysis.dashboard.page": {"ray", "torch", "gymnasium"},
}


@pytest.mark.parametrize("module", ROOMS)
def test_room_imports_nothing_from_above(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & ROOMS[module]
