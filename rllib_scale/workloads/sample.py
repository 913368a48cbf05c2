"""What workflows of a problem look like, and how many arrive: a sample of its distribution apart from every episode."""

from __future__ import annotations

from typing import NamedTuple

from rllib_scale.config import EnvConfig, EpisodeConfig
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from rllib_scale.workloads.traces import part_of_trace

SAMPLE_SEED = 2**62 + 13
"""Of the sample, with episode 0: no seed that anybody evaluates with."""


class WorkflowSample(NamedTuple):
    """About so many workflows as were asked for, and at what rate such workflows arrive in the problem."""

    workload: Workload
    rate: float
    """Workflows per second, the mean over time."""

    def offered_load(self, env: EnvConfig) -> float:
        """Work that arrives over the capacity of all rows."""
        return self.rate * mean_gflop(self.workload) / env.cluster.total_gflops


def mean_gflop(workload: Workload) -> float:
    """Compute demand of a workflow, the mean."""
    return float(workload.compute_gflop.sum()) / workload.num_workflows


def sample_workflows(env: EnvConfig, count: int) -> WorkflowSample:
    """Draw about `count` workflows of a problem; all of those that a trace replays as recorded.

    Of a trace it is the sessions to train on, whatever part the problem names: what is told from the sample was not
    told from the sessions of a test.

    Raises:
        UserError: the trace or the table is missing, has changed, or holds tasks that fit no server.
    """
    env, trace = env.with_part("train"), env.workload.trace
    if trace is not None and trace.arrivals == "recorded":
        recorded = part_of_trace(env, env.workload.trace or trace)
        lasts = float(recorded.arrival_s[-1] - recorded.arrival_s[0])
        # As they are played, a mean gap lies between the last and the first; alone, one arrives once an episode.
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
    return WorkflowSample(drawn, env.arrival_rate_of(mean_gflop(drawn)))
