"""Trained policies that a config names, held to their content."""

from __future__ import annotations

from os.path import isfile  # False where a name is too long to be a file's
from pathlib import Path

from pydantic import ValidationInfo

from rllib_scale import zoo
from rllib_scale.config.heuristics import HEURISTICS, pinned_heuristic
from rllib_scale.config.pinned import MARK, check_unchanged, digest_of, folders_of, pin, split
from rllib_scale.errors import UserError
from rllib_scale.plugins import unpinned


def names_policy(value: str) -> bool:
    """Whether a config's text, pinned or not, names a policy: `zoo:NAME`, or a folder, whose path has a slash."""
    return zoo.is_named(value) or "/" in value.partition(":")[0]


def player_label(pinned: str) -> str:
    """How tables name what `pin_scheduler` gave: a rule as it is written, `zoo:NAME`, or the name of the folder."""
    if not names_policy(pinned):
        return unpinned(pinned)
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


def pin_scheduler(value: str, info: ValidationInfo) -> str:
    """A rule or a policy, pinned. As on the command line, a folder that is there is a policy, unless a rule of ours has
    its name.

    Raises:
        ValueError: it is neither.
    """
    there = value not in HEURISTICS and any(isfile(folder / value / "policy.json") for folder in folders_of(info))
    if there or names_policy(value):
        return pin_policy(value, info)
    try:
        return pinned_heuristic(value, bool(info.context and info.context.get("foreign")))
    except UserError as error:
        raise ValueError(f"{error}; or the folder of a policy; or zoo:NAME") from None


def policy_folder(pinned: str, key: str) -> Path:
    """The folder of a policy that `pin_policy` named; `key` is where the config names it.

    Raises:
        UserError: it is missing or has changed.
    """
    place, content = split(pinned)
    path = zoo.folder_of(place) / "policy.json" if zoo.is_named(place) else Path(place)
    return check_unchanged(path, content, key).parent
