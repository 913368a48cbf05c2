"""The error type that a user sees: one clear line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """Bad input. The message names the key, the value and what is valid."""


def last_line(traceback: str) -> str:
    r"""The last line of a traceback; for a `UserError` its message alone, as everywhere.

    >>> last_line("Traceback ...\nrllib_scale.errors.UserError: a.yaml: no such file\n")
    'a.yaml: no such file'
    >>> last_line("Traceback ...\nValueError: no")
    'ValueError: no'
    """
    lines = traceback.strip().splitlines() or [""]
    return lines[-1].removeprefix(f"{UserError.__module__}.{UserError.__qualname__}: ")


def extra(name: str) -> str:
    """The command that installs an optional part, with the versions that fit together."""
    return f"in a clone: pip install --constraint constraints.txt --editable '.[{name}]'"


MAX_LISTED_CHARACTERS = 100
"""Length of a list of names in a message."""
LISTS = {"scheduler": "schedulers", "scenario": "scenarios", "method": "methods", "policy": "zoo", "preset": "presets"}
"""Kind of a name -> command that lists all names of the kind."""


def nearest(value: str, names: Sequence[str]) -> list[str]:
    """Names that a value abbreviates, names similar to it, and names that share a word with it.

    >>> nearest("lr", ["clip", "learning_rate"]), nearest("ent_coef", ["clip", "entropy_coefficient"])
    (['learning_rate'], ['entropy_coefficient'])
    >>> nearest("clip_param", ["gamma", "clip"])
    ['clip']
    """
    short = [name for name in names if _abbreviates(value, name)]
    close = difflib.get_close_matches(value, names, n=3)
    begin = [name for name in names if value and name.startswith(value)]
    words = {word for word in _words(value) if len(word) > 2}
    shared = [name for name in names if not words.isdisjoint(_words(name))]
    shared.sort(key=lambda name: len(set(_words(name)) - words))
    return list(dict.fromkeys([*short, *close, *begin, *shared]))


def _abbreviates(value: str, name: str) -> bool:
    """Whether each word of a value begins the word of a name, or the value has their initials."""
    short, whole = _words(value), _words(name)
    if len(short) == 1 and len(value) == len(whole) > 1:
        short = list(value)
    return len(short) == len(whole) > 1 and all(map(str.startswith, whole, short))


def _words(name: str) -> list[str]:
    return re.split("[_-]", name)


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural if need be.

    >>> counted(1, "training"), counted(1200, "evaluation")
    ('1 training', '1,200 evaluations')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def offered(names: Iterable[str], near: Iterable[str] = (), listing: str | None = None) -> str:
    """Valid names for a message: all, or as many as fit, near ones first, and the number of the others.

    >>> offered(["a", "b"]), offered(["steady-0.7"] * 2 + ["x" * 90], listing="scenarios")
    ('a, b', 'steady-0.7 and 1 more: `rllib-scale scenarios`')
    """
    every = list(dict.fromkeys(names))
    if len(", ".join(every)) <= MAX_LISTED_CHARACTERS:
        return ", ".join(every)
    ordered, shown = list(dict.fromkeys([*near, *every])), 1
    while len(", ".join(ordered[: shown + 1])) <= MAX_LISTED_CHARACTERS:
        shown += 1
    more = f" and {len(every) - shown} more" + (f": `rllib-scale {listing}`" if listing else "")
    return ", ".join(ordered[:shown]) + more


def choice_error(what: str, value: str, valid: Iterable[str]) -> UserError:
    """Error for an unknown name, with the nearest valid names first and the command that lists all.

    >>> print(choice_error("scheduler", "fastest-idel", ["fastest-idle", "round-robin"]))
    unknown scheduler 'fastest-idel'; did you mean 'fastest-idle'? valid: fastest-idle, round-robin
    """
    names = list(valid)
    near = nearest(value, names)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return UserError(f"unknown {what} {value!r}{hint} valid: {offered(names, near, LISTS.get(what))}")


def require_free_port(address: str, port: int) -> None:
    """Check that a server can listen on a port.

    Raises:
        UserError: it cannot.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise UserError(f"--port {port}: cannot be used on {address} ({error.strerror})") from None
