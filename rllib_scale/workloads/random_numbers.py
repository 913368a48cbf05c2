"""Random numbers that (seed, episode) decides, whatever the version of numpy.

xoshiro256++ (Blackman and Vigna 2021), seeded by splitmix64. The state of a generator is an array (4,) uint64.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53
ESTIMATES, CONTENTS, STRAGGLERS = 1, 2**40, 2**41
"""Streams of (seed, episode); see `seed_stream`."""


def words_of(*numbers: int) -> tuple[int, ...]:
    """Two words of 32 bits for each number: SeedSequence joins words, and a fixed count keeps other numbers apart."""
    return tuple(word for number in numbers for word in (number % 2**32, number >> 32))


def mixed_seed(key: int, *words: int) -> int:
    """63 mixed bits of words of 32 bits, apart from those of other spawn keys: no seed that a person writes down."""
    sequence = np.random.SeedSequence(words, spawn_key=(key,))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def new_generator(seed: int, episode: int, stream: int | None = None) -> NDArray[np.uint64]:
    """A generator at the start of the stream of (seed, episode), or of another stream of it."""
    rng = np.empty(4, dtype=np.uint64)
    if stream is None:
        seed_generator(rng, seed, episode)
    else:
        seed_stream(rng, seed, episode, stream)
    return rng


@compiled
def mix(x):  # type: ignore[no-untyped-def]
    """Hash of a uint64: the finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


@compiled
def seed_generator(rng, seed, episode):  # type: ignore[no-untyped-def]
    """Set the generator to the start of the stream of (seed, episode)."""
    x = mix(mix(np.uint64(seed) + _GOLDEN) ^ (np.uint64(episode) * _MIX_1 + _GOLDEN))
    for k in range(4):
        x += _GOLDEN
        rng[k] = mix(x)


@compiled
def seed_stream(rng, seed, episode, stream):  # type: ignore[no-untyped-def]
    """Set the generator to the start of another stream of (seed, episode), which leaves the first one as it is.

    Stream 1 decides the errors of estimates, stream 2 + i the changes of server i, stream 2^40 the contents of
    workflows from traces and fitted tables (the first stream decides their arrivals), stream 2^41 the stragglers.
    """
    x = mix(mix(np.uint64(seed) + _GOLDEN) ^ (np.uint64(episode) * _MIX_1 + _GOLDEN))
    x = mix(x ^ (np.uint64(stream) * _MIX_2 + _GOLDEN))
    for k in range(4):
        x += _GOLDEN
        rng[k] = mix(x)


@compiled
def _rotate(x, k):  # type: ignore[no-untyped-def]
    return (x << np.uint64(k)) | (x >> np.uint64(64 - k))


@compiled
def uniform(rng):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1), 53 bits."""
    result = _rotate(rng[0] + rng[3], 23) + rng[0]
    shifted = rng[1] << np.uint64(17)
    rng[2] ^= rng[0]
    rng[3] ^= rng[1]
    rng[1] ^= rng[2]
    rng[0] ^= rng[3]
    rng[2] ^= shifted
    rng[3] = _rotate(rng[3], 45)
    return float(result >> np.uint64(11)) * _TO_UNIT


@compiled
def standard_normal(rng):  # type: ignore[no-untyped-def]
    """Normal of mean 0 and standard deviation 1. Two draws."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(rng)))
    return radius * math.cos(2.0 * math.pi * uniform(rng))


@compiled
def exponential(rng, mean):  # type: ignore[no-untyped-def]
    """Exponential with a mean that may be inf. One draw."""
    x = -math.log(1.0 - uniform(rng))
    return x * mean if mean < np.inf else np.inf


@compiled
def lognormal(rng, mean, std):  # type: ignore[no-untyped-def]
    """Exponential of a normal with this mean and standard deviation."""
    return math.exp(mean + std * standard_normal(rng))


@compiled
def integer(rng, low, high):  # type: ignore[no-untyped-def]
    """Uniform integer in low..high, both included."""
    return low + int(uniform(rng) * (high - low + 1))
