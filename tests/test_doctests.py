"""Examples in docstrings say what is true."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = [
    ".".join((package, *path.relative_to(ROOT / folder).with_suffix("").parts))
    for folder, package in (("rllib_scale", "rllib_scale"), ("analysis", "rllib_scale_analysis"))
    for path in sorted((ROOT / folder).rglob("*.py"))
    if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), flags=re.MULTILINE) and path.name != "__init__.py"
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_of(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
