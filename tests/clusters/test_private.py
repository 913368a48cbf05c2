"""The private names of Ray that are used are those of the list, and the installed Ray has them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray

import rllib_scale
from rllib_scale.clusters import private
from rllib_scale.clusters.private import IMPORTED, PRIVATE

pytest.importorskip("ray.serve", exc_type=ImportError)

DOCUMENTED = {"_forward", "_forward_exploration", "_forward_inference", "_forward_train", "_update"}
"""RLlib's way to define a module, and the gradient step of a learner."""
NAME = r"_[A-Za-z]\w*"
DEFINED = re.compile(rf"(?:self\.|def |class |^    )({NAME})|(?<=[(\s])({NAME})(?=: |=)", re.MULTILINE)
"""Attributes, methods and parameters in a source."""


def found(path: str) -> Any:
    """The module, or the object in one, that a path names."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)


def names_of(path: str) -> set[str]:
    """Private names that a module, or the classes of Ray under a class, define, assign or take as parameters."""
    of = found(path)
    sources = [of] if inspect.ismodule(of) else [kind for kind in of.__mro__ if kind.__module__.startswith("ray.")]
    return {name for source in sources for pair in DEFINED.findall(inspect.getsource(source)) for name in pair if name}


def parsed(under: str = "") -> Iterator[ast.AST]:
    """All nodes of the code in a file or folder of the package."""
    at = Path(rllib_scale.__file__).parent / under
    for path in [at] if at.is_file() else at.rglob("*.py"):
        if path != Path(private.__file__):
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def used(under: str) -> set[str]:
    """Private names of attributes, methods and parameters, and in strings, in a part of the package's code."""
    names: set[str] = set()
    for node in parsed(under):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg | ast.keyword):
            names.add(node.arg or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return {name for name in names if re.fullmatch(NAME, name)}


@pytest.mark.parametrize("under", PRIVATE)
def test_the_installed_ray_has_the_private_names_that_are_used_and_no_others_are(under: str) -> None:
    of_ray = {path: names_of(path) for path in PRIVATE[under]}
    missing = [f"{path}.{name}" for path, names in PRIVATE[under].items() for name in names if name not in of_ray[path]]
    assert not missing, f"Ray {ray.__version__} does not have what rllib_scale/{under} uses"
    listed = {name for names in PRIVATE[under].values() for name in names}
    touched = used(under) & set().union(*of_ray.values())
    assert touched - DOCUMENTED == listed


def test_private_modules_of_ray_are_imported_where_the_list_says() -> None:
    paths = set()
    for node in parsed():
        if isinstance(node, ast.ImportFrom):
            paths |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            paths |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            paths |= set(re.findall(r"ray(?:\.\w+)+", node.value))
    assert {path for path in paths if path.startswith("ray.") and "._" in path} == set(IMPORTED)
    for path in IMPORTED:
        assert found(path) is not None
