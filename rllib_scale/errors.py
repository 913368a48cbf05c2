"""The one error type that a person sees: a single clear line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Iterable


class UserError(Exception):
    """Bad input. The message names the key, the value and what would be valid."""


def shortened(message: str) -> str:
    """A message whose longest words, names that nobody would read, are cut in their middle.

    >>> shortened("x" * 5000 + ": no such file")
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: no such file'
    """
    return re.sub(r"[^\s:']{200,}", lambda word: f"{word[0][:40]}...{word[0][-40:]}", message)


def choice_error(what: str, value: str, valid: Iterable[str]) -> UserError:
    """Error for a name that is not in a registry, with the nearest valid name and the whole list.

    >>> print(choice_error("scheduler", "fastest-idel", ["fastest-idle", "round-robin"]))
    unknown scheduler 'fastest-idel'; did you mean 'fastest-idle'? valid: fastest-idle, round-robin
    """
    names = list(valid)
    near = difflib.get_close_matches(value, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return UserError(f"unknown {what} {value!r}{hint} valid: {', '.join(names)}")


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
