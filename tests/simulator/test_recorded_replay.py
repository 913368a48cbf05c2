"""A recorded session that is played alone on one reference server begins its calls when they were recorded to begin."""

import numpy as np
from hypothesis import given

from rllib_scale.config import ClusterConfig, EnvConfig, EpisodeConfig, TierConfig
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.registry import find_format
from seeds import examples
from workloads.trace_samples import copilot_sample, kv_sample, kv_sessions, write_lines


def replayed_starts(path, name="kv-cache-tester"):
    """When each task of the session in a file began, as the engine plays it."""
    chosen = find_format(name)
    mapping = chosen.mapping(unit="session", duration="recorded", reference_gflops=3.0)
    workload = chosen.read([path], mapping, Progress())
    server = TierConfig(name="reference", count=1, compute_gflops=3.0, memory_gb=1000.0, max_concurrent=16)
    env = EnvConfig(cluster=ClusterConfig(tiers=(server,)), episode=EpisodeConfig(horizon_s=1e6, mask="feasible"))
    engine = Engine(env, 1)
    engine.reset([0], [0], workload=workload)
    scheduler = make_scheduler("fastest-idle", env.observation, "feasible", "argmax")
    scheduler.reset([(0, 0)])
    while not engine.done.all():
        engine.step(scheduler(engine.observation, engine.fit))
    schedule = engine.schedule()
    assert sorted(schedule["task"]) == list(range(workload.num_tasks))
    return schedule["start_s"][np.argsort(schedule["task"])]


def recorded_starts(requests, began=0.0):
    """When each call of kv-cache-tester's requests began: those of an agent, then those of its subagents."""
    own = [began + entry["t"] for entry in requests if "in" in entry]
    agents = [entry for entry in requests if "requests" in entry]
    for agent in agents:
        own += recorded_starts(agent["requests"], began + agent["t"] - (agent["duration_ms"] or 0) / 1000)
    return own


def check_starts(folder, session):
    path = write_lines(folder / "s.jsonl", session)
    np.testing.assert_allclose(replayed_starts(path), recorded_starts(session["requests"]), atol=1e-3)


def test_a_session_with_a_subagent_and_a_call_without_a_duration_replays(tmp_path):
    check_starts(tmp_path, kv_sample())


@examples(40)
@given(kv_sessions())
def test_any_session_replays(tmp_path_factory, session):
    check_starts(tmp_path_factory.mktemp("replay"), session)


def test_a_session_of_copilot_replays(tmp_path):
    path = write_lines(tmp_path / "s.jsonl", copilot_sample())
    np.testing.assert_allclose(replayed_starts(path, "copilot"), [0, 6.5, 60], atol=1e-3)
