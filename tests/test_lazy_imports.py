"""What a package may load when it is imported. What it may import at all, `make lint` checks by import-linter."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
HEAVY = {"ray", "torch", "gymnasium", "numba", "pandas", "matplotlib", "streamlit", "plotly"}
LOADS = {
    "rllib_scale/cli": set(),
    "rllib_scale/config": set(),
    "rllib_scale/simulator": {"numba"},
    "rllib_scale/envs/__init__.py": {"gymnasium"},
    "rllib_scale/envs/scheduling.py": {"gymnasium", "numba"},
    "rllib_scale/networks": {"torch", "numba"},
    "rllib_scale/clusters": {"pandas"},
    "rllib_scale/live/worker.py": {"ray"},
    "analysis/report": {"pandas", "matplotlib"},
}
"""Folder or file -> what of HEAVY its modules may have loaded once all of them are imported."""


@pytest.mark.parametrize("place", LOADS)
def test_importing_loads_no_more_than(place: str) -> None:
    path = PROJECT / place
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    modules = [".".join(file.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    modules = ["rllib_scale_" + module if module.startswith("analysis") else module for module in modules]
    code = f"import sys, {', '.join(modules)}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True, cwd=PROJECT).split())
    assert not loaded & HEAVY - LOADS[place]


def test_the_picture_of_contributing_shows_the_imports() -> None:
    drawn = runpy.run_path(str(PROJECT / "docs" / "architecture.py"))["mermaid"]()
    assert "    simulator --> observation\n" in drawn
    assert drawn in (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "make architecture"
