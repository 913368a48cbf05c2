"""The one way functions are compiled here."""

from __future__ import annotations

from typing import Any

import numba

# Strict IEEE arithmetic (no fastmath): the same seed must give the same episode on every machine.
compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")
