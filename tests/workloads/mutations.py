"""Malformed JSON, made from what is good: one place changed, or as a seed has it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np

WRONG: tuple[Any, ...] = (None, -1, -0.5, float("nan"), float("inf"), 1e300, 10**400, True, "", "\n", "x" * 500, [], {})
WRONG += ([None], [["a"]], {"": 0}, [{}], "a b", 0)


MISSING = object()


def changed(good: Any, path: Sequence[Any], value: Any) -> Any:
    """A copy with the value at a path of keys replaced, or taken away where it is MISSING."""
    data = copy.deepcopy(good)
    place = reduce(getitem, path[:-1], data)
    if value is MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


def mutations(seed: int, good: Any) -> Iterator[bytes]:
    """Without end: texts cut off, with bytes changed, and with one value of another kind, missing or there twice."""
    rng = np.random.default_rng(seed)
    text = json.dumps(good).encode()
    paths = list(_paths(good, ()))
    while True:
        kind = rng.integers(8)
        if kind == 0:
            yield text[: rng.integers(len(text))]
        elif kind == 1:
            at = rng.integers(len(text))
            yield text[:at] + bytes([rng.integers(256)]) + text[at + 1 :]
        else:
            data = copy.deepcopy(good)
            *parents, last = paths[rng.integers(len(paths))]
            place = reduce(getitem, parents, data)
            if kind == 2:
                del place[last]
            elif kind == 3 and isinstance(place, list):
                place.append(copy.deepcopy(place[last]))
            elif kind == 4 and isinstance(place, list):
                place.reverse()
            else:
                place[last] = WRONG[rng.integers(len(WRONG))]
            yield json.dumps(data).encode()


def _paths(data: Any, here: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to every value."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield (*here, key)
        yield from _paths(value, (*here, key))
