"""The one error type that a person sees: a single clear line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """Bad input. The message names the key, the value and what would be valid."""


LONGEST = 293
"""Characters of a message: three lines of a terminal, with what stands before it."""
ROOM = 100
"""Characters of a list of names in a message."""
LISTS = {"scheduler": "schedulers", "scenario": "scenarios", "method": "methods", "policy": "zoo"}
"""Commands that print all names of a kind."""


def shortened(message: str) -> str:
    """A message on one line whose longest words, names that nobody would read, are cut in their middle.

    Of one that is too long all the same, the beginning and the end are kept.

    >>> shortened("x" * 5000 + ": no such file")
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: no such file'
    """
    message = _cut(" ".join(message.split("\n")), 200, 40)
    if len(message) > LONGEST:
        message = _cut(message, 60, 20)
    return message if len(message) <= LONGEST else f"{message[: LONGEST - 85]} ... {message[-80:]}"


def _cut(message: str, longest: int, kept: int) -> str:
    return re.sub(rf"[^\s:']{{{longest},}}", lambda word: f"{word[0][:kept]}...{word[0][-kept:]}", message)


def nearest(value: str, names: Sequence[str]) -> list[str]:
    """Names like a value, nearest first, and those that begin as it does.

    >>> nearest("kv_mb", ["unit", "kv_mb_per_token"])
    ['kv_mb_per_token']
    """
    begin = [name for name in names if value and name.startswith(value)]
    return list(dict.fromkeys([*difflib.get_close_matches(value, names, n=3), *begin]))


def offered(names: Iterable[str], near: Iterable[str] = (), listing: str | None = None) -> str:
    """Valid names for a message: all of them, or near ones first, as many as have room, and how many more.

    >>> offered(["a", "b"]), offered(["steady-0.7"] * 2 + ["x" * 90], listing="scenarios")
    ('a, b', 'steady-0.7 and 1 more: `rllib-scale scenarios`')
    """
    every = list(dict.fromkeys(names))
    if len(", ".join(every)) <= ROOM:
        return ", ".join(every)
    ordered, shown = list(dict.fromkeys([*near, *every])), 1
    while len(", ".join(ordered[: shown + 1])) <= ROOM:
        shown += 1
    more = f" and {len(every) - shown} more" + (f": `rllib-scale {listing}`" if listing else "")
    return ", ".join(ordered[:shown]) + more


def choice_error(what: str, value: str, valid: Iterable[str]) -> UserError:
    """Error for a name that is not in a registry, with the nearest valid names first, and where all of them are listed.

    >>> print(choice_error("scheduler", "fastest-idel", ["fastest-idle", "round-robin"]))
    unknown scheduler 'fastest-idel'; did you mean 'fastest-idle'? valid: fastest-idle, round-robin
    """
    names = list(valid)
    near = nearest(value, names)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    shown = value if len(value) <= 60 else f"{value[:40]}...{value[-17:]}"
    return UserError(f"unknown {what} {shown!r}{hint} valid: {offered(names, near, LISTS.get(what))}")


def require_free_port(address: str, port: int) -> None:
    """Make sure that a server could listen there.

    Raises:
        UserError: it could not.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise UserError(f"--port {port}: cannot be used on {address} ({error.strerror})") from None
