"""The scripts of studies use the public library: modules that have an API page, and names without an underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).parents[1]
LISTED = run_path(str(ROOT / "docs" / "public.py"))
PUBLIC = {module for _, modules in LISTED["API"].values() for module in modules} | {*LISTED["ON_OTHER_PAGES"]}
SCRIPTS = sorted((ROOT / "analysis" / "studies").rglob("*.py"))
INSIDE = ("learning", "srr")
"""Studies that measure what happens within a training, and so take its parts."""


def not_public(source: str) -> Iterator[str]:
    """What a script takes of the packages and should not."""
    tree, ours = ast.parse(source), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if not _is_public(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rllib_scale"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                ours.add(alias.asname or alias.name)
                if alias.name.startswith("_") or not _is_public(name if _is_module(name) else node.module):
                    yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and ast.unparse(node.value) in ours:
            yield ast.unparse(node)


def _is_module(name: str) -> bool:
    path = ROOT / name.replace("rllib_scale_analysis", "analysis").replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def _is_public(module: str) -> bool:
    return not module.startswith("rllib_scale") or module in PUBLIC


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_study_uses_the_public_library(script: Path) -> None:
    found = list(not_public(script.read_text(encoding="utf-8")))
    if script.parent.name in INSIDE:
        found = [name for name in found if name.rpartition(".")[2].startswith("_")]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "from rllib_scale.schedulers import online_prices",
        "from rllib_scale.schedulers.rules import _make",
        "import rllib_scale.compiled",
        "from rllib_scale.schedulers import rules; rules._prices()",
    ],
)
def test_what_is_not_public_is_found(line: str) -> None:
    assert len(list(not_public(line))) == 1


def test_every_public_module_is_there() -> None:
    assert [module for module in PUBLIC if not _is_module(module)] == []
