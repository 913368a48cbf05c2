"""Trained policies that a config names, held to their content."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationInfo

from rllib_scale import zoo
from rllib_scale.config.pinned import MARK, check_unchanged, digest_of, folders_of, pin, split
from rllib_scale.errors import UserError


def names_policy(value: str) -> bool:
    """Whether a config's text, pinned or not, names a policy: `zoo:NAME`, or a folder, whose path has a slash."""
    return zoo.is_named(value) or "/" in value.partition(":")[0]


def policy_label(pinned: str) -> str:
    """How tables name a policy that `pin_policy` named: `zoo:NAME`, or the name of its folder."""
    place = split(pinned)[0]
    return place if zoo.is_named(place) else Path(place).parent.name


def pin_policy(value: str, info: ValidationInfo) -> str:
    """The description in a policy folder, pinned: it holds the digest of the weights, so its own is that of both.

    One of the zoo keeps its name, for the package may lie elsewhere on another node.
    """
    if zoo.is_named(value) and MARK not in value:
        try:
            return f"{value}{MARK}{digest_of(zoo.folder_of(value) / 'policy.json')}"
        except UserError as error:
            raise ValueError(str(error)) from None
    return pin(value if MARK in value or value.endswith(".json") else f"{value}/policy.json", folders_of(info))


def policy_folder(pinned: str, key: str) -> Path:
    """The folder of a policy that `pin_policy` named; `key` is where the config names it.

    Raises:
        UserError: it is missing or has changed.
    """
    place, content = split(pinned)
    path = zoo.folder_of(place) / "policy.json" if zoo.is_named(place) else Path(place)
    return check_unchanged(path, content, key).parent
