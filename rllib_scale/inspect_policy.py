"""One evaluation episode played again, decision by decision: what was chosen, what came of it, what the network saw.

An episode is decided by (seed, episode), the problem and the scheduler, so that it need not be stored: it is played
again from the policy's own files.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config import SCENARIOS, DecisionMode, EnvConfig, MaskMode, scenario
from rllib_scale.configio import build_model, parse_override, set_path
from rllib_scale.errors import UserError
from rllib_scale.experiments.evaluate import Player, play
from rllib_scale.experiments.plan import TRAIN_SCENARIO
from rllib_scale.experiments.results import read_manifest
from rllib_scale.schedulers.base import Scheduler
from rllib_scale.schedulers.heuristics import SCHEDULERS, make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.system import System
from rllib_scale.simulator.workflow import Workload
from rllib_scale.simulator.workload import generate

STARTED = "started"
NO_FIT = "server too small or empty"
AVOIDABLE = "server busy, an idle one fits"
UNAVOIDABLE = "server busy, no idle one fits"
DECISION = np.dtype(
    [
        ("clock_s", "f8"),
        ("workflow", "i8"),  # of the task that the decision is about, with the next one
        ("task", "i8"),
        ("server", "i8"),
        ("outcome", "U40"),  # STARTED, or the cause of an invalid decision
    ]
)


@dataclass(frozen=True)
class EpisodeKey:
    """Which row of episodes.parquet is to be played again; values as in its columns of the same names."""

    cell: str
    method: str
    kind: str
    train_seed: int | None
    overrides: str
    scenario: str
    test_servers: int
    mask: MaskMode
    decision: DecisionMode
    eval_seed: int
    episode: int


@dataclass(frozen=True, eq=False)
class Replay:
    """An episode that was played again. Shapes: K decisions, N server slots.

    Attributes:
        env: the problem.
        workload: the workflows that arrived, and maybe some that would have arrived after the end.
        schedule: every started task, dtype `rllib_scale.simulator.engine.SCHEDULE`.
        end_s: the clock at the end.
        metrics: as in episodes.parquet.
        decisions: (K,) DECISION. A dispatcher decides on many tasks at once: there its starts stand for decisions.
        observations: (K, 5 + 5N) what each decision was taken on; none of a dispatcher.
        scheduler: what played.
    """

    env: EnvConfig
    workload: Workload
    schedule: NDArray[Any]
    end_s: float
    metrics: dict[str, float | int]
    decisions: NDArray[Any]
    observations: NDArray[np.float32] | None
    scheduler: Player


@dataclass(frozen=True, eq=False)
class DecisionView:
    """What a trained policy made of one decision.

    Attributes:
        probabilities: (N,) by which it would draw a server; argmax takes the largest.
        attention: (L, H, N) weights of each block and head over the servers; none where the network has no
            cross-attention.
    """

    probabilities: NDArray[np.float64]
    attention: NDArray[np.float64] | None


def replay(folder: Path, key: EpisodeKey) -> Replay:
    """Play an evaluation episode of a results folder again.

    Raises:
        UserError: the policy is not there or damaged, or the problem is not known any more.
    """
    env = problem(folder, key)
    recorder = _Recorder(_scheduler(folder, key, env))
    engine = play(recorder.player, env, key.eval_seed, [key.episode], watch=recorder.watch)
    schedule = engine.schedule()
    decisions, observations = recorder.decisions(schedule)
    return Replay(
        env=env,
        workload=generate(env, key.eval_seed, key.episode),
        schedule=schedule,
        end_s=float(engine.clock[0]),
        metrics=engine.metrics(),
        decisions=decisions,
        observations=observations,
        scheduler=recorder.scheduler,
    )


def look(played: Replay, decision: int) -> DecisionView | None:
    """Attention and probabilities at a decision, counted from 0; none of a heuristic, which has no network."""
    policy = played.scheduler
    if played.observations is None or policy.name in SCHEDULERS:
        return None
    import torch

    from rllib_scale.models.attention import attention
    from rllib_scale.models.cross_attention import CrossAttentionPointer
    from rllib_scale.policy import TrainedPolicy

    assert isinstance(policy, TrainedPolicy)
    network = copy.deepcopy(policy.network)
    network.inputs.mask_infeasible = policy.mask == "feasible"
    observation = torch.from_numpy(played.observations[decision])
    if isinstance(network, CrossAttentionPointer):
        seen = attention(network, observation)
        return DecisionView(seen.probabilities.double().numpy(), seen.weights.double().numpy())
    with torch.no_grad():
        probabilities = torch.softmax(network(observation[None])[1][0], -1)
    return DecisionView(probabilities.double().numpy(), None)


def problem(folder: Path, key: EpisodeKey) -> EnvConfig:
    """The problem of an evaluation row.

    Raises:
        UserError: the scenario is unknown, or the sweep's config cannot be read by this version.
    """
    if key.scenario == TRAIN_SCENARIO:
        base = _trained_on(folder, key)
    elif key.scenario in SCENARIOS:
        base = scenario(key.scenario)
    else:
        raise UserError(f"scenario {key.scenario!r}: unknown to this version; valid: {', '.join(SCENARIOS)}")
    return base.at_scale(key.test_servers).with_mask(key.mask)


def policy_folder(folder: Path, key: EpisodeKey) -> Path:
    """Where the policy of a row stands: in the folder itself, or in a part of a reproduction.

    Raises:
        UserError: nowhere.
    """
    name = f"{key.method}-s{key.train_seed}-{key.cell}"
    for home in (folder, *sorted((folder / "parts").glob("*"))):
        if (home / "policies" / name).is_dir():
            return home / "policies" / name
    raise UserError(f"{folder / 'policies' / name}: no such policy folder, so its episodes cannot be played again")


def _scheduler(folder: Path, key: EpisodeKey, env: EnvConfig) -> Player:
    if key.kind == "heuristic":
        return make_scheduler(key.method, env.observation, key.mask, key.decision)
    from rllib_scale.policy import load_policy

    return load_policy(policy_folder(folder, key), key.mask, key.decision)


def _trained_on(folder: Path, key: EpisodeKey) -> EnvConfig:
    """The problem that the cell was trained on; a heuristic's cell names what it differs in from the sweep's."""
    if key.kind == "learned":
        from rllib_scale.policy import load_policy

        return load_policy(policy_folder(folder, key)).trial.env
    if key.method not in SCHEDULERS:
        raise UserError(f"scheduler {key.method!r}: unknown to this version; valid: {', '.join(SCHEDULERS)}")
    manifest = read_manifest(folder) or {}
    env = manifest.get("config", {}).get("env")
    if not isinstance(env, dict):
        raise UserError(f"{folder / 'manifest.json'}: does not say what problem was trained on")
    data = {"env": copy.deepcopy(env)}
    for override in filter(None, key.overrides.split("; ")):
        set_path(data, *parse_override(override))
    return build_model(EnvConfig, data["env"], f"{folder / 'manifest.json'}: env")


@dataclass
class _Recorder:
    """Stands between engine and scheduler and notes every decision."""

    scheduler: Player
    _seen: list[tuple[Any, ...]] = field(default_factory=list)
    _observations: list[NDArray[np.float32]] = field(default_factory=list)
    _engine: Engine | None = None

    @property
    def player(self) -> Any:
        """What `play` shall ask: this, or a dispatcher itself, whose starts the schedule holds."""
        return self if isinstance(self.scheduler, Scheduler) else self.scheduler

    def watch(self, engine: Engine) -> None:
        """Is shown the engine before each decision."""
        self._engine = engine

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `Scheduler.reset`."""
        self.scheduler.reset(seeds)

    def __call__(self, observation: NDArray[np.float32]) -> NDArray[np.int64]:
        """See `Scheduler.__call__`."""
        assert isinstance(self.scheduler, Scheduler)
        assert self._engine is not None
        self._observations.append(observation[0].copy())
        servers = self.scheduler(observation)
        system = self._engine.system(0)
        task, server = system.ready[0], int(servers[0])
        outcome = _outcome(system, float(task["memory_gb"]), server)
        self._seen.append((system.clock_s, task["workflow"], task["task"], server, outcome))
        return servers

    def decisions(self, schedule: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        """The decisions (K,) and their observations."""
        if isinstance(self.scheduler, Scheduler):
            observations = np.array(self._observations, dtype=np.float32)
            return np.array(self._seen, dtype=DECISION), observations
        starts = np.empty(len(schedule), dtype=DECISION)
        starts["clock_s"], starts["outcome"] = schedule["start_s"], STARTED
        for name in ("workflow", "task", "server"):
            starts[name] = schedule[name]
        return starts, None


def _outcome(system: System, memory_gb: float, server: int) -> str:
    """What becomes of the decision for `server`, as the engine counts it."""
    fits = (system.capacity_gflops > 0) & (memory_gb <= system.memory_gb)
    if not fits[server]:
        return NO_FIT
    if system.idle[server]:
        return STARTED
    return AVOIDABLE if (fits & system.idle).any() else UNAVOIDABLE
