"""Trained policies that come with the package, each with a card: `zoo:NAME` wherever the folder of a policy is valid.

A folder here is that of a policy (`rllib_scale.policies.policy`) with a card.json beside it: the command that made it,
seeds, results with intervals, limits. They are files of the package, so that the same name is there on every node.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rllib_scale.errors import choice_error

PREFIX = "zoo:"
CARD = "card.json"
DESCRIPTION, TENSORS = POLICY_FILES = "policy.json", "policy.safetensors"
"""The files of any policy: what it says of itself, and its weights."""
_HERE = Path(__file__).parent


def names() -> list[str]:
    """Names of its policies, without the prefix."""
    return sorted(path.parent.name for path in _HERE.glob(f"*/{CARD}"))


def is_named(text: str | Path) -> bool:
    """Whether a text names a policy of the zoo, which it may lack, and not a user's folder.

    >>> is_named("zoo:scale"), is_named("zoo/scale"), is_named("fastest-idle")
    (True, False, False)
    """
    return str(text).startswith(PREFIX)


def folder_of(text: str | Path) -> Path:
    """The folder of a policy: that of `zoo:NAME`, or as it is given.

    Raises:
        UserError: there is none of that name in the zoo.
    """
    if not is_named(text):
        return Path(text)
    name = str(text).removeprefix(PREFIX)
    if name not in names():
        raise choice_error("policy", str(text), [PREFIX + each for each in names()])
    return _HERE / name


def card(name: str) -> dict[str, Any]:
    """The card of a policy, by its name with or without the prefix.

    Raises:
        UserError: there is none of that name.
    """
    content: dict[str, Any] = json.loads(
        (folder_of(PREFIX + name.removeprefix(PREFIX)) / CARD).read_text(encoding="utf-8")
    )
    return content
