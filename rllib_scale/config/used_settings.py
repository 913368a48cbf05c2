"""Which settings of a training each method uses: the only table of it.

A sweep refuses a setting that none of its methods uses (`SweepConfig`). A method that does not use a setting of the
grid or of the search trains once, without it in label and identity (`expand`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_scale.config.base import settings_of
from rllib_scale.config.methods import METHODS
from rllib_scale.config.rounds import REPLACED, REPLACED_VALUES
from rllib_scale.errors import nearest, offered

OFF_POLICY = (
    *(f"training.{name}" for name in ("epochs", "gamma", "steps_per_epoch", "num_envs")),
    *(f"training.{name}" for name in ("reward", "reward_unit", "problems")),
    "stop",
    "resources.sampler",
    "resources.learner",
)
OF_ALGORITHM: dict[str, tuple[str, ...]] = {
    "ppo": ("training", "stop", "imitation.expert", "network.critic_hidden", "resources"),
    "bc": (
        *(f"training.{name}" for name in ("epochs", "learning_rate", "final_learning_rate", "gradient_clip")),
        *(f"training.{name}" for name in ("steps_per_epoch", "minibatch_size", "adam_epsilon")),
        *(f"training.{name}" for name in ("initial_policy", "problems")),
        "stop",
        "imitation",
        "resources.learner",
        "resources.compile",
    ),
    "dqn": (*OFF_POLICY, "dqn", "network.critic_hidden"),
    "sac": (*OFF_POLICY, "sac"),
    "cma-es": ("training.problems", "stop.epochs", "cma"),
    "reinforce": ("training.problems", "stop.epochs", "reinforce"),
}
"""Settings, and sections whose settings are all used, beside `env`."""
ANY_NETWORK = ("network.embedding_dim", "network.standardise")
ATTENTION = (*ANY_NETWORK, "network.num_heads", "network.num_blocks", "network.encoder")
OWN_ENCODER = (*ANY_NETWORK, "network.encoder")
OF_NETWORK: dict[str | None, tuple[str, ...]] = {
    "cross-attention": (*ATTENTION, "network.skip", "network.skip_sharpness"),
    "deep-sets": (*ANY_NETWORK, "network.encoder"),
    "set-transformer": (*ATTENTION, "network.induced_points"),
    "attention-model": (*ATTENTION, "network.logit_clip"),
    "mlp": (*ANY_NETWORK, "network.mlp_hidden"),
    "graph": ("decima",),
    "image": ("deeprm",),
    None: (),
}
UNUSED_OF_ENV: dict[str, tuple[str, ...]] = {
    "cma-es": ("env.observation",),
    "reinforce": ("env.observation.feature_set",),
}
"""Settings of `env` that decide neither a training by the algorithm nor what its policy is evaluated on."""

UNUSED = object()
"""What is left of a value that is not used at all."""


@dataclass(frozen=True)
class UsedSettings:
    """The settings that one method uses.

    Attributes:
        sections: config paths; what is below one is used, too.
        exceptions: config paths below one of `sections` that are not used.
    """

    sections: tuple[str, ...]
    exceptions: tuple[str, ...] = ()

    def __contains__(self, path: str) -> bool:
        return _is_below(path, self.sections) and not _is_below(path, self.exceptions)

    def part(self, path: str, value: Any) -> Any:
        """What of a value at a path is used: the value, a mapping with fewer keys, or UNUSED."""
        if path in self and not any(_is_below(exception, (path,)) for exception in self.exceptions):
            return value
        if not (isinstance(value, Mapping) and value):
            return value if path in self else UNUSED
        parts = {key: self.part(f"{path}.{key}", item) for key, item in value.items()}
        return {key: part for key, part in parts.items() if part is not UNUSED} or UNUSED


def used_settings(method: str, imitates: bool = False, own_encoder: bool = False) -> UsedSettings:
    """The settings that a method uses.

    Args:
        method: a name in METHODS.
        imitates: whether `imitation.expert` is set.
        own_encoder: whether `network.encoder` is set.
    """
    spec = METHODS[method]
    ppo = spec.algorithm == "ppo"
    algorithm = "bc" if ppo and imitates else spec.algorithm
    network = OWN_ENCODER if ppo and spec.any_scale and own_encoder else OF_NETWORK[spec.network]
    sections = ("env", *OF_ALGORITHM[algorithm], *network, *(("srr",) if spec.srr else ()))
    return UsedSettings(sections, tuple(REPLACED) if spec.rounds else UNUSED_OF_ENV.get(algorithm, ()))


def refuse_unused(
    methods: Sequence[str], varied: Mapping[str, Sequence[Any]], base: Mapping[str, Any], prefixes: Mapping[str, str]
) -> None:
    """Refuse settings that none of the methods uses, and varied values in whose place a method takes its own.

    Args:
        methods: of a sweep.
        varied: config path -> values of a grid or of a search.
        base: sections of the sweep but `env`, without what stands at its default.
        prefixes: of the keys of `varied` in messages.

    Raises:
        ValueError: naming the setting and what would be valid.
    """
    expert, encoder = (_is_set(path, varied, base) for path in ("imitation.expert", "network.encoder"))
    used = {method: [used_settings(method, *how) for how in itertools.product(expert, encoder)] for method in methods}
    found = [(f"{prefixes[path]}{key}", key) for path, key, _ in _each(varied)]
    for section, values in base.items():
        found += [(key, key) for key, _ in settings_of(section, values)] if values else []
    for shown, key in found:
        if not methods and _is_below(key, ("env",)):  # the problems of a grid that rules alone play
            continue
        if not any(key in how for hows in used.values() for how in hows):
            raise ValueError(f"{shown}: {_nobody(methods, True in expert)} uses it; valid: {_valid(key, used)}")
    for path, key, value in _each(varied):
        for method, hows in used.items():
            own = METHODS[method].rounds and key in REPLACED_VALUES and REPLACED_VALUES[key] == value
            if own and any(key in how for how in hows):
                raise ValueError(
                    f"{prefixes[path]}{key} {'null' if value is None else value}: method {method} takes a value of its "
                    "own in place of this one; leave it out, or give the method a sweep of its own"
                )


def _each(varied: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str, Any]]:
    for path, values in varied.items():
        for value in values:
            for key, setting in settings_of(path, value):
                yield path, key, setting


def _is_set(path: str, varied: Mapping[str, Sequence[Any]], base: Mapping[str, Any]) -> list[bool]:
    """Whether a setting that is unset by default is set in some trainings, and whether it is not in some."""
    section, name = path.split(".")
    values = [*varied.get(path, ()), *(value.get(name) for value in varied.get(section, ()) if isinstance(value, dict))]
    return sorted({value is not None for value in values or [base.get(section, {}).get(name)]})


def _nobody(methods: Sequence[str], imitates: bool) -> str:
    if not methods:
        return "the sweep trains nothing, so that nobody"
    return f"no method of the sweep ({', '.join(methods)}{' with imitation.expert' if imitates else ''})"


def _valid(key: str, used: Mapping[str, Iterable[UsedSettings]]) -> str:
    """Who uses a setting, and what of its section is used in its place."""
    users = [method for method in METHODS if key in used_settings(method)]
    section, _, name = key.partition(".")
    sections = {path for hows in used.values() for how in hows for path in how.sections}
    beside = sorted(path.removeprefix(f"{section}.") for path in sections if path.startswith(f"{section}."))
    parts = [f"a method that does, as {', '.join(users[:3])}"] if users else []
    if not users and any(key in used_settings(method, imitates=True) for method in METHODS):
        parts = ["with imitation.expert"]
    parts += [f"of {section} its {offered(beside, nearest(name, beside))}"] if beside else []
    return "; ".join(parts or sorted({path.split(".")[0] for path in sections}))


def _is_below(path: str, sections: tuple[str, ...]) -> bool:
    return any(path == section or path.startswith(f"{section}.") for section in sections)
