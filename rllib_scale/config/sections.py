"""The sections of a training in YAML, and the settings of them that each method uses.

A method has one algorithm and one network, each with a model of its settings (`algorithms`, `network`). The fields of
the two are what the method uses, and `places` maps each field to its section in YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from rllib_scale.config.algorithms import AnyAlgorithm, CMAConfig, ReinforceConfig
from rllib_scale.config.base import Model, Seed
from rllib_scale.config.methods import METHODS
from rllib_scale.config.network import AnyNetwork, DecimaConfig, DeepRMConfig, NetworkConfig
from rllib_scale.config.problem import EnvConfig
from rllib_scale.config.rounds import REPLACED
from rllib_scale.config.training import (
    DQNConfig,
    ImitationConfig,
    InEpochs,
    SACConfig,
    SRRConfig,
    StopConfig,
    TrainingConfig,
    TrialResources,
)

Kind = Any
"""Model of an algorithm or a network."""
MODELS: dict[str, Kind] = {
    get_args(kind.model_fields["name"].annotation)[0]: kind
    for union in (AnyAlgorithm, AnyNetwork)
    for kind in get_args(get_args(union)[0])
}
"""Name of an algorithm or a network -> its model."""
UNUSED = object()
"""The used part of a value that is not used."""


class Sections(Model):
    """Sections that all trainings of a sweep share, and that a grid or a search may vary."""

    env: EnvConfig = EnvConfig()
    training: TrainingConfig = TrainingConfig()
    dqn: DQNConfig = DQNConfig()
    sac: SACConfig = SACConfig()
    cma: CMAConfig = CMAConfig()
    reinforce: ReinforceConfig = ReinforceConfig()
    decima: DecimaConfig = DecimaConfig()
    deeprm: DeepRMConfig = DeepRMConfig()
    stop: StopConfig = StopConfig()
    srr: SRRConfig = SRRConfig()
    network: NetworkConfig = NetworkConfig()
    imitation: ImitationConfig = ImitationConfig()


class TrialSections(Sections):
    """One training in the form of sections."""

    method: str = "scale"
    seed: Seed = 42
    resources: TrialResources = TrialResources()
    population: str = ""


def parts_of(method: str, imitates: bool, own_encoder: bool) -> tuple[str, str | None]:
    """Names of a method's algorithm and network; arguments as of `used_settings`."""
    spec = METHODS[method]
    algorithm = "imitation" if imitates and spec.algorithm == "ppo" else spec.algorithm
    return algorithm, "custom" if own_encoder and spec.takes_encoder else spec.network


@cache
def places(kind: Kind) -> dict[str, str]:
    """Field of an algorithm or a network -> its section in YAML."""
    found: dict[str, str] = {}
    for section in kind.sections:  # the last one wins: `dqn.learning_rate`, not `training.learning_rate`
        fields = TrialSections.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
        found |= {field: section for field in kind.model_fields if field in fields}
    return found


@dataclass(frozen=True)
class UsedSettings:
    """The settings that one method uses.

    Attributes:
        paths: config paths of settings and sections.
        exceptions: config paths below `paths` that are not used.
    """

    paths: tuple[str, ...]
    exceptions: tuple[str, ...] = ()

    def __contains__(self, path: str) -> bool:
        return is_below(path, self.paths) and not is_below(path, self.exceptions)

    def part(self, path: str, value: Any) -> Any:
        """The used part of a value at a path: the value, a mapping with fewer keys, or UNUSED."""
        if path in self and not any(is_below(exception, (path,)) for exception in self.exceptions):
            return value
        if not (isinstance(value, Mapping) and value):
            resets = value == {} and any(is_below(used, (path,)) for used in self.paths)  # to defaults
            return value if resets or path in self else UNUSED
        parts = {key: self.part(f"{path}.{key}", item) for key, item in value.items()}
        return {key: part for key, part in parts.items() if part is not UNUSED} or UNUSED


@cache
def used_settings(method: str, imitates: bool = False, own_encoder: bool = False) -> UsedSettings:
    """The settings that a method uses.

    Args:
        method: a name in METHODS.
        imitates: whether `imitation.expert` is set.
        own_encoder: whether `network.encoder` is set.
    """
    spec, parts = METHODS[method], [MODELS[name] for name in parts_of(method, imitates, own_encoder) if name]
    paths = ["env", "stop" if issubclass(parts[0], InEpochs) else "stop.epochs"]
    paths += [f"{section}.{field}" for part in parts for field, section in places(part).items()]
    # Settings that choose the algorithm or the network.
    paths += [
        *(("imitation.expert",) if spec.algorithm == "ppo" else ()),
        *(("network.encoder",) if spec.takes_encoder else ()),
        *(("srr",) if spec.srr else ()),
    ]
    return UsedSettings(tuple(paths), tuple(REPLACED) if spec.rounds else getattr(parts[0], "unused_of_env", ()))


def is_below(path: str, sections: tuple[str, ...]) -> bool:
    """Whether a config path equals one of `sections` or is below one."""
    return any(path == section or path.startswith(f"{section}.") for section in sections)
