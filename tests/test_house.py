"""The rooms of the house: who may know whom, and what each may load. Rooms are found; their order stands here alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
FOLDERS = {"rllib_scale": PROJECT / "rllib_scale", "rllib_scale_analysis": PROJECT / "analysis"}
ANALYSIS = "analysis"

ORDER: tuple[tuple[str, ...], ...] = (
    ("__init__", "errors"),
    ("compiled", "files", "plugins", "zoo"),
    ("config",),
    ("workloads", "results"),
    ("observation",),
    ("simulator",),
    ("envs", "schedulers", "bounds"),
    ("networks",),
    ("policies",),
    ("rl", "evaluation", "clusters"),
    ("sweeps", "live"),
    ("analysis",),
    ("cli",),
    ("__main__",),
)
"""From the ground up: a room may know those on the floors below its own, and none beside or above it."""
PLAYED = {
    "errors",
    "files",
    "plugins",
    "config",
    "workloads",
    "results",
    "observation",
    "simulator",
    "schedulers",
    "bounds",
}
ONLY = {
    "analysis": {"errors", "files", "config", "results"},
    "live": PLAYED | {"__init__", "policies", "evaluation", "clusters"},
}
"""Rooms that may know these alone, whatever lies below them."""
EXCEPTIONS = {
    # Opened when somebody looks into one episode; see `_evaluation` there.
    ("rllib_scale_analysis.dashboard.episode_view", "evaluation"),
}
"""(module, room): imports against the order, each with its reason. One that is no longer needed fails, too."""

HEAVY = {"ray", "torch", "gymnasium", "numba", "pandas", "matplotlib", "streamlit", "plotly", "optuna"}
LOADS: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "files": set(),
    "plugins": set(),
    "zoo": set(),
    "compiled": {"numba"},
    "config": set(),
    "workloads": {"numba"},
    "results": {"pandas"},
    "observation": set(),
    "simulator": {"numba"},
    "envs": {"numba", "gymnasium", "matplotlib"},
    "envs.vector": {"numba", "gymnasium"},
    "schedulers": {"numba"},
    "bounds": {"numba"},
    "networks": {"torch"},
    "networks.compiled": {"torch", "numba"},
    "policies": {"torch", "numba"},
    "rl": {"ray", "torch", "gymnasium", "numba", "pandas"},
    "evaluation": {"torch", "numba"},
    "evaluation.play": {"numba"},
    "evaluation.units": {"numba"},
    "evaluation.replay": {"numba", "gymnasium", "matplotlib", "pandas"},
    "evaluation.inspection": {"numba", "gymnasium", "matplotlib", "pandas"},
    "clusters": {"pandas"},
    "sweeps": {"ray", "torch", "numba", "pandas", "gymnasium"},
    "sweeps.checkpoints": {"pandas"},
    "sweeps.sweep": {"pandas"},
    "sweeps.trainable": {"ray", "pandas"},
    "sweeps.run": {"numba", "pandas"},
    "live": {"ray", "numba", "pandas"},
    "live.worker": set(),
    "analysis": {"pandas", "matplotlib"},
    "analysis.dashboard": {"pandas", "matplotlib", "plotly", "streamlit"},
    "analysis.dashboard.store": {"pandas"},
    "cli": set(),
}
"""What of HEAVY a room, or a part of one that is stricter, may have loaded once all its modules are imported."""
IMPORTERS = {
    "ray": {"rl", "clusters", "sweeps", "live"},
    "torch": {"networks", "policies", "rl", "evaluation", "sweeps"},
    "streamlit": {"analysis"},
}
"""Rooms that may name these packages at all, were it in the last line of a function: the others work without."""
SCRIPTS = {"rllib_scale.__main__", "rllib_scale_analysis.dashboard.app"}
"""Modules that do their work as they are imported."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the house by its dotted name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join((package, *parts))] = path
    return found


