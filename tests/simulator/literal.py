"""Tiny instances, played by engine and reference alike.

Unless a test says otherwise: servers of 1 GFLOPS, 10 GB and one place, tasks of 1 GB with output 0, a horizon of 20 s,
a clock step of 0.5 s, no latency, bandwidth 2 GB/s, and all that is not named as in the paper's mode. A flat action is
candidate x N + server; K x N passes; K x N + 1 + place stops what runs on the place.
"""

import numpy as np

from reference.changes import change_events
from reference.factors import estimate_factors, straggler_factors
from reference.simulator import OUTCOMES, ReferenceSimulator
from rllib_scale.config import (
    ClusterConfig,
    EnvConfig,
    EpisodeConfig,
    ObservationConfig,
    RewardConfig,
    TierConfig,
    WorkloadConfig,
)
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.model import Workload

REWARD = RewardConfig(
    time_weight=1,
    time_scale_s=2,
    communication_weight=0.5,
    communication_scale_s=2,
    energy_weight=0.25,
    energy_scale_j=100,
    invalid_reward=-0.125,
)
OBSERVATION = ObservationConfig(task_compute_max_gflop=8, server_compute_max_gflops=4, memory_max_gb=16)


def tier(name="one", count=1, compute=1.0, memory=10.0, **settings):
    return TierConfig(
        name=name,
        count=count,
        compute_gflops=compute,
        memory_gb=memory,
        **{"idle_power_w": 10, "busy_power_w": 50} | settings,
    )


def problem(*tiers, cluster=(), changes=(), decision=(), communication=(), information=(), reward=REWARD, **episode):
    network = {"bandwidth_gb_s": 2, "latency_s": 0} | dict(cluster)
    return EnvConfig(
        cluster=ClusterConfig(tiers=tiers, changes={"schedule": list(changes)}, **network),
        workload=WorkloadConfig(memory_gb={"mean": 1, "std": 0, "low": 1, "high": 1}),
        episode=EpisodeConfig(**{"horizon_s": 20, "clock_step_s": 0.5} | episode),
        decision=dict(decision),
        communication=dict(communication),
        information=dict(information),
        reward=reward,
        observation=OBSERVATION,
    )


def task(compute, memory=1.0, output=0.0, delay=None):
    given = {"compute_gflop": compute, "memory_gb": memory, "output_gb": output}
    return given if delay is None else given | {"delay_s": delay}


def workflow(arrival, *tasks, edges=()):
    return {"arrival_s": arrival, "tasks": list(tasks), "edges": [list(edge) for edge in edges]}


def workload(*workflows):
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 2, "workflows": list(workflows)}, "literal")


class EngineUnderTest:
    """The compiled engine, one episode."""

    def __init__(self, config, given):
        self.engine = Engine(config)
        self.engine.reset([0], [0], workload=given)

    def step(self, action):
        self.engine.step([action])

    def dispatch(self, answers):
        self.engine.dispatch(np.array([(0, *answer) for answer in answers], dtype=np.int64).reshape(-1, 4))

    def __getattr__(self, name):
        return getattr(self.engine, name)[0]  # of the only environment: clock, reward, elapsed, done

    outcome = property(lambda self: OUTCOMES[self.engine.outcome[0]])

    def offers(self):
        return [tuple(offer) for offer in self.engine.offers(0)]

    def fit(self):
        return self.engine.fit[0]

    def available(self):
        return self.engine.snapshot().available_at_s

    def observation(self):
        return self.engine.observation[0]

    def metrics(self):
        return self.engine.metrics()

    def schedule(self):
        return self.engine.schedule().tolist()


class ReferenceUnderTest(ReferenceSimulator):
    """The reference must give the same literal numbers, or it is no reference."""

    def __init__(self, config, given):
        changes = change_events(config.cluster, 0, 0, config.episode.horizon_s)
        factors = estimate_factors(config, 0, 0, given)
        slow = straggler_factors(config, 0, 0, given)
        super().__init__(config, given, open_ended=False, changes=changes, factors=factors, slowdowns=slow)


def play(sim, *actions):
    """Play the actions; the clock and the outcome after each."""
    seen = []
    for action in actions:
        assert not sim.done
        sim.step(action)
        seen.append((sim.clock, sim.outcome))
    return seen


def attempts(sim):
    """Workflow, task, server, ready, start, end, outcome of every attempt."""
    return [(*row[:3], *row[5:9]) for row in sim.schedule()]
