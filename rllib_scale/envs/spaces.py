"""Code shared by the environments: their config and options, checked; their spaces; their view of an engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.envs import CANDIDATES_ENV_ID, ENV_ID
from rllib_scale.errors import UserError
from rllib_scale.loading import env_from, named_scenario
from rllib_scale.observation.replicas import features_of
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload

NO_LIMIT = float(np.finfo(np.float32).max)
"""Upper bound of a feature without one: Gymnasium's checker does not accept inf."""
MAX_SEED = 2**63 - 1
RENDER_MODES = ["rgb_array"]


class FlatForm:
    """Observations and actions of `Scheduling-v0`: one task, a flat observation, a server.

    Mixed into the single environment and the vector environment.
    """

    config: EnvConfig
    _engine: Engine

    def _spaces(self) -> tuple[spaces.Space[Any], spaces.Discrete]:
        """Observation and action space of one environment."""
        return observation_space(self.config), spaces.Discrete(self.config.cluster.num_rows)

    def _shown(self) -> Any:
        """Observations (B, W), copied."""
        return self._engine.observation.copy()

    def _answers(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Answers to the engine for actions (B,)."""
        return actions


class CandidatesForm(FlatForm):
    """Observations and actions of `SchedulingCandidates-v0`: several tasks, a dictionary, any answer."""

    def _spaces(self) -> tuple[spaces.Space[Any], spaces.Discrete]:
        return dict_space(self.config), spaces.Discrete(num_actions(self.config))

    def _shown(self) -> dict[str, np.ndarray]:
        return split(self._engine.observation, self._engine.mask, self.config)

    def _answers(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        # An action without a possible answer now is a pass.
        engine = self._engine
        return np.where(engine.answerable(actions), actions, engine.candidates * engine.num_rows)


def check_render_mode(mode: str | None) -> None:
    """Refuse a render mode that there is not.

    Raises:
        UserError: naming it.
    """
    if mode not in (None, *RENDER_MODES):
        raise UserError(f"unknown render_mode {mode!r}; valid: {', '.join(RENDER_MODES)}")


def resolve_config(config: str | Mapping[str, Any] | EnvConfig | None) -> EnvConfig:
    """The config that a scenario name, a mapping of EnvConfig's keys, an EnvConfig or None (`paper`) means.

    Raises:
        UserError: unknown scenario, unknown key, impossible value or another type.
    """
    if isinstance(config, EnvConfig):
        return config
    if config is None:
        return EnvConfig()
    if isinstance(config, str):
        return named_scenario(config)
    if isinstance(config, Mapping):
        return env_from(dict(config), "config")
    raise UserError(f"config must be a scenario name, a mapping or an EnvConfig, not {type(config).__name__}")


def observation_space(config: EnvConfig) -> spaces.Box:
    """Box (W,) float32 of the config's feature set, the paper's has 5 + 5N; one candidate.

    Raises:
        UserError: the config's order is open, for which `SchedulingCandidates-v0` is made.
    """
    if config.decision.order == "open":
        raise UserError(f"decision.order open: {ENV_ID} offers one task at a time; use {CANDIDATES_ENV_ID}")
    low, high = (np.concatenate(parts) for parts in _bounds(config))
    return spaces.Box(low, high, dtype=np.float32)


def dict_space(config: EnvConfig) -> spaces.Dict:
    """`context` (C,), `tasks` (K, F), `servers` (N, G) float32 and `action_mask` (A,) int8.

    Raises:
        UserError: servers are replicas, for which `Scheduling-v0` is made.
    """
    if config.on_replicas:
        raise UserError(f"service replica: {CANDIDATES_ENV_ID} has no rounds of it; use {ENV_ID}")
    features, k, n = features_of(config), config.decision.offered, config.cluster.num_rows
    shapes = {"context": (-1,), "tasks": (k, features.task_dim), "servers": (n, features.server_dim)}
    boxes: dict[str, spaces.Space[Any]] = {
        name: spaces.Box(low.reshape(shape), high.reshape(shape), dtype=np.float32)
        for (name, shape), low, high in zip(shapes.items(), *_bounds(config), strict=True)
    }
    return spaces.Dict(boxes | {"action_mask": spaces.MultiBinary(num_actions(config))})


def num_actions(config: EnvConfig) -> int:
    """A: a server for each candidate, and a pass."""
    return config.decision.offered * config.cluster.num_rows + 1


def split(observation: np.ndarray, mask: np.ndarray, config: EnvConfig) -> dict[str, np.ndarray]:
    """Flat observations (..., W) and masks (..., A) as a batch of `dict_space`; copies."""
    features, k = features_of(config), config.decision.offered
    lead, first = observation.shape[:-1], features.head(k)
    return {
        "context": observation[..., : features.context_dim].copy(),
        "tasks": observation[..., features.context_dim : first].reshape(*lead, k, features.task_dim).copy(),
        "servers": observation[..., first:].reshape(*lead, -1, features.server_dim).copy(),
        "action_mask": mask.astype(np.int8),
    }


def _bounds(config: EnvConfig) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Lowest and highest values of context, tasks and servers. The same for every row: servers may come and go."""
    tiers, scales = config.cluster.tiers, config.observation
    memory = config.cluster.largest_memory_gb / scales.memory_max_gb
    task_high = {"memory": memory, "progress": 1.0, "rows": 1.0}
    server_high: dict[str, float] = (
        {}
        if config.on_replicas
        else {
            "capacity": max(tier.compute_gflops for tier in tiers) / scales.server_compute_max_gflops,
            "memory": memory,
            "power": max(tier.busy_power_w for tier in tiers),
            "free": memory,
            "load": 1.0,
            "busy": 1.0,
            "busy_shared": 1.0,
        }
    )
    features = features_of(config)
    context = [1.0 if feature.name.startswith("open") else NO_LIMIT for feature in features.context]
    task = [task_high.get(feature.name, NO_LIMIT) for feature in features.task] * config.decision.offered
    server = [server_high.get(feature.name, NO_LIMIT) for feature in features.server] * config.cluster.num_rows
    high = [np.array(part, dtype=np.float32) for part in (context, task, server)]
    low = [np.zeros_like(part) for part in high]
    of_tasks = (*features.context, *features.task * config.decision.offered)
    for i, feature in enumerate(of_tasks):
        if feature.name in ("scale", "demand"):  # logarithms, of what may be below 1
            part, at = (0, i) if i < len(low[0]) else (1, i - len(low[0]))
            low[part][at] = -NO_LIMIT
    for i, feature in enumerate(features.server * config.cluster.num_rows):
        if feature.name == "room":  # of a replica whose memory is taken
            low[2][i] = -1.0
    return low, high


def read_options(options: Mapping[str, Any] | None, config: EnvConfig) -> tuple[Workload | None, Any]:
    """The `workload` and the `episode` of a reset's options, None for what is not given.

    Raises:
        UserError: unknown option, or a workload that cannot be read or does not fit the cluster.
    """
    options = options or {}
    for key in options:
        if key not in ("workload", "episode"):
            raise UserError(f"unknown reset option {key!r}; valid: workload, episode")
    workload = options.get("workload")
    return None if workload is None else _read_workload(workload, config), options.get("episode")


def check_index(name: str, value: Any) -> int:
    """A seed or an episode, as the simulator takes it.

    Raises:
        UserError: it is not an integer, negative or too large.
    """
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or not 0 <= value <= MAX_SEED:
        raise UserError(f"{name} must be an integer from 0 to {MAX_SEED} (got {value!r})")
    return int(value)


def _read_workload(given: Workload | Mapping[str, Any] | str | os.PathLike[str], config: EnvConfig) -> Workload:
    source = "options['workload']"
    if isinstance(given, Workload):
        workload = given
    elif isinstance(given, Mapping):
        workload = Workload.from_dict(given, source)
    elif isinstance(given, (str, os.PathLike)):
        workload, source = Workload.load(given), str(given)
    else:
        raise UserError(f"{source} must be a Workload, its JSON content or a path, not {type(given).__name__}")
    if workload.num_workflows == 0:
        raise UserError(f"{source}: no workflows: at least one is needed")
    workload.check_fits(config.cluster, source)
    return workload