def place(module: str) -> str:
    """Where a module is, seen from the house: its dotted name without the package's, `__init__` for the package."""
    package, _, rest = module.partition(".")
    if package == "rllib_scale_analysis":
        return f"{ANALYSIS}.{rest}" if rest else ANALYSIS
    return rest or "__init__"


def room(module: str) -> str:
    return place(module).split(".")[0]


ROOMS = sorted({room(module) for module in modules()})
FLOOR = {name: floor for floor, names in enumerate(ORDER) for name in names}


def imported(module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything of the house that a module imports, at its top or later."""
    path = modules()[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{source}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in modules():  # what is imported may be a thing in a module
                name = name.rpartition(".")[0]
            if name:
                yield node.lineno, name


@cache
def against_the_order() -> dict[tuple[str, str], str]:
    """(module, room) of every import against the order -> where it stands."""
    found = {}
    for module, path in modules().items():
        here = room(module)
        for line, name in imported(module):
            there = room(name)
            allowed = there in ONLY[here] if here in ONLY else FLOOR.get(there, -1) < FLOOR.get(here, len(ORDER))
            if there != here and not allowed:
                found[module, there] = f"{path.relative_to(PROJECT)}:{line} imports {name}"
    return found


def test_every_room_has_a_floor() -> None:
    new = set(ROOMS) - set(FLOOR)
    assert not new, f"new rooms {sorted(new)}: give each a floor in ORDER and a line in LOADS (tests/test_house.py)"
    assert not set(FLOOR) - set(ROOMS), "rooms in ORDER that are gone"


def test_arrows_run_down_only() -> None:
    wrong = [where for key, where in against_the_order().items() if key not in EXCEPTIONS]
    assert not wrong, "\n".join(wrong)


def test_no_exception_has_become_needless() -> None:
    assert set(against_the_order()) >= EXCEPTIONS


def test_arrows_are_found_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The imports of a made-up module: at the top, later, relative, of a module and of a thing in it."""
    text = (
        "from rllib_scale import cli\nimport numpy\n\n"
        "def later():\n    from ..simulator import engine\n    from rllib_scale.rl.methods import NEVER\n"
        "    import rllib_scale.sweeps.sweep\n"
    )
    (tmp_path / "made_up.py").write_text(text)
    monkeypatch.setitem(modules(), "rllib_scale.envs.made_up", tmp_path / "made_up.py")
    names = ["rllib_scale.cli", "rllib_scale.simulator.engine", "rllib_scale.rl.methods", "rllib_scale.sweeps.sweep"]
    assert list(imported("rllib_scale.envs.made_up")) == list(zip((1, 5, 6, 7), names, strict=True))


@pytest.mark.parametrize("package", IMPORTERS)
def test_only_their_rooms_import(package: str) -> None:
    found = set()
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if package in {name.split(".")[0] for name in names}:
                found.add(room(module))
    assert found <= IMPORTERS[package]


def test_tests_mirror_the_rooms() -> None:
    """A folder of tests has the name of its room; `browser` opens pages of the analysis, the others are no tests."""
    folders = {path.name for path in (PROJECT / "tests").iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert folders - set(ROOMS) <= {"browser", "reference", "version_0_1"}


def strictest(module: str) -> str | None:
    """The line of LOADS that holds for a module."""
    at = place(module)
    while at and at not in LOADS:
        at = at.rpartition(".")[0]
    return at or None


def test_every_module_has_a_line_of_what_it_may_load() -> None:
    without = [module for module in modules() if strictest(module) is None and module not in SCRIPTS]
    assert not without, f"give {without} a line in LOADS (tests/test_house.py)"


@pytest.mark.parametrize("name", LOADS)
def test_room_loads_no_more_than_it_may(name: str) -> None:
    if name == "analysis.dashboard":
        pytest.importorskip("streamlit")
    inside = [module for module in modules() if strictest(module) == name and module not in SCRIPTS]
    assert inside, f"{name} in LOADS (tests/test_house.py) is gone"
    code = f"import sys, {', '.join(inside)}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True, cwd=PROJECT).split())
    assert not loaded & HEAVY - LOADS[name]
