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


@partial(internal, fastmath=set(FAST))
def exp_of_negative(x):  # type: ignore[no-untyped-def]
    """Exponential of a float32 at most 0, within 2e-7 of the true value, in operations that a compiler can vectorise.

    x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by the degree-7 polynomial of Cephes' expf, 2^n through its bits.
    """
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + np.float32(1.0)
    return y * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
