"""What a finished or running episode of the reference simulator is summed up to: its schedule and its metrics."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from reference.parts import Attempt, Server

if TYPE_CHECKING:
    from reference.simulator import ReferenceSimulator

# Workflow, task, server, tier, arrival, ready, start, end, outcome, transfer, work.
ScheduleRow = tuple[int, int, int, str, float, float, float, float, str, float, float]


def schedule_row(attempt: Attempt) -> ScheduleRow:
    task = attempt.task
    return (
        task.workflow.index,
        task.index,
        attempt.server.index,
        attempt.server.tier,
        task.workflow.arrival_s,
        attempt.ready_s,
        attempt.start_s,
        math.nan if attempt.end_s is None else attempt.end_s,
        attempt.outcome,
        attempt.transfer_s,
        math.nan if attempt.end_s is None else attempt.work_gflop,
    )


def metrics(sim: ReferenceSimulator) -> dict[str, float | int]:
    arrived = sim.arrived_tasks
    responses = [task.finish_s - task.workflow.arrival_s for task in arrived if task.completed]
    censored = [(t.finish_s if t.completed else sim.clock) - t.workflow.arrival_s for t in arrived]
    workflows = [workflow for workflow in sim.workflows if workflow.arrived]
    complete = [workflow for workflow in workflows if workflow.num_completed == len(workflow.tasks)]
    makespans = [max(task.finish_s for task in w.tasks) - w.arrival_s for w in complete]
    values = {
        "arrived": len(arrived),
        "completed": len(responses),
        "unfinished": len(arrived) - len(responses),
        "response_mean_s": _mean(responses),
        "response_median_s": statistics.median(responses) if responses else math.nan,
        "response_p95_s": float(np.percentile(responses, 95)) if responses else math.nan,
        "response_censored_s": _mean(censored),
        "jct_mean_s": _mean(makespans),
        "workflows_arrived": len(workflows),
        "workflows_completed": len(complete),
        "episode_return": sim.episode_return,
        "decisions": sim.decisions,
        "duration_s": sim.clock,
        "energy_j": sum(_energy(sim, server) for server in sim.servers if server.places),
        "utilisation": _utilisation(sim, sim.servers),
        "waits": sim.counts["waits"],
        "passed": sim.counts["passed"],
        "failed_attempts": sum(attempt.outcome == "failed" for attempt in sim.attempts),
        "preempted_attempts": 0,
        "lost_s": sim.lost_s,
    }
    values |= {f"invalid_{cause}": count for cause, count in sim.invalid.items()}
    for tier in sim.config.cluster.tiers:
        values[f"utilisation_{tier.name}"] = _utilisation(sim, [each for each in sim.servers if each.tier == tier.name])
    return values


def _energy(sim: ReferenceSimulator, server: Server) -> float:
    of_a_place = (server.busy_power_w - server.idle_power_w) / len(server.places)
    return server.idle_power_w * server.there_seconds(sim.clock) + of_a_place * server.busy_seconds(sim.clock)


def _utilisation(sim: ReferenceSimulator, servers: list[Server]) -> float:
    there = sum(len(server.places) * server.there_seconds(sim.clock) for server in servers)
    return sum(server.busy_seconds(sim.clock) for server in servers) / there if there else 0.0


def _mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else math.nan
