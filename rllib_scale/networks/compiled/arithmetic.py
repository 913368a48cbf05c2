"""Decorator and arithmetic of the compiled networks."""

from __future__ import annotations

from functools import partial

import numpy as np

from rllib_scale.compiled import FAST, compiled, internal

fast = partial(compiled, allocates=True, inline=True, fastmath=set(FAST))
"""Compiles a function whose sums may be reordered into vector lanes: results differ from torch's in the last bits."""
inner = partial(fast, internal=True)
"""The same of a function that only compiled ones call."""
layer = partial(inner, inline=False)
"""The same of one that works on a whole minibatch: it is called, as inlining it at each place takes long to compile."""


@partial(internal, allocates=True, inline=False)
def product(a, b, out):  # type: ignore[no-untyped-def]
    """Write the matrix product of a and b to `out`: `np.dot`, which numba would compile at each call site."""
    np.dot(a, b, out)
