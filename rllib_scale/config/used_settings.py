"""Refusals of settings that no method of a sweep uses, or that a training must not leave out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rllib_scale.config.base import settings_of
from rllib_scale.config.methods import METHODS
from rllib_scale.config.rounds import REPLACED_VALUES
from rllib_scale.config.sections import TrialSections, UsedSettings, is_below, used_settings
from rllib_scale.errors import nearest, offered

NEVER_LEFT_OUT = (
    "training.reward",
    "training.time_unit_s",
    "training.initial_policy",
    "training.reference_kl_coefficient",
    "imitation.expert",
    "network.encoder",
    "network.skip",
    "stop.env_steps",
)
"""Settings that decide what is trained. A training whose method does not use one of them is refused, even if other
methods of the sweep use it; other settings of other methods are left out."""
NOT_SET = (None, 0.0, "none")


def refuse_left_out(sections: TrialSections, used: UsedSettings) -> None:
    """Refuse a training with a setting of NEVER_LEFT_OUT that its method does not use.

    Raises:
        ValueError: with the setting and what is valid.
    """
    method, imitates = sections.method, sections.imitation.expert is not None
    for key in NEVER_LEFT_OUT:
        section, name = key.split(".")
        value = getattr(getattr(sections, section), name)
        if value not in NOT_SET and key not in used and not (imitates and key == "training.time_unit_s"):
            who = f"{method}{' with imitation.expert' if imitates else ''}"
            raise ValueError(f"{key} {value}: method {who} does not use it; valid: {_valid(key, {method: [used]})}")


def refuse_unused(
    methods: Sequence[str],
    grid: Mapping[str, Sequence[Any]],
    space: Mapping[str, Sequence[Any]],
    sections: Mapping[str, Any],
) -> None:
    """Refuse settings that no method uses, and values that a method replaces by its own.

    Args:
        methods: methods of a sweep.
        grid: config path -> values.
        space: config path -> values of a search.
        sections: sections of the sweep as written in YAML.

    Raises:
        ValueError: with the setting and what is valid.
    """
    expert, encoder = (is_set(path, {**grid, **space}, sections) for path in ("imitation.expert", "network.encoder"))
    used = {method: [used_settings(method, *how) for how in itertools.product(expert, encoder)] for method in methods}
    written = {section: (value,) for section, value in sections.items()}
    for prefix, values in (("grid.", grid), ("search.space.", space), ("", written)):
        for key, value in _each(values):
            if (
                value == {} or (value is None and "." not in key) or (not methods and is_below(key, ("env",)))
            ):  # problems that rules play
                continue
            users = [method for method, hows in used.items() if any(key in how for how in hows)]
            if not users:
                nobody = _nobody(methods, True in expert)
                raise ValueError(f"{prefix}{key}: {nobody} uses it; valid: {_valid(key, used)}")
            own = [m for m in users if METHODS[m].rounds and key in REPLACED_VALUES and REPLACED_VALUES[key] == value]
            if own:
                raise ValueError(
                    f"{prefix}{key} {'null' if value is None else value}: method {own[0]} takes a value of its own in "
                    "place of this one; leave it out, or give the method a sweep of its own"
                )


def _each(values: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    return (each for path, items in values.items() for item in items for each in settings_of(path, item))


def is_set(path: str, varied: Mapping[str, Sequence[Any]], base: Mapping[str, Any]) -> list[bool]:
    """Whether a setting that is null by default is null in some trainings, and set in some."""
    section, name = path.split(".")
    values = [*varied.get(path, ()), *(value.get(name) for value in varied.get(section, ()) if isinstance(value, dict))]
    return sorted({value is not None for value in values or [base.get(section, {}).get(name)]})


def _nobody(methods: Sequence[str], imitates: bool) -> str:
    if not methods:
        return "the sweep trains nothing, so that no method"
    return f"no method of the sweep ({', '.join(methods)}{' with imitation.expert' if imitates else ''})"


def _valid(key: str, used: Mapping[str, Iterable[UsedSettings]]) -> str:
    """Methods that use a setting, and settings of its section that the methods in `used` use."""
    users = [method for method in METHODS if key in used_settings(method)]
    section, _, name = key.partition(".")
    sections = {path for hows in used.values() for how in hows for path in how.paths}
    beside = sorted(path.removeprefix(f"{section}.") for path in sections if path.startswith(f"{section}."))
    parts = [f"a method that does, as {', '.join(users[:3])}"] if users else []
    if not users and any(key in used_settings(method, imitates=True) for method in METHODS):
        parts = ["with imitation.expert"]
    parts += [f"of {section} its {offered(beside, nearest(name, beside))}"] if beside else []
    return "; ".join(parts or sorted({path.split(".")[0] for path in sections}))
