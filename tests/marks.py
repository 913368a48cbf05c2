"""Marks of single cases of a parametrized test."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case that is not part of the default run."""
    return pytest.param(*values, marks=pytest.mark.slow)
