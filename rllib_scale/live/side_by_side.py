"""Live and simulated runs in one results folder, as report and dashboard read it."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from rllib_scale.bounds.lower_bounds import lower_bounds
from rllib_scale.config import EnvConfig
from rllib_scale.config.identity import content_id, described, protocol_of, world_of
from rllib_scale.config.schedulers import observability, parse_scheduler
from rllib_scale.errors import UserError
from rllib_scale.evaluation.workflows import workflow_metrics
from rllib_scale.live.execute import LiveRun
from rllib_scale.loading import resolve
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.description import scheduler_row
from rllib_scale.results import dataset, runs, tables
from rllib_scale.results.columns import LIVE, OBSERVABILITY
from rllib_scale.results.runs import Run, Side
from rllib_scale.results.storage import Location
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.virtual_time import VirtualTime
from rllib_scale.workloads.model import Workload


def simulated(player: Policy, env: EnvConfig, workload: Workload, seed: int = 0, horizon_s: float = math.inf) -> Engine:
    """The workload in the simulator, decided in rounds as on a live cluster; returns the engine at the end."""
    engine = EventEngine(player.problem(env))
    player.reset([(seed, 0)])
    engine.play(player, VirtualTime(engine, workload, horizon_s=horizon_s))
    return engine


def open_results(folder: Path, workload: Workload, name: str) -> None:
    """Make a results folder for runs of one workload, or open it again.

    Raises:
        UserError: it is of another workload, or holds something else.
    """
    content = _content_of(workload)
    manifest = tables.read_manifest(folder)
    if manifest is not None and manifest["config_hash"] != content:
        raise UserError(f"{folder}: holds runs of another workload; choose another --results")
    tables.open_folder(folder, f"live-{name}", {"workload": name}, content)


def _content_of(workload: Workload) -> str:
    """Digest of a workload."""
    return hashlib.sha256(json.dumps(workload.to_dict(), sort_keys=True).encode()).hexdigest()[:12]


def add_rows(folder: Path, policy: Policy, scenario: str, seed: int, live: LiveRun, engine: Engine) -> None:
    """Add a live run, and the same in the simulator, to the episodes and the runs of a results folder.

    Args:
        folder: made by `open_results`.
        policy: what decided, named as it was given.
        scenario: name of the problem.
        seed: of the scheduler's draws.
        live: the run.
        engine: the simulator after the same workload.
    """
    env, given = live.env, {"given_workload": _content_of(live.workload)}
    problem, protocol = content_id(world_of(env) | given), content_id(protocol_of(env))
    simulated = scheduler_row(resolve(parse_scheduler(policy.name)))
    lived = {"scheduler": content_id([simulated["scheduler"], LIVE]), "name": simulated["name"] + LIVE}
    rows, sides = [], []
    for scheduler, metrics, schedule, end_s in (
        (lived["scheduler"], live.metrics, live.schedule, live.end_s),
        (simulated["scheduler"], engine.metrics(), engine.schedule(), float(engine.clock[0])),
    ):
        ended = env.model_copy(update={"episode": env.episode.model_copy(update={"horizon_s": max(end_s, 1e-9)})})
        identity: dict[str, Any] = {
            **{"scheduler": scheduler, "problem": problem, "protocol": protocol, "decision": "argmax"},
            **{"eval_seed": seed, "episode": 0, OBSERVABILITY: observability(policy.sees, env.information)},
        }
        of_workflows = workflow_metrics(ended, live.workload, schedule, end_s)
        rows.append(identity | metrics | of_workflows | lower_bounds(ended, live.workload))
        sides.append(Side.of(identity, schedule, end_s))
    run = Run(
        scheduler=policy.name,
        scenario=scenario,
        cluster=env.cluster,
        time_scale=live.time_scale,
        overheads_s=live.overheads_s.tolist(),
        failed={number: str(error) or type(error).__name__ for number, error in live.failed.items()},
        guard=live.guard,
        live=sides[0],
        simulated=sides[1],
    )
    runs.write(Location(str(folder)), run)  # first: rows without it would be of two schedulers
    dataset.append(
        folder,
        schedulers=[simulated, simulated | lived],
        problems=[{"problem": problem, "scenario": scenario, **described(world_of(env, defaults=True) | given)}],
        protocols=[{"protocol": protocol, **described(protocol_of(env, defaults=True))}],
        episodes=rows,
    )
