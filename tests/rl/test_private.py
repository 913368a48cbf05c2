"""The private names of RLlib that are used are those of the list, and the installed Ray has them."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import ray

import rllib_scale.rl
from rllib_scale.rl.private import PRIVATE

DOCUMENTED = {"_forward", "_forward_exploration", "_forward_inference", "_forward_train", "_update"}
"""RLlib's way to define a module, and the gradient step of a learner."""


def names_of(path: str) -> set[str]:
    """Private names that the classes of Ray under a class define or assign."""
    module, _, name = path.rpartition(".")
    found: set[str] = set()
    for kind in getattr(import_module(module), name).__mro__:
        if kind.__module__.startswith("ray."):
            found |= set(re.findall(r"(?:self\.|def |^    )(_[a-z]\w*)", inspect.getsource(kind), re.MULTILINE))
    return found


def used() -> set[str]:
    """Private names of attributes and methods, and in strings, in this package's code."""
    found: set[str] = set()
    for path in Path(rllib_scale.rl.__file__).parent.rglob("*.py"):
        if path.name == "private.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return {name for name in found if re.fullmatch(r"_[a-z]\w*", name)}


def test_the_installed_ray_has_the_private_names_that_are_used_and_no_others_are() -> None:
    of_ray = {path: names_of(path) for path in PRIVATE}
    missing = [f"{path}.{name}" for path, names in PRIVATE.items() for name in names if name not in of_ray[path]]
    assert not missing, f"Ray {ray.__version__} does not have what rllib_scale.rl uses"
    listed = {name for names in PRIVATE.values() for name in names}
    touched = used() & set().union(*of_ray.values())
    assert touched - DOCUMENTED == listed
