"""A sample of a problem's workflows and their arrival rate, drawn apart from every episode."""

from __future__ import annotations

from typing import NamedTuple

from rllib_scale.config import EnvConfig, EpisodeConfig
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.traces import part_of_trace

SAMPLE_SEED = 2**62 + 13
"""Seed of the sample, with episode 0; evaluations use small seeds."""


class WorkflowSample(NamedTuple):
    """Workflows of a problem, and the mean rate at which such workflows arrive [1/s]."""

    workload: Workload
    rate: float

    def offered_load(self, env: EnvConfig) -> float:
        """Work that arrives over the capacity of all servers."""
        return self.rate * self.workload.mean_gflop / env.cluster.total_gflops


def sample_workflows(env: EnvConfig, count: int) -> WorkflowSample:
    """Draw about `count` workflows of a problem; of a trace that is replayed as recorded, take all.

    Of a trace it is what the problem plays; in place of the test part the sessions to train on, so that nothing that is
    derived from the sample depends on sessions of a test.

    Raises:
        UserError: the trace or the table is missing, has changed, or has tasks that fit no server.
    """
    if env.recording is not None and env.recording.part == "test":
        env = env.with_part("train")
    trace = env.workload.trace
    if trace is not None and trace.arrivals == "recorded":
        recorded = part_of_trace(env, trace)
        lasts = float(recorded.arrival_s[-1] - recorded.arrival_s[0])
        # A replay has a mean gap between the last and the first; a single workflow arrives once per episode.
        lasts *= recorded.num_workflows / max(1, recorded.num_workflows - 1)
        return WorkflowSample(recorded, recorded.num_workflows / (lasts or env.episode.horizon_s))
    one_a_second = {"offered_load": None, "rate_wave": None, "arrival_rate_per_server": 1 / env.cluster.num_servers}
    drawn = generate(
        env.model_copy(
            update={
                "workload": env.workload.model_copy(update=one_a_second),
                "episode": EpisodeConfig(horizon_s=float(count), first_arrival="at-zero"),
            }
        ),
        SAMPLE_SEED,
        0,
    )
    return WorkflowSample(drawn, env.arrival_rate_of(drawn.mean_gflop))
